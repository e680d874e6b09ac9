package ptxvm

import "math/bits"

// The race detectors for shared memory and for global memory track which accesses happened before
// others. They use vector clocks over warps, like FastTrack (Flanagan and Freund, PLDI 2009): every
// synchronisation of a warp ends an epoch of that warp. The lanes of one warp are ordered by the
// epochs that all lanes have passed together (base). If only some lanes of a warp have
// synchronised, a matrix of lanes orders them.

// clocks holds what one warp knows about the order of accesses.
type clocks struct {
	self int
	// for each other warp of the block, its last epoch that happened before now; for this warp, its
	// current epoch
	vc []uint32
	// All accesses of the lanes of this warp in epochs up to base happened before the current
	// instruction of every lane.
	base uint32
	// pair[i][j], if greater than base, is the last epoch whose accesses by lane j happened before
	// the current instruction of lane i. If pair is nil, base holds for all pairs.
	pair *[32][32]uint32

	unseen bool // whether vc or pair has changed since a globalLog copied them
}

func (c *clocks) reset(self int) {
	c.self, c.base, c.pair, c.unseen = self, 0, nil, false
	for i := range c.vc {
		c.vc[i] = 0
	}
	c.vc[self] = 1
}

func (c *clocks) epoch() uint32 { return c.vc[c.self] }

// syncWarp orders the lanes of mask among themselves. The argument live is the mask of the lanes
// that exist.
func (c *clocks) syncWarp(mask, live uint32) {
	e := c.vc[c.self]
	if mask&live == live {
		c.unseen = c.unseen || c.pair != nil
		c.base, c.pair = e, nil
	} else {
		c.unseen = true
		if c.pair == nil {
			c.pair = new([32][32]uint32)
		}
		var join [32]uint32
		for m := mask; m != 0; m &= m - 1 {
			row := &c.pair[bits.TrailingZeros32(m)]
			for j := range join {
				join[j] = max(join[j], row[j])
			}
		}
		for m := mask; m != 0; m &= m - 1 {
			join[bits.TrailingZeros32(m)] = e
		}
		for m := mask; m != 0; m &= m - 1 {
			c.pair[bits.TrailingZeros32(m)] = join
		}
	}
	c.vc[c.self]++
}

// ordered reports whether an earlier access happened before the current instruction of a lane of
// this warp. The earlier access was made by the lanes in the mask lanes of warp number warp, in the
// given epoch.
func (c *clocks) ordered(lane int, warp int, lanes, epoch uint32) bool {
	if warp != c.self {
		return epoch <= c.vc[warp]
	}
	if epoch <= c.base {
		return true
	}
	lanes &^= 1 << lane
	if lanes == 0 {
		return true
	}
	if c.pair == nil {
		return false
	}
	for ; lanes != 0; lanes &= lanes - 1 {
		if epoch > c.pair[lane][bits.TrailingZeros32(lanes)] {
			return false
		}
	}
	return true
}

// sharedMemory is the shared memory of the running block.
type sharedMemory struct {
	history
	data []byte
	init []byte
	dyn  int // bytes of dynamic shared memory
	// pend[i] is 1 plus the index of the thread whose cp.async to word i is pending. It is 0 if
	// none is pending.
	pend   []int32
	pendPC []int32
	// for each mbarrier, by its offset, the clocks of the warps that have arrived
	phases map[int][]uint32
}

func (s *sharedMemory) setup(static, dyn, nwarps int, usesAsync bool) {
	size := static + dyn
	s.dyn = dyn
	words := (size + 3) / 4
	s.data, s.init = make([]byte, size), make([]byte, size)
	s.history = newHistory(words, &readers{nwarps: nwarps})
	if usesAsync {
		s.pend, s.pendPC = make([]int32, words), make([]int32, words)
	}
}

func (s *sharedMemory) reset() {
	fill(s.data, poison)
	clear(s.init)
	s.history.reset()
	s.readers.list = s.readers.list[:0]
	clear(s.pend)
	clear(s.phases)
}

// trackRead checks and records a read of size bytes at a byte offset.
func (w *warp) trackRead(in *inst, lane, off, size int, pc int32, k accessKind) {
	if a := w.cta.shared.read(&w.clocks, lane, off, size, pc, k); a != nil {
		w.race(in, lane, a, "reads", "wrote")
	}
}

// trackWrite checks and records a write of size bytes at a byte offset.
func (w *warp) trackWrite(in *inst, lane, off, size int, pc int32, k accessKind, same bool) {
	if a, did := w.cta.shared.write(&w.clocks, lane, off, size, pc, k, same); a != nil {
		w.race(in, lane, a, "writes", did)
	}
}

// race reports an unordered pair of accesses to shared memory.
func (w *warp) race(in *inst, lane int, a *access, does, did string) {
	f := w.unordered(SharedRace, in, lane, a, w.addr[lane])
	why := f.Msg
	if a.kind == async {
		f.Kind, why = AsyncCopyNotWaited, "the copying thread has waited for it, but no barrier lies between"
	}
	f.Msg = "it " + does + " shared byte " + w.sharedName(w.addr[lane]) + ", which the other thread " + did + "; " + why
	panic(f)
}

// unordered returns the fault of a lane whose access is not ordered after the access a. The message
// says only which ordering is missing.
func (w *warp) unordered(kind FaultKind, in *inst, lane int, a *access, addr uint64) *Fault {
	other := a.lanes
	why := "no barrier lies between"
	if int(a.warp) == w.id {
		other &^= 1 << lane
		why = "both are lanes of one warp and no bar.warp.sync lies between"
	}
	e := w.cta.entry
	line := int(e.code[a.pc-1].line)
	thread := w.cta.thread(int(a.warp)*32 + bits.TrailingZeros32(other))
	return &Fault{Kind: kind, Kernel: e.Name, Line: int(in.line), Source: e.mod.line(int(in.line)), CTA: w.cta.id, Thread: w.cta.thread(w.id*32 + lane), Addr: addr,
		Msg: why, Other: &Site{Line: line, Source: e.mod.line(line), Thread: thread}}
}
