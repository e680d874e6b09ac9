package ptxvm

// access describes the accesses of a warp to a cell in one epoch, between two synchronisations of
// the warp.
type access struct {
	epoch uint32
	lanes uint32
	// pc is the index of the instruction plus 1, or 0 if there was no access.
	pc   int32
	warp uint16
	kind accessKind
}

type accessKind uint8

const (
	plain  accessKind = iota
	strong            // an atomic, volatile, relaxed, acquire or release access
	async             // a write by cp.async
)

// note records a read by one lane.
func (a *access) note(k *clocks, lane int, pc int32, kind accessKind) {
	e := k.epoch()
	if a.pc == 0 || a.epoch != e || int(a.warp) != k.self {
		*a = access{epoch: e, lanes: 1 << lane, pc: pc, warp: uint16(k.self), kind: kind}
		return
	}
	a.lanes |= 1 << lane
	a.pc = pc
	if kind == plain {
		a.kind = plain
	}
}

// cell is the history of accesses to one word. If a word is accessed in parts, each of its bytes
// has a cell.
type cell struct {
	w access
	r access
	// If several warps have read the cell, many is its index in readers plus 1.
	many int32
}

// readers holds the reads of cells that several warps have read. For each such cell it has a set,
// with one entry for each warp.
type readers struct {
	list   []access
	nwarps int
}

// warpReads returns the reads of a warp, for a cell with many readers.
func (s *readers) warpReads(c *cell, warp int) *access { return &s.list[int(c.many-1)*s.nwarps+warp] }

// add adds a set of readers for a cell.
func (s *readers) add(c *cell) {
	n := len(s.list)
	if n+s.nwarps <= cap(s.list) {
		s.list = s.list[:n+s.nwarps]
		clear(s.list[n:])
	} else {
		s.list = append(s.list, make([]access, s.nwarps)...)
	}
	c.many = int32(n/s.nwarps) + 1
}

// history is the history of consecutive words. Its methods get the clocks of the warp that accesses
// a word now. They return an earlier access that is not ordered before that warp's access, or nil
// if there is none.
type history struct {
	cells   []cell
	split   []bool // for each word, whether its bytes are tracked separately
	parts   []cell // four cells for each word, allocated when they are first needed
	readers *readers
}

func newHistory(words int, r *readers) history {
	return history{cells: make([]cell, words), split: make([]bool, words), readers: r}
}

func (h *history) reset() {
	clear(h.cells)
	clear(h.split)
}

// splitWord starts to track the bytes of a word separately.
func (h *history) splitWord(i int) {
	if h.parts == nil {
		h.parts = make([]cell, 4*len(h.cells))
	}
	for k := range 4 {
		c := h.cells[i]
		if c.many != 0 {
			from := h.cells[i]
			h.readers.add(&c)
			for j := range h.readers.nwarps {
				*h.readers.warpReads(&c, j) = *h.readers.warpReads(&from, j)
			}
		}
		h.parts[4*i+k] = c
	}
	h.split[i] = true
}

// readCell records a read. It returns an earlier access that is not ordered before the read, or
// nil.
func (h *history) readCell(k *clocks, c *cell, lane int, pc int32, kind accessKind) (bad *access) {
	if a := &c.w; a.pc != 0 && !k.ordered(lane, int(a.warp), a.lanes, a.epoch) && !(kind == strong && a.kind == strong) {
		return a
	}
	switch {
	case c.many != 0:
		h.readers.warpReads(c, k.self).note(k, lane, pc, kind)
	case c.r.pc == 0 || int(c.r.warp) == k.self || k.ordered(lane, int(c.r.warp), c.r.lanes, c.r.epoch):
		c.r.note(k, lane, pc, kind)
	default:
		h.readers.add(c)
		*h.readers.warpReads(c, int(c.r.warp)) = c.r
		h.readers.warpReads(c, k.self).note(k, lane, pc, kind)
	}
	return nil
}

// writeCell checks a write and records it. The argument same says that the write does not change
// the bytes: two writes of the same value are not a race. The result bad is an earlier access that
// is not ordered before the write, and did says what that access did.
func (h *history) writeCell(k *clocks, c *cell, lane int, pc int32, kind accessKind, same bool) (bad *access, did string) {
	clash := func(a *access) bool {
		return a.pc != 0 && !(kind == strong && a.kind == strong) && !k.ordered(lane, int(a.warp), a.lanes, a.epoch)
	}
	if !same && clash(&c.w) {
		return &c.w, "wrote"
	}
	if c.many != 0 {
		for i := range h.readers.nwarps {
			a := h.readers.warpReads(c, i)
			if clash(a) {
				return a, "read"
			}
			*a = access{}
		}
	} else if clash(&c.r) {
		return &c.r, "read"
	}
	c.r = access{}
	c.w = access{epoch: k.epoch(), lanes: 1 << lane, pc: pc, warp: uint16(k.self), kind: kind}
	return nil, ""
}

