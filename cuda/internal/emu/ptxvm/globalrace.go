package ptxvm

import (
	"cmp"
	"math/bits"
	"slices"
)

// Races on global memory between threads of one block are found as follows. Warps record the
// accesses that they make. A barrier of all threads ends an interval: earlier accesses are ordered
// before later ones. At that point the list of accesses is checked. For most lists, comparing the
// ranges of the writes is enough. The accesses of all other lists are replayed into the histories
// of the words. The replay uses the clocks that the warps had at the time, and the same rules as
// for shared memory (race.go).

const (
	maxTouches = 4096 // largest number of recorded accesses; a full list is replayed
	racePieces = 64   // number of words of global memory with a common history
	keepPieces = 1024 // largest number of histories that are reused in the next interval
)

// touch is one access of a warp, recorded for a later check.
type touch struct {
	// All bytes that the lanes access lie in [lo, hi).
	lo, hi uint64
	// If there is no list of addresses, lane l accesses memory from lo+l·step on.
	step uint64
	// list is the index of the list of addresses plus 1, or 0 if there is none.
	list int32
	// view is the index of the warp's view plus 1. It is 0 if the warp did not know about other
	// accesses yet.
	view  int32
	pc    int32 // index of the instruction, plus 1
	mask  uint32
	same  uint32 // mask of the lanes whose bytes the access does not change
	epoch uint32
	base  uint32
	warp  uint16
	size  uint8 // bytes that each lane accesses
	kind  accessKind
	write bool
}

// apart reports whether t is known to access different bytes in different lanes: the lanes' bytes
// are step apart and do not overlap, or only one lane is active.
func (t *touch) apart() bool {
	return t.list == 0 && (t.step >= uint64(t.size) || t.mask&(t.mask-1) == 0)
}

// sameBytesPerLane reports whether each lane accesses the same bytes in t and in o, and no bytes of
// another lane.
func (t *touch) sameBytesPerLane(o *touch) bool {
	return t.warp == o.warp && t.lo == o.lo && t.step == o.step && t.size == o.size && t.apart() && o.apart()
}

// view holds what a warp knows about other warps, and what its lanes know about each other.
type view struct {
	vc   []uint32
	pair *[32][32]uint32
}

// globalLog records the accesses of the running block since the last barrier of all its threads (an
// interval).
type globalLog struct {
	touches []touch
	lists   [][32]uint64
	views   []view
	writes  []span
	written int // number of write accesses
	// ended says that a warp with accesses has left the kernel, so that no later barrier orders
	// them.
	ended bool

	// played says that earlier accesses of the interval were already replayed into the histories.
	played   bool
	pieces   map[uint64]*history
	spare    []*history
	readers  readers
	clocks   clocks   // clocks of the access that replayTouches is recording
	noClocks []uint32 // clocks of a warp that knows nothing about other warps
}

type span struct {
	lo, hi uint64
	touch  int
}

func (g *globalLog) setup(nwarps int) {
	g.readers.nwarps, g.noClocks, g.pieces = nwarps, make([]uint32, nwarps), map[uint64]*history{}
}

// touch records an access of the lanes of m at w.addr. The argument total is the number of bytes
// that each lane accesses.
func (w *warp) touch(m uint32, total int, kind accessKind, write bool, same uint32) {
	g := &w.cta.global
	if len(g.touches) == maxTouches {
		g.replayTouches(w.cta, nil)
		clear(g.views)
		g.views = g.views[:0]
		for _, o := range w.cta.warps {
			o.unseen = o.unseen || o.view > 0
		}
	}
	if w.unseen {
		g.storeView(w)
	}
	t := touch{view: w.view, pc: w.pc + 1, mask: m, same: same, epoch: w.epoch(), base: w.base, warp: uint16(w.id), size: uint8(total), kind: kind, write: write}
	a := &w.addr
	n := bits.Len32(m)
	regular := m&(m+1) == 0
	if regular && n > 1 {
		t.step = a[1] - a[0]
		regular = t.step < 1<<40
		for l := 2; l < n && regular; l++ {
			regular = a[l]-a[l-1] == t.step
		}
	}
	if regular {
		t.lo, t.hi = a[0], a[n-1]+uint64(total)
	} else {
		g.lists = append(g.lists, *a)
		t.list, t.lo = int32(len(g.lists)), ^uint64(0)
		for rest := m; rest != 0; rest &= rest - 1 {
			v := a[bits.TrailingZeros32(rest)&31]
			t.lo, t.hi = min(t.lo, v), max(t.hi, v+uint64(total))
		}
	}
	if write {
		g.written++
	}
	w.touched = true
	g.touches = append(g.touches, t)
}

// storeView stores a copy of the warp's clocks, and of what its lanes know about each other.
func (g *globalLog) storeView(w *warp) {
	v := view{vc: slices.Clone(w.vc)}
	if w.pair != nil {
		p := *w.pair
		v.pair = &p
	}
	g.views = append(g.views, v)
	w.view, w.unseen = int32(len(g.views)), false
}

