package ptxvm

// An mbarrier object is 64 bits of shared memory whose format the ISA does not define. In the
// emulator it has three fields: the number of arrivals that this phase still expects, the number
// that each phase expects, and the number of the phase.
const (
	mbCount = 1<<20 - 1
	mbShift = 20
	mbPhase = 40
)

// mbarrier decodes the mbarrier instructions, except for transaction counts, which only bulk copies
// use.
func mbarrier(d *decoder) {
	d.require(80, 7, 0)
	op := d.oneOf("init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "pending_count")
	if op < 0 || d.modifier("expect_tx") {
		d.fail("unknown or unsupported instruction %s", d.stmt.op)
	}
	x := d.extra()
	d.oneOf("release", "acquire", "relaxed")
	d.oneOf("cta", "cluster")
	d.typIn(B64)
	a := d.stmt.args
	count := func(n int) {
		if len(a) != n {
			d.fail("%s takes %d operands, found %d", d.stmt.op, n, len(a))
		}
	}
	if op == 6 {
		count(2)
		d.in.d, d.in.a = d.dst(a[0], U32), d.src(a[1], B64)
		d.alu(lift1(func(a uint64) uint64 { return a & mbCount }))
		return
	}
	x.space = []space{spGeneric, spShared, spShared}[d.oneOf("shared", "shared::cta")+1]
	object := func(o operand) {
		d.in.a, x.off, x.space = d.mem(o, x.space)
		if x.space != spGeneric && x.space != spShared {
			d.fail("%s needs shared memory", d.stmt.op)
		}
	}
	switch op {
	case 0:
		count(2)
		object(a[0])
		d.in.b = d.src(a[1], U32)
		d.run(func(w *warp, in *inst, m uint32) {
			w.requireWritten(in, m, in.b)
			w.eachObject(in, m, false, func(l, off int, _ uint64) uint64 {
				n := w.r[in.b][l] & 0xffffffff
				if n == 0 || n > mbCount {
					w.fault(OutOfBounds, in, l, "an mbarrier of %d arrivals (1 to %d)", n, mbCount)
				}
				fill(w.cta.shared.init[off:off+8], 1)
				return n | n<<mbShift
			})
		})
	case 1:
		count(1)
		object(a[0])
		d.run(func(w *warp, in *inst, m uint32) {
			w.eachObject(in, m, true, func(_, off int, v uint64) uint64 { clear(w.cta.shared.init[off : off+8]); return v })
		})
	case 2, 3:
		if d.modifier("noComplete") && len(a) != 3 {
			d.fail("%s needs a count", d.stmt.op)
		}
		if len(a) != 2 && len(a) != 3 {
			d.fail("%s takes a state, an object and perhaps a count", d.stmt.op)
		}
		x.n = -1
		if a[0].name != "_" {
			x.n = int(d.dst(a[0], B64))
		}
		object(a[1])
		d.in.b = d.constant(1)
		if len(a) == 3 {
			d.in.b = d.src(a[2], U32)
		}
		d.run(func(w *warp, in *inst, m uint32) {
			w.requireWritten(in, m, in.b)
			w.arriveAt(in, m, in.b, op == 3)
		})
	default:
		if op == 5 {
			d.require(90, 7, 8)
		}
		parity := d.modifier("parity")
		// With this form, the last operand is a time limit, which has no effect.
		if len(a) == 4 && op == 5 {
			d.src(a[3], U32)
			a = a[:3]
		}
		count(3)
		d.in.p = d.predicate(a[0])
		object(a[1])
		if d.in.b = 0; parity {
			d.in.b = d.src(a[2], U32)
		} else {
			d.in.b = d.src(a[2], B64)
		}
		d.run(func(w *warp, in *inst, m uint32) {
			w.requireWritten(in, m, in.b)
			var done uint32
			w.eachObject(in, m, true, func(l, off int, v uint64) uint64 {
				now, asked := v>>mbPhase, w.r[in.b][l]>>mbPhase
				if parity {
					asked = w.r[in.b][l]
				}
				if now&1 != asked&1 {
					done |= 1 << l
					w.mergeClocks(w.cta.shared.phases[off])
				}
				return v
			})
			w.setPred(in.p, done, m)
		})
	}
}

// eachObject replaces the mbarrier object of each lane of m by the result of f.
func (w *warp) eachObject(in *inst, m uint32, live bool, f func(l, off int, v uint64) uint64) {
	w.addresses(in, m)
	for l := range lanesOf(m) {
		if in.x.space == spGeneric {
			if w.addr[l]>>windowShift != winShared>>windowShift {
				w.faultAt(OutOfBounds, in, l, w.addr[l], "an mbarrier outside shared memory, at %#x", w.addr[l])
			}
			w.addr[l] &= winMask
		}
		off := w.sharedSpan(in, l, 8)
		if live {
			w.sharedReady(in, l, off, 8)
		}
		put(w.cta.shared.data[off:], 8, f(l, off, loadLE(w.cta.shared.data[off:], 8)))
	}
}

// arriveAt counts the arrivals of the lanes of m. Register slot n holds each lane's number of
// arrivals. The last expected arrival starts the next phase.
func (w *warp) arriveAt(in *inst, m uint32, n int32, drop bool) {
	s := &w.cta.shared
	if s.phases == nil {
		s.phases = map[int][]uint32{}
	}
	var states lanes
	w.eachObject(in, m, true, func(l, off int, v uint64) uint64 {
		states[l] = v
		pending, each, k := v&mbCount, v>>mbShift&mbCount, w.r[n][l]&0xffffffff
		if k == 0 || k > pending {
			w.fault(Deadlock, in, l, "%d arrivals at an mbarrier that expects %d more in this phase", k, pending)
		}
		if drop {
			each -= k
		}
		vc := s.phases[off]
		if vc == nil {
			vc = make([]uint32, len(w.cta.warps))
			s.phases[off] = vc
		}
		for i, t := range w.vc {
			vc[i] = max(vc[i], t)
		}
		phase := v >> mbPhase
		if pending -= k; pending == 0 {
			pending, phase = each, phase+1
		}
		return pending | each<<mbShift | phase<<mbPhase
	})
	w.vc[w.id]++
	if in.x.n >= 0 {
		w.write(int32(in.x.n), &states, m)
	}
}

// mergeClocks merges the clocks vc of warps that have arrived into this warp's clocks. This warp's
// later accesses are then ordered after the accesses that those warps made before they arrived.
func (w *warp) mergeClocks(vc []uint32) {
	e := w.vc[w.id]
	for i, t := range vc {
		w.vc[i] = max(w.vc[i], t)
	}
	w.base, w.pair, w.unseen = e, nil, true
	w.vc[w.id] = max(e, w.vc[w.id]) + 1
}

// arriveCopies decodes cp.async.mbarrier.arrive[.noinc]: the lane arrives when its copies are done.
// The emulator completes the copies at this instruction, which the ISA allows.
func arriveCopies(d *decoder) {
	if !d.modifier("arrive") {
		d.fail("%s needs .arrive", d.stmt.op)
	}
	d.typIn(B64)
	noinc := d.modifier("noinc")
	x := d.extra()
	x.space = []space{spGeneric, spShared, spShared}[d.oneOf("shared", "shared::cta")+1]
	d.in.a, x.off, x.space = d.mem(d.args(1)[0], x.space)
	if x.space != spGeneric && x.space != spShared {
		d.fail("%s needs shared memory", d.stmt.op)
	}
	x.n = -1
	one := d.constant(1)
	d.run(func(w *warp, in *inst, m uint32) {
		w.waitCopies(m, 0, true)
		if !noinc {
			w.eachObject(in, m, true, func(l, _ int, v uint64) uint64 {
				if v&mbCount == mbCount {
					w.fault(OutOfBounds, in, l, "an mbarrier of more than %d arrivals", mbCount)
				}
				return v + 1
			})
		}
		w.arriveAt(in, m, one, false)
	})
}