// readQuick records a read of one word by several lanes in simple cases, and reports whether it
// did. The last write must be ordered before the reads of all these lanes. In addition, the cell
// must have a set of readers already, or only reads by this warp.
func (h *history) readQuick(k *clocks, c *cell, lanes uint32, pc int32, kind accessKind) bool {
	if c.w.pc != 0 {
		if int(c.w.warp) != k.self {
			if c.w.epoch > k.vc[c.w.warp] {
				return false
			}
		} else if c.w.epoch > k.base && c.w.lanes != lanes {
			return false
		}
	}
	r := &c.r
	if c.many != 0 {
		r = h.readers.warpReads(c, k.self)
	} else if r.pc != 0 && int(r.warp) != k.self {
		return false
	}
	e := k.vc[k.self]
	if r.pc == 0 || r.epoch != e {
		*r = access{epoch: e, lanes: lanes, pc: pc, warp: uint16(k.self), kind: kind}
		return true
	}
	r.lanes |= lanes
	r.pc = pc
	if kind == plain {
		r.kind = plain
	}
	return true
}

// allOrdered reports whether the access a happened before the current instruction of a lane. It
// does not look at pairs of lanes, so the result may be false for an ordered access. The lane is
// given as a mask. A missing access counts as ordered.
func (k *clocks) allOrdered(a *access, lane uint32) bool {
	if a.pc == 0 {
		return true
	}
	if int(a.warp) != k.self {
		return a.epoch <= k.vc[a.warp]
	}
	return a.epoch <= k.base || a.lanes == lane
}

// writeQuick records a write if the last write and the reads after it are known to be ordered
// before the new write. It does not handle cells with a set of readers. It reports whether it has
// recorded the write.
func (k *clocks) writeQuick(c *cell, lane uint32, pc int32, kind accessKind) bool {
	if c.many != 0 || !k.allOrdered(&c.w, lane) || !k.allOrdered(&c.r, lane) {
		return false
	}
	c.r.pc = 0
	c.w = access{epoch: k.vc[k.self], lanes: lane, pc: pc, warp: uint16(k.self), kind: kind}
	return true
}

// read records a read of size bytes at a byte offset, and checks it against earlier accesses.
func (h *history) read(k *clocks, lane, off, size int, pc int32, kind accessKind) *access {
	if size >= 4 {
		for i := off >> 2; i < (off+size)>>2; i++ {
			if !h.split[i] {
				if c := &h.cells[i]; !h.readQuick(k, c, 1<<lane, pc, kind) {
					if a := h.readCell(k, c, lane, pc, kind); a != nil {
						return a
					}
				}
				continue
			}
			for b := range 4 {
				if a := h.readCell(k, &h.parts[4*i+b], lane, pc, kind); a != nil {
					return a
				}
			}
		}
		return nil
	}
	if !h.split[off>>2] {
		h.splitWord(off >> 2)
	}
	for b := off; b < off+size; b++ {
		if a := h.readCell(k, &h.parts[b], lane, pc, kind); a != nil {
			return a
		}
	}
	return nil
}

// write records a write of size bytes at a byte offset, and checks it against earlier accesses. The
// result did says what the returned access did.
func (h *history) write(k *clocks, lane, off, size int, pc int32, kind accessKind, same bool) (bad *access, did string) {
	if size >= 4 {
		for i := off >> 2; i < (off+size)>>2; i++ {
			if !h.split[i] {
				if c := &h.cells[i]; !k.writeQuick(c, 1<<lane, pc, kind) {
					if bad, did = h.writeCell(k, c, lane, pc, kind, same); bad != nil {
						return bad, did
					}
				}
				continue
			}
			for b := range 4 {
				if bad, did = h.writeCell(k, &h.parts[4*i+b], lane, pc, kind, same); bad != nil {
					return bad, did
				}
			}
		}
		return nil, ""
	}
	if !h.split[off>>2] {
		h.splitWord(off >> 2)
	}
	for b := off; b < off+size; b++ {
		if bad, did = h.writeCell(k, &h.parts[b], lane, pc, kind, same); bad != nil {
			return bad, did
		}
	}
	return nil, ""
}