// end checks the accesses of the interval for races and starts a new interval.
func (g *globalLog) end(c *cta) {
	if g.played || g.written > 0 && g.overlaps() {
		g.replayTouches(c, g.mergedWrites())
	}
	g.drop(c)
}

// drop discards the accesses of the interval without checking them.
func (g *globalLog) drop(c *cta) {
	g.touches, g.lists, g.written, g.ended = g.touches[:0], g.lists[:0], 0, false
	clear(g.views)
	g.views = g.views[:0]
	for _, w := range c.warps {
		w.view, w.unseen, w.touched = 0, false, false
	}
	if g.played {
		for _, h := range g.pieces {
			if len(g.spare) < keepPieces {
				g.spare = append(g.spare, h)
			}
		}
		clear(g.pieces)
		g.readers.list = g.readers.list[:0]
		g.played = false
	}
}

// overlaps sorts the writes by address. It reports whether bytes that one thread writes may also be
// accessed by another thread.
func (g *globalLog) overlaps() bool {
	g.writes = g.writes[:0]
	sorted := true
	for i := range g.touches {
		if t := &g.touches[i]; t.write {
			if n := len(g.writes); n > 0 && t.lo < g.writes[n-1].lo {
				sorted = false
			}
			g.writes = append(g.writes, span{t.lo, t.hi, i})
		}
	}
	if !sorted {
		slices.SortFunc(g.writes, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	}
	for i, s := range g.writes {
		t := &g.touches[s.touch]
		if !t.apart() || i > 0 && g.writes[i-1].hi > s.lo && !t.sameBytesPerLane(&g.touches[g.writes[i-1].touch]) {
			return true
		}
	}
	// The writes are now sorted. Neighbours in the list may overlap, but only if each lane writes
	// the same bytes in both.
	for i := range g.touches {
		t := &g.touches[i]
		if t.write {
			continue
		}
		for k := searchEnd(g.writes, t.lo); k < len(g.writes) && g.writes[k].lo < t.hi; k++ {
			if !t.sameBytesPerLane(&g.touches[g.writes[k].touch]) {
				return true
			}
		}
	}
	return false
}

// searchEnd returns the index of the first span that ends after an address, in a list sorted by
// end.
func searchEnd(s []span, addr uint64) int {
	lo, hi := 0, len(s)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); s[mid].hi <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// mergedWrites merges overlapping writes, which [globalLog.overlaps] has sorted. It returns nil if
// some accesses of the interval were already replayed.
func (g *globalLog) mergedWrites() []span {
	if g.played {
		return nil
	}
	h := g.writes[:1]
	for _, s := range g.writes[1:] {
		if last := &h[len(h)-1]; s.lo < last.hi {
			last.hi = max(last.hi, s.hi)
		} else {
			h = append(h, s)
		}
	}
	return h
}

// replayTouches records the accesses in the histories, and empties their list. If within is not
// nil, it ignores accesses outside of these spans.
func (g *globalLog) replayTouches(c *cta, within []span) {
	for i := range g.touches {
		t := &g.touches[i]
		if within != nil {
			if k := searchEnd(within, t.lo); k == len(within) || within[k].lo >= t.hi {
				continue
			}
		}
		k := &g.clocks
		*k = clocks{self: int(t.warp), vc: g.noClocks, base: t.base}
		if t.view > 0 {
			v := &g.views[t.view-1]
			k.vc, k.pair = v.vc, v.pair
		}
		k.vc[k.self] = t.epoch
		g.playLanes(c, t)
		k.vc[k.self] = 0
	}
	g.touches, g.lists, g.written, g.played = g.touches[:0], g.lists[:0], 0, true
}

func (g *globalLog) playLanes(c *cta, t *touch) {
	var h *history
	last := ^uint64(0)
	for rest := t.mask; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		addr := t.lo + uint64(l)*t.step
		if t.list > 0 {
			addr = g.lists[t.list-1][l]
		}
		if p := addr / (4 * racePieces); p != last {
			h, last = g.piece(p), p
		}
		off := int(addr % (4 * racePieces))
		does, did := "reads", "wrote"
		var a *access
		if t.write {
			does = "writes"
			a, did = h.write(&g.clocks, l, off, int(t.size), t.pc, t.kind, t.same>>l&1 != 0)
		} else {
			a = h.read(&g.clocks, l, off, int(t.size), t.pc, t.kind)
		}
		if a != nil {
			f := c.warps[t.warp].unordered(GlobalRace, &c.entry.code[t.pc-1], l, a, addr)
			f.Msg = "it " + does + " global memory, " + c.launch.Mem.describeAccess(addr, uint64(t.size)) + ", which the other thread " + did + "; " + f.Msg
			panic(f)
		}
	}
}

func (g *globalLog) piece(p uint64) *history {
	h := g.pieces[p]
	if h == nil {
		if n := len(g.spare); n > 0 {
			h = g.spare[n-1]
			g.spare = g.spare[:n-1]
			h.reset()
		} else {
			h = new(history)
			*h = newHistory(racePieces, &g.readers)
		}
		g.pieces[p] = h
	}
	return h
}
