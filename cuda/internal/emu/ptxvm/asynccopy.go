package ptxvm

import "math/bits"

// asyncCopy is a pending cp.async. It is executed when its thread waits for it, which is the latest
// time that the ISA allows.
type asyncCopy struct {
	lane  int
	group uint32 // number of groups that the lane committed before this copy
	off   int    // offset of the destination in shared memory
	size  int
	// n is the number of bytes that are read from the source. The remaining bytes become zero.
	n   int
	src *region
	at  uint64
	pc  int32
}

// copyAsync decodes cp.async, and cp.async.commit_group, .wait_group and .wait_all.
func copyAsync(d *decoder) {
	if !d.modifier("async") {
		d.fail("unknown or unsupported instruction %s", d.stmt.op)
	}
	d.require(80, 7, 0)
	d.e.usesAsync = true
	x := d.extra()
	switch {
	case d.modifier("mbarrier"):
		arriveCopies(d)
	case d.modifier("commit_group"):
		d.args(0)
		d.run(func(w *warp, _ *inst, m uint32) {
			for ; m != 0; m &= m - 1 {
				w.groups[bits.TrailingZeros32(m)]++
			}
		})
	case d.modifier("wait_group"):
		n := uint32(d.number(d.args(1)[0], 1<<20))
		d.run(func(w *warp, _ *inst, m uint32) { w.waitCopies(m, n, false) })
	case d.modifier("wait_all"):
		d.args(0)
		d.run(func(w *warp, _ *inst, m uint32) { w.waitCopies(m, 0, true) })
	default:
		ca := d.modifier("ca")
		if !ca && !d.modifier("cg") {
			d.fail("unknown or unsupported instruction %s", d.stmt.op)
		}
		if d.oneOf("shared", "shared::cta") < 0 || !d.modifier("global") {
			d.fail("%s needs .shared.global", d.stmt.op)
		}
		if d.oneOf("L2::64B", "L2::128B", "L2::256B") >= 0 {
			d.require(80, 7, 4)
		}
		d.cacheHint()
		a := d.stmt.args
		if len(a) != 3 && len(a) != 4 {
			d.fail("%s takes destination, source, size and optionally source size", d.stmt.op)
		}
		x.size = int(d.number(a[2], 16))
		if x.size != 16 && (!ca || x.size != 4 && x.size != 8) {
			d.fail("%s: size %d is not allowed (.ca: 4, 8, 16; .cg: 16)", d.stmt.op, x.size)
		}
		d.in.a, x.off, _ = d.mem(a[0], spShared)
		var srcOff int64
		d.in.b, srcOff, _ = d.mem(a[1], spGlobal)
		x.count = d.constant(uint64(x.size))
		if len(a) == 4 {
			// If this predicate is true, the source is not read.
			if r := d.register(a[3].name); a[3].kind == okWord && r != nil && r.typ == Pred {
				p, not := d.condition(a[3])
				whole := x.count
				x.count = d.nreg
				d.nreg++
				d.run(func(w *warp, in *inst, m uint32) {
					v := w.pred(in, p, m)
					if not {
						v = ^v
					}
					n := w.r[whole]
					for l := range n {
						if v>>l&1 != 0 {
							n[l] = 0
						}
					}
					w.write(in.x.count, &n, m)
					w.issueCopy(in, m, uint64(srcOff))
				})
				return
			}
			x.count = d.src(a[3], U32)
		}
		d.run(func(w *warp, in *inst, m uint32) { w.issueCopy(in, m, uint64(srcOff)) })
	}
}

