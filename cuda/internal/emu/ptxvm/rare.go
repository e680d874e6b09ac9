package ptxvm

import "math/bits"

// Instructions that few kernels use.

// multiplyCarry decodes mad.lo|hi.cc and madc.lo|hi[.cc]: one half of the product, plus c, plus the
// carry.
func multiplyCarry(d *decoder) {
	t := d.typIn(U32, S32, U64, S64)
	in, out := d.base == "madc", d.modifier("cc")
	half := d.oneOf("lo", "hi")
	if half < 0 {
		d.fail("%s needs .lo or .hi", d.stmt.op)
	}
	d.dabc(t)
	wide := t.Size() == 8
	d.run(func(w *warp, i *inst, m uint32) {
		w.requireWritten(i, m, i.a, i.b, i.c)
		a, b, c := w.r[i.a], w.r[i.b], w.r[i.c]
		r := w.dest(i.d, m)
		for l := range lanesOf(m) {
			var cin uint64
			if in {
				cin = uint64(w.cc >> l & 1)
			}
			p := a[l] * b[l] & t.mask()
			if half == 1 {
				p = mulHi(a[l], b[l], t)
			}
			v, carry := bits.Add64(p, c[l], cin)
			if !wide {
				carry, v = v>>32&1, uint64(uint32(v))
			}
			r[l] = v
			if out {
				w.cc = w.cc&^(1<<l) | uint32(carry)<<l
			}
		}
	})
}

// dotProduct2 decodes dp2a.lo|hi: two 16-bit values of a times the lower or upper two bytes of b.
func dotProduct2(d *decoder) {
	bt, at := d.typIn(U32, S32), d.typIn(U32, S32)
	half := d.oneOf("lo", "hi")
	if half < 0 {
		d.fail("%s needs .lo or .hi", d.stmt.op)
	}
	ot := U32
	if at == S32 || bt == S32 {
		ot = S32
	}
	a := d.args(4)
	d.in.d, d.in.a, d.in.b, d.in.c = d.dst(a[0], ot), d.src(a[1], at), d.src(a[2], bt), d.src(a[3], ot)
	ext := func(v uint64, n int, t Type) int64 {
		if t == S32 {
			return signExtend(v, n)
		}
		return int64(v & (1<<n - 1))
	}
	d.alu(lift3(func(a, b, c uint64) uint64 {
		s := int64(c)
		for i := range 2 {
			s += ext(a>>(16*i), 16, at) * ext(b>>(16*half+8*i), 8, bt)
		}
		return uint64(uint32(s))
	}))
}

// bitMask decodes bmsk.clamp|wrap.b32 d, a, b. In the result, the b bits from bit a on are 1.
func bitMask(d *decoder) {
	d.require(70, 7, 6)
	d.typIn(B32)
	mode := d.oneOf("clamp", "wrap")
	if mode < 0 {
		d.fail("%s needs .clamp or .wrap", d.stmt.op)
	}
	a := d.args(3)
	d.in.d, d.in.a, d.in.b = d.dst(a[0], B32), d.src(a[1], U32), d.src(a[2], U32)
	d.alu(lift2(func(a, b uint64) uint64 {
		a, b = a&0xffffffff, b&0xffffffff
		if mode == 1 {
			a, b = a&31, b&31
		}
		return uint64(uint32((uint64(1)<<min(b, 32) - 1) << min(a, 32)))
	}))
}

// signOrZeroExtend decodes szext.clamp|wrap.u32|s32 d, a, b. The result is the lower b bits of a,
// extended.
func signOrZeroExtend(d *decoder) {
	d.require(70, 7, 6)
	t := d.typIn(U32, S32)
	mode := d.oneOf("clamp", "wrap")
	if mode < 0 {
		d.fail("%s needs .clamp or .wrap", d.stmt.op)
	}
	a := d.args(3)
	d.in.d, d.in.a, d.in.b = d.dst(a[0], t), d.src(a[1], t), d.src(a[2], U32)
	d.alu(lift2(func(a, n uint64) uint64 {
		n &= 0xffffffff
		if mode == 1 {
			n &= 31
		}
		switch {
		case n >= 32:
			return a
		case n == 0:
			return 0
		case t == S32:
			return uint64(uint32(signExtend(a, int(n))))
		}
		return a & (1<<n - 1)
	}))
}

// findSet decodes fns.b32 d, mask, base, offset. The result is the index of the offset-th set bit
// of mask, counted from base on, upwards or downwards.
func findSet(d *decoder) {
	d.require(30, 6, 0)
	d.typIn(B32)
	a := d.args(4)
	d.in.d, d.in.a, d.in.b, d.in.c = d.dst(a[0], B32), d.src(a[1], B32), d.src(a[2], B32), d.src(a[3], S32)
	d.alu(lift3(func(mask, base, offset uint64) uint64 {
		n, step := int(int32(offset)), 1
		if n < 0 {
			n, step = -n, -1
		}
		if n == 0 {
			if mask>>(base&31)&1 != 0 {
				return base & 31
			}
			return 0xffffffff
		}
		for i := int(base & 31); i >= 0 && i < 32; i += step {
			if mask>>i&1 != 0 {
				if n--; n == 0 {
					return uint64(i)
				}
			}
		}
		return 0xffffffff
	}))
}

