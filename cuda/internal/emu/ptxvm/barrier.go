package ptxvm

import "math/bits"

// The kinds of a barrier instruction for a block (CTA).
const (
	barSync uint8 = iota
	barArrive
	barPopc
	barAnd
	barOr
)

// ctaBarrier is one of the sixteen barriers of a block.
type ctaBarrier struct {
	arrived uint32 // mask of the warps that have arrived
	waiting uint32 // mask of the warps that wait at the barrier
	// threads is the number of threads that have arrived, counted in whole warps.
	threads int
	// want is the number of expected threads. If it is 0, all warps that have not ended are
	// expected.
	want    int
	count   int // number of true predicates, for bar.red.popc
	and, or bool
	vc      []uint32  // vector clock of the warps that have arrived
	seen    knowledge // what the warps that have arrived know about other blocks
}

func (b *ctaBarrier) reset() {
	clear(b.vc)
	*b = ctaBarrier{and: true, vc: b.vc}
}

// arrive executes bar.sync, bar.arrive and bar.red.
func (w *warp) arrive(in *inst, m uint32) {
	w.converged(in, m, BarrierDivergence)
	first := bits.TrailingZeros32(m)
	w.requireWritten(in, m, in.a)
	id := w.uniform(in, m, in.a, "the barrier number")
	if id > 15 {
		w.fault(BarrierDivergence, in, first, "barrier %d does not exist (0 to 15 do)", id)
	}
	c := w.cta
	b := &c.barriers[id]
	want := 0
	if in.x.hasCnt {
		w.requireWritten(in, m, in.x.count)
		want = int(w.uniform(in, m, in.x.count, "the thread count"))
		if want == 0 || want%32 != 0 {
			w.fault(BarrierDivergence, in, first, "thread count %d is no positive multiple of the warp size", want)
		}
		if want > 32*len(c.warps) {
			w.fault(Deadlock, in, first, "barrier %d expects %d threads, the block has %d warps", id, want, len(c.warps))
		}
	}
	if b.arrived != 0 && b.want != want {
		w.fault(BarrierDivergence, in, first, "barrier %d is used with a count of %d threads here and %d by a warp that arrived before (0: all)", id, want, b.want)
	}
	c.stats.Barriers++
	b.want = want
	if b.arrived == 0 {
		b.and, b.or, b.count = true, false, 0
	}
	b.arrived |= 1 << w.id
	b.threads += 32
	if b.vc == nil {
		b.vc = make([]uint32, len(c.warps))
	}
	for i, v := range w.vc {
		b.vc[i] = max(b.vc[i], v)
	}
	b.seen.add(w.seen)
	mode := in.x.mode
	if mode >= barPopc {
		v := w.extraPred(in, m) & m
		b.count += bits.OnesCount32(v)
		b.and = b.and && v == m
		b.or = b.or || v != 0
	}
	if mode == barArrive {
		w.vc[w.id]++
	} else {
		b.waiting |= 1 << w.id
		w.state, w.barrier, w.barInst = warpWaiting, int(id), in
	}
	c.tryRelease(int(id))
}

// uniform returns an operand that must have the same value in all lanes of m.
func (w *warp) uniform(in *inst, m uint32, slot int32, what string) uint32 {
	first := bits.TrailingZeros32(m)
	v := uint32(w.r[slot][first])
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		if uint32(w.r[slot][l]) != v {
			w.fault(BarrierDivergence, in, l, "%s is %d here and %d in lane %d", what, uint32(w.r[slot][l]), v, first)
		}
	}
	return v
}

// tryRelease releases the warps at a barrier if all expected threads have arrived.
func (c *cta) tryRelease(id int) {
	b := &c.barriers[id]
	if b.waiting == 0 && (b.want == 0 || b.threads < b.want) {
		return
	}
	if b.want > 0 {
		if b.threads < b.want {
			return
		}
	} else {
		for i, w := range c.warps {
			if w.state != warpDone && b.arrived>>i&1 == 0 {
				return
			}
		}
	}
	all := !c.global.ended
	for i, w := range c.warps {
		all = all && (w.state == warpDone || b.waiting>>i&1 != 0)
	}
	if all {
		c.global.end(c)
	}
	for i, w := range c.warps {
		if b.waiting>>i&1 == 0 {
			continue
		}
		w.unseen = !all
		e := w.vc[i]
		for j, v := range b.vc {
			w.vc[j] = max(w.vc[j], v)
		}
		w.seen.add(b.seen)
		w.base, w.pair = e, nil
		w.vc[i] = e + 1
		w.state = warpReady
		in := w.barInst
		switch in.x.mode {
		case barPopc:
			r := w.dest(in.d, w.mask)
			for l := range r {
				if w.mask>>l&1 != 0 {
					r[l] = uint64(b.count)
				}
			}
		case barAnd:
			w.setPred(in.p, -bit(b.and), w.mask)
		case barOr:
			w.setPred(in.p, -bit(b.or), w.mask)
		}
	}
	vc := b.vc
	clear(vc)
	*b = ctaBarrier{and: true, vc: vc}
}