func (w *warp) issueCopy(in *inst, m uint32, srcOff uint64) {
	x, s := in.x, &w.cta.shared
	w.requireWritten(in, m, in.b, x.count)
	pc := w.pc
	src, count := &w.r[in.b], &w.r[x.count]
	st := &w.cta.stats
	// The sources are handled before w.addr is overwritten with the destinations.
	first := len(w.pending)
	var zero uint32
	for l := range w.addr {
		w.addr[l] = src[l] + srcOff
	}
	var read, short uint32
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		c := asyncCopy{lane: l, group: w.groups[l], size: x.size, n: int(uint32(count[l])), pc: pc}
		if c.n > x.size {
			w.fault(OutOfBounds, in, l, "source size %d exceeds the copy size %d", c.n, x.size)
		}
		if w.addr[l]&uint64(x.size-1) != 0 {
			w.globalFault(in, l, Misaligned, w.addr[l], x.size)
		}
		switch {
		case c.n == x.size:
			c.src, c.at = w.globalSpan(in, l, x.size, shReady)
			read |= 1 << l
		case c.n > 0:
			w.globalBytes(in, l, c.n)
			c.src, c.at = w.lastRegion, w.addr[l]-w.lastRegion.base
			read |= 1 << l
			short |= 1 << l
		default:
			zero |= 1 << l
		}
		if c.n > 0 && w.cta.blocks != nil {
			w.cta.blocks.access(w, in, l, c.src, c.at, c.n, false, false, plain)
		}
		w.pending = append(w.pending, c)
	}
	st.GlobalLoads++
	w.coalesce(read, x.size, false)
	if whole := read &^ short; whole != 0 && w.cta.watch {
		w.touch(whole, x.size, plain, false, 0)
	}
	for rest := short; rest != 0 && w.cta.watch; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		a := w.addr[l]
		for i := range uint64(uint32(count[l])) {
			w.addr[l] = a + i
			w.touch(1<<l, 1, plain, false, 0)
		}
		w.addr[l] = a
	}
	w.addresses(in, m)
	w.conflicts(m, x.size)
	for i := first; i < len(w.pending); i++ {
		c := &w.pending[i]
		c.off = w.sharedSpan(in, c.lane, x.size)
		w.notPending(in, c.lane, c.off, x.size, "overwrites")
		w.trackWrite(in, c.lane, c.off, x.size, pc+1, async, false)
		for k := c.off; k < c.off+x.size; k += 4 {
			s.pend[k>>2] = int32(w.id*32+c.lane) + 1
			s.pendPC[k>>2] = pc
		}
	}
}

// globalBytes checks n bytes one by one, for a copy whose source is shorter than its destination.
func (w *warp) globalBytes(in *inst, l, n int) {
	a := w.addr[l]
	for i := n - 1; i >= 0; i-- {
		w.addr[l] = a + uint64(i)
		r, off := w.globalSpan(in, l, 1, shReady)
		if i == 0 {
			if uint64(n) > r.size-off {
				w.globalFault(in, l, OutOfBounds, a, n)
			}
			w.lastRegion = r
		}
	}
	w.addr[l] = a
}

// waitCopies completes the copies of the lanes of m, except the copies of each lane's n newest
// groups. If all is true, it also completes copies that are not committed.
//
//go:norace
func (w *warp) waitCopies(m uint32, n uint32, all bool) {
	s := &w.cta.shared
	keep := w.pending[:0]
	for _, c := range w.pending {
		if m>>c.lane&1 == 0 || !all && c.group+n >= w.groups[c.lane] {
			keep = append(keep, c)
			continue
		}
		dst := s.data[c.off : c.off+c.size]
		clear(dst)
		if c.n > 0 {
			copy(dst, c.src.data[c.at:c.at+uint64(c.n)])
		}
		for k := c.off; k < c.off+c.size; k++ {
			s.init[k] = 1
		}
		for k := c.off; k < c.off+c.size; k += 4 {
			s.pend[k>>2] = 0
		}
		w.addr[c.lane] = uint64(c.off) + sharedOrigin
		w.trackWrite(&w.cta.entry.code[c.pc], c.lane, c.off, c.size, c.pc+1, async, false)
	}
	w.pending = keep
}