// convertPack decodes cvt.pack.sat.type.s32[.b32] d, a, b[, c]. The saturated a and b become the
// low bits of d. The upper bits are those of c, shifted up.
func convertPack(d *decoder) {
	d.require(72, 6, 5)
	args := d.stmt.args
	withC := d.modifier("b32")
	if !d.modifier("sat") || len(d.mods) != 2 || d.mods[1] != "s32" {
		d.fail("%s needs .sat and .s32", d.stmt.op)
	}
	t, ok := typeByName[d.mods[0]]
	d.mods = nil
	if !ok || withC != (t.Size() == 1) || t != U16 && t != S16 && t != U8 && t != S8 {
		d.fail("%s: .u16 and .s16 go without, .u8 and .s8 with .b32", d.stmt.op)
	}
	n := 3
	if withC {
		n = 4
	}
	d.args(n)
	d.in.d, d.in.a, d.in.b = d.dst(args[0], U32), d.src(args[1], S32), d.src(args[2], S32)
	if withC {
		d.in.c = d.src(args[3], B32)
	}
	f := convertInt(S32, t, true)
	w := t.bits()
	d.alu(lift3(func(a, b, c uint64) uint64 { return uint64(uint32(c<<(2*w) | f(a)<<w | f(b))) }))
}

// setHalf decodes set of 16-bit floats. For each float of a pair, the result is 1.0 or all ones if
// the comparison is true, and 0 otherwise.
func setHalf(d *decoder) {
	st := d.typIn(F16, F16x2, BF16, BF16x2)
	dt := d.typ()
	i := d.oneOf(cmpOps...)
	if i < 0 {
		d.fail("%s lacks a comparison", d.stmt.op)
	}
	one, yes := F16, uint64(0xffff)
	if st == BF16 || st == BF16x2 {
		d.require(90, 7, 8)
		one = BF16
	}
	pairs := st.Size() == 4
	switch {
	case dt == st && one == F16:
		yes = 0x3c00
	case dt == st:
		yes = 0x3f80
	case (dt == U32 || dt == S32) && !pairs:
		yes = 0xffffffff
	case dt != U32 && dt != S32 && (pairs || dt != U16 && dt != S16):
		d.fail("%s: a result of type .%s is not supported", d.stmt.op, dt)
	}
	f := cmpFloat(cmpOps[i], one, one == F16 && d.modifier("ftz"))
	if f == nil {
		d.fail("%s: comparison .%s of type .%s is not supported", d.stmt.op, cmpOps[i], st)
	}
	a := d.combination(d.stmt.args, 3)
	in := d.in
	in.d, in.a, in.b = d.dst(a[0], dt), d.src(a[1], st), d.src(a[2], st)
	d.run(func(w *warp, in *inst, m uint32) {
		w.requireWritten(in, m, in.a, in.b)
		var v lanes
		for k := range st.Size() / 2 {
			x, y := w.r[in.a], w.r[in.b]
			for l := range x {
				x[l], y[l] = x[l]>>(16*k)&0xffff, y[l]>>(16*k)&0xffff
			}
			bits := f(&x, &y)
			if in.x != nil && in.x.combine != combineNone {
				bits = combine(in.x.combine, bits, w.extraPred(in, m))
			}
			for l := range v {
				if bits>>l&1 != 0 {
					v[l] |= yes << (16 * k)
				}
			}
		}
		w.write(in.d, &v, m)
	})
}

// setPredicates decodes setp of a pair of 16-bit floats: p is for the lower half, q for the upper
// half.
func setPredicates(d *decoder, t Type) {
	i := d.oneOf(cmpOps...)
	if i < 0 {
		d.fail("%s lacks a comparison", d.stmt.op)
	}
	one := F16
	if t == BF16x2 {
		d.require(90, 7, 8)
		one = BF16
	}
	f := cmpFloat(cmpOps[i], one, one == F16 && d.modifier("ftz"))
	a := d.combination(d.stmt.args, 3)
	if f == nil || a[0].kind != okGroup {
		d.fail("%s: a comparison of floats and two predicates are needed, one a half", d.stmt.op)
	}
	dst := [2]int32{-1, -1}
	for k, n := range []string{a[0].name, a[0].pair} {
		if n != "_" {
			dst[k] = d.predicate(operand{kind: okWord, name: n})
		}
	}
	d.in.a, d.in.b = d.src(a[1], t), d.src(a[2], t)
	d.run(func(w *warp, in *inst, m uint32) {
		w.requireWritten(in, m, in.a, in.b)
		var c uint32
		if in.x != nil {
			c = w.extraPred(in, m)
		}
		for k, p := range dst {
			x, y := w.r[in.a], w.r[in.b]
			for l := range x {
				x[l], y[l] = x[l]>>(16*k)&0xffff, y[l]>>(16*k)&0xffff
			}
			v := f(&x, &y)
			if in.x != nil {
				v = combine(in.x.combine, v, c)
			}
			if p >= 0 {
				w.setPred(p, v, m)
			}
		}
	})
}
