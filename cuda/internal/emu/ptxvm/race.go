package ptxvm

import "math/bits"

// The race detector for shared memory. Happens-before is tracked by vector clocks over warps in the manner of FastTrack (Flanagan and
// Freund, PLDI 2009): every synchronisation of a warp ends an epoch of that warp. Lanes of one warp are ordered by the epochs that all lanes
// have passed together (base), or, after synchronisation of a part of the warp, by a matrix of lanes.

// clocks is the knowledge of one warp.
type clocks struct {
	self int
	vc   []uint32        // epochs of other warps that happened before now; own entry: the running epoch
	base uint32          // own epochs up to this one are ordered before all lanes
	pair *[32][32]uint32 // own epochs of lane j ordered before lane i, beyond base; nil: none
}

func (c *clocks) reset(self int) {
	c.self, c.base, c.pair = self, 0, nil
	for i := range c.vc {
		c.vc[i] = 0
	}
	c.vc[self] = 1
}

func (c *clocks) epoch() uint32 { return c.vc[c.self] }

// syncWarp orders the lanes of mask among themselves; live are the lanes that exist.
func (c *clocks) syncWarp(mask, live uint32) {
	e := c.vc[c.self]
	if mask&live == live {
		c.base, c.pair = e, nil
	} else {
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

// ordered says whether what the given lanes of a warp did in its epoch happened before the lane of this warp now.
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

// access is what a warp did to a cell in one epoch.
type access struct {
	epoch uint32
	lanes uint32
	pc    int32 // instruction + 1; 0: none
	warp  uint16
	kind  accessKind
}

type accessKind uint8

const (
	plain  accessKind = iota
	strong            // atomic, volatile, relaxed, acquire, release
	async             // written by cp.async
)

// cell is the history of one word, or one byte of a word that is accessed in parts.
type cell struct {
	w    access
	r    access
	many int32 // index+1 into readers: reads by more than one warp
}

// sharedMemory is the shared memory of the block in progress.
type sharedMemory struct {
	data    []byte
	init    []byte
	cells   []cell
	split   []bool   // words that are tracked by byte
	parts   []cell   // four a word, allocated on first need
	readers []access // nwarps entries a set
	nwarps  int
	dyn     int     // bytes of dynamic shared memory
	pend    []int32 // words with a cp.async in flight: thread + 1
	pendPC  []int32
	phases  map[int][]uint32 // by offset of an mbarrier: what happened before the arrivals
}

func (s *sharedMemory) setup(static, dyn, nwarps int, usesAsync bool) {
	size := static + dyn
	s.dyn = dyn
	words := (size + 3) / 4
	s.nwarps = nwarps
	s.data, s.init = make([]byte, size), make([]byte, size)
	s.cells, s.split = make([]cell, words), make([]bool, words)
	if usesAsync {
		s.pend, s.pendPC = make([]int32, words), make([]int32, words)
	}
}

func (s *sharedMemory) reset() {
	fill(s.data, poison)
	clear(s.init)
	clear(s.cells)
	clear(s.split)
	clear(s.pend)
	s.readers = s.readers[:0]
	clear(s.phases)
}

// reader returns what a warp has read of a cell with many readers.
func (s *sharedMemory) reader(c *cell, warp int) *access {
	return &s.readers[int(c.many-1)*s.nwarps+warp]
}

// note records a read by one lane.
func (a *access) note(w *warp, lane int, pc int32, k accessKind) {
	e := w.epoch()
	if a.pc == 0 || a.epoch != e || int(a.warp) != w.id {
		*a = access{epoch: e, lanes: 1 << lane, pc: pc, warp: uint16(w.id), kind: k}
		return
	}
	a.lanes |= 1 << lane
	a.pc = pc
	if k == plain {
		a.kind = plain
	}
}

func (w *warp) readCell(in *inst, c *cell, lane int, pc int32, k accessKind) {
	if a := &c.w; a.pc != 0 && !w.ordered(lane, int(a.warp), a.lanes, a.epoch) && !(k == strong && a.kind == strong) {
		w.race(in, lane, a, "reads", "wrote")
	}
	s := &w.cta.shared
	switch {
	case c.many != 0:
		s.reader(c, w.id).note(w, lane, pc, k)
	case c.r.pc == 0 || int(c.r.warp) == w.id || w.ordered(lane, int(c.r.warp), c.r.lanes, c.r.epoch):
		c.r.note(w, lane, pc, k)
	default:
		n := len(s.readers)
		if n+s.nwarps <= cap(s.readers) {
			s.readers = s.readers[:n+s.nwarps]
			clear(s.readers[n:])
		} else {
			s.readers = append(s.readers, make([]access, s.nwarps)...)
		}
		c.many = int32(n/s.nwarps) + 1
		*s.reader(c, int(c.r.warp)) = c.r
		s.reader(c, w.id).note(w, lane, pc, k)
	}
}

// writeCell checks a write and records it. same says that the bytes keep their value: two writes of one value are no race.
func (w *warp) writeCell(in *inst, c *cell, lane int, pc int32, k accessKind, same bool) {
	if a := &c.w; a.pc != 0 && !same && !(k == strong && a.kind == strong) && !w.ordered(lane, int(a.warp), a.lanes, a.epoch) {
		w.race(in, lane, a, "writes", "wrote")
	}
	s := &w.cta.shared
	if c.many != 0 {
		for i := range s.nwarps {
			if a := s.reader(c, i); a.pc != 0 && !(k == strong && a.kind == strong) && !w.ordered(lane, i, a.lanes, a.epoch) {
				w.race(in, lane, a, "writes", "read")
			}
			*s.reader(c, i) = access{}
		}
	} else if a := &c.r; a.pc != 0 && !(k == strong && a.kind == strong) && !w.ordered(lane, int(a.warp), a.lanes, a.epoch) {
		w.race(in, lane, a, "writes", "read")
	}
	c.r = access{}
	c.w = access{epoch: w.epoch(), lanes: 1 << lane, pc: pc, warp: uint16(w.id), kind: k}
}

// race reports an unordered pair of accesses.
func (w *warp) race(in *inst, lane int, a *access, does, did string) {
	other := a.lanes
	if int(a.warp) == w.id {
		other &^= 1 << lane
	}
	e := w.cta.entry
	line := int(e.code[a.pc-1].line)
	thread := w.cta.thread(int(a.warp)*32 + bits.TrailingZeros32(other))
	kind, why := SharedRace, "no barrier lies between"
	switch {
	case a.kind == async:
		kind, why = AsyncCopyNotWaited, "the copying thread has waited for it, but no barrier lies between"
	case int(a.warp) == w.id:
		why = "both are lanes of one warp and no bar.warp.sync lies between"
	}
	f := &Fault{Kind: kind, Kernel: e.Name, Line: int(in.line), Source: e.mod.line(int(in.line)), CTA: w.cta.id, Thread: w.cta.thread(w.id*32 + lane), Addr: w.addr[lane],
		Other: &Site{Line: line, Source: e.mod.line(line), Thread: thread}}
	f.Msg = "it " + does + " shared byte " + w.sharedName(w.addr[lane]) + ", which the other thread " + did + "; " + why
	panic(f)
}

// splitWord starts to track a word by byte.
func (s *sharedMemory) splitWord(i int) {
	if s.parts == nil {
		s.parts = make([]cell, 4*len(s.cells))
	}
	for k := range 4 {
		c := s.cells[i]
		if c.many != 0 {
			from := int(c.many-1) * s.nwarps
			n := len(s.readers)
			s.readers = append(s.readers, s.readers[from:from+s.nwarps]...)
			c.many = int32(n/s.nwarps) + 1
		}
		s.parts[4*i+k] = c
	}
	s.split[i] = true
}

// readQuick records a read by several lanes of one word where that needs no search: the last write is ordered before the whole warp, and the
// only readers since are this warp's in its current epoch. It reports whether it could.
func (w *warp) readQuick(c *cell, lanes uint32, pc int32, k accessKind) bool {
	if c.w.pc != 0 {
		if int(c.w.warp) != w.self {
			if c.w.epoch > w.vc[c.w.warp] {
				return false
			}
		} else if c.w.epoch > w.base && c.w.lanes != lanes {
			return false
		}
	}
	r := &c.r
	if c.many != 0 {
		r = w.cta.shared.reader(c, w.id)
	} else if r.pc != 0 && int(r.warp) != w.self {
		return false
	}
	e := w.vc[w.self]
	if r.pc == 0 || r.epoch != e {
		*r = access{epoch: e, lanes: lanes, pc: pc, warp: uint16(w.self), kind: k}
		return true
	}
	r.lanes |= lanes
	r.pc = pc
	if k == plain {
		r.kind = plain
	}
	return true
}

// before says whether an access is ordered before a lane (given as a mask) without looking at pairs of lanes; no access at all is.
func (w *warp) before(a *access, lane uint32) bool {
	if a.pc == 0 {
		return true
	}
	if int(a.warp) != w.self {
		return a.epoch <= w.vc[a.warp]
	}
	return a.epoch <= w.base || a.lanes == lane
}

// writeQuick records a write where the last write and the only reads since are ordered before it. It reports whether it could.
func (w *warp) writeQuick(c *cell, lane uint32, pc int32, k accessKind) bool {
	if c.many != 0 || !w.before(&c.w, lane) || !w.before(&c.r, lane) {
		return false
	}
	c.r.pc = 0
	c.w = access{epoch: w.vc[w.self], lanes: lane, pc: pc, warp: uint16(w.self), kind: k}
	return true
}

// trackRead checks and records a read of size bytes at off.
func (w *warp) trackRead(in *inst, lane, off, size int, pc int32, k accessKind) {
	s := &w.cta.shared
	if size >= 4 {
		for i := off >> 2; i < (off+size)>>2; i++ {
			if !s.split[i] {
				if c := &s.cells[i]; !w.readQuick(c, 1<<lane, pc, k) {
					w.readCell(in, c, lane, pc, k)
				}
				continue
			}
			for b := range 4 {
				w.readCell(in, &s.parts[4*i+b], lane, pc, k)
			}
		}
		return
	}
	if !s.split[off>>2] {
		s.splitWord(off >> 2)
	}
	for b := off; b < off+size; b++ {
		w.readCell(in, &s.parts[b], lane, pc, k)
	}
}

// trackWrite checks and records a write of size bytes at off.
func (w *warp) trackWrite(in *inst, lane, off, size int, pc int32, k accessKind, same bool) {
	s := &w.cta.shared
	if size >= 4 {
		for i := off >> 2; i < (off+size)>>2; i++ {
			if !s.split[i] {
				if c := &s.cells[i]; !w.writeQuick(c, 1<<lane, pc, k) {
					w.writeCell(in, c, lane, pc, k, same)
				}
				continue
			}
			for b := range 4 {
				w.writeCell(in, &s.parts[4*i+b], lane, pc, k, same)
			}
		}
		return
	}
	if !s.split[off>>2] {
		s.splitWord(off >> 2)
	}
	for b := off; b < off+size; b++ {
		w.writeCell(in, &s.parts[b], lane, pc, k, same)
	}
}
