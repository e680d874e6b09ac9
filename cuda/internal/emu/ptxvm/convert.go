package ptxvm

import "math"

// rootRcp decodes sqrt and rcp, correctly rounded or approximate.
func rootRcp(d *decoder) {
	t := d.typIn(F32, F64)
	d.da(t)
	mode := d.oneOf("rn", "approx", "rz", "rm", "rp")
	ftz := d.modifier("ftz")
	root := d.base == "sqrt"
	switch {
	case t == F64 && mode == 0 && !ftz && root:
		d.alu(lift1(func(a uint64) uint64 { return u64(math.Sqrt(f64(a))) }))
	case t == F64 && mode == 0 && !ftz:
		d.alu(lift1(func(a uint64) uint64 { return u64(1 / f64(a)) }))
	case t == F32 && mode == 0 && root:
		d.alu(liftF32(func(a, _, _ float32) float32 { return float32(math.Sqrt(float64(a))) }, ftz, false))
	case t == F32 && mode == 0:
		d.alu(liftF32(func(a, _, _ float32) float32 { return 1 / a }, ftz, false))
	case t == F32 && mode == 1 && root:
		d.alu(liftF32(func(a, _, _ float32) float32 { return sqrtApprox(a) }, ftz, false))
	case t == F32 && mode == 1:
		d.alu(liftF32(func(a, _, _ float32) float32 { return rcpApprox(a) }, ftz, false))
	case t == F32 && mode > 1 && root:
		d.alu(liftF32(root32(rounding(mode-1)), ftz, false))
	case t == F32 && mode > 1:
		d.alu(liftF32(reciprocal32(rounding(mode-1)), ftz, false))
	case t == F64 && mode > 1 && root && !ftz:
		d.alu(liftF64(root64(rounding(mode - 1))))
	case t == F64 && mode > 1 && !ftz:
		d.alu(liftF64(func(a, _, _ float64) float64 { return divide64(rounding(mode-1))(1, a, 0) }))
	case t == F64 && mode == 1 && !root && ftz:
		d.alu(liftF64(upperHalf64(func(x float64) float64 { return 1 / x })))
	default:
		d.fail("%s: there is no such form (a rounding, or .approx for .f32, or rcp.approx.ftz.f64)", d.stmt.op)
	}
}

var approxF32 = map[string]func(float32) float32{
	"rsqrt": rsqrtApprox, "ex2": ex2Approx, "lg2": lg2Approx, "sin": sinApprox, "cos": cosApprox, "tanh": tanhApprox,
}

func approximate(d *decoder) {
	if !d.modifier("approx") {
		d.fail("%s needs .approx", d.stmt.op)
	}
	f := approxF32[d.base]
	t := d.typ()
	ftz := d.modifier("ftz")
	if d.base == "tanh" {
		d.require(75, 7, 0)
		if ftz {
			d.fail("%s: tanh has no .ftz", d.stmt.op)
		}
	}
	d.da(t)
	if t == F32 {
		d.alu(liftF32(func(a, _, _ float32) float32 { return f(a) }, ftz, false))
		return
	}
	if t == F64 && d.base == "rsqrt" {
		f := func(x float64) float64 {
			if x == 0 {
				return 1 / x
			}
			return 1 / math.Sqrt(x)
		}
		if ftz {
			d.alu(liftF64(upperHalf64(f)))
		} else {
			d.alu(liftF64(func(a, _, _ float64) float64 { return f(a) }))
		}
		return
	}
	if d.base != "ex2" && d.base != "tanh" {
		d.noType(t)
	}
	var op func(a, b, c uint64) uint64
	switch t {
	case F16, F16x2:
		d.require(75, 7, 0)
		if ftz {
			d.fail("%s: .ftz does not go with .%s", d.stmt.op, t)
		}
		op = func(a, _, _ uint64) uint64 { return toF16(f(f16(a & 0xffff))) }
	case BF16, BF16x2:
		d.require(90, 7, 8)
		if d.base == "ex2" && !ftz {
			d.fail("%s needs .ftz", d.stmt.op)
		}
		op = func(a, _, _ uint64) uint64 { return toBF16(f(bf16(a & 0xffff))) }
	default:
		d.noType(t)
	}
	if t.Size() == 4 {
		op = pair(op)
	}
	d.alu(lift3(op))
}

// convert decodes cvt. The modifiers come in this order: rounding, .ftz, .sat, .relu, destination
// type, source type.
func convert(d *decoder) {
	if d.modifier("pack") {
		convertPack(d)
		return
	}
	st := d.typ()
	dt := d.typ()
	var mode rounding
	hasRound, integral := false, false
	if i := d.oneOf("rn", "rz", "rm", "rp", "rna"); i >= 0 {
		mode, hasRound = rounding(i), true
	} else if i := d.oneOf("rni", "rzi", "rmi", "rpi"); i >= 0 {
		mode, integral = rounding(i), true
	}
	ftz, sat, relu := d.modifier("ftz"), d.modifier("sat"), d.modifier("relu")
	if dt == F16x2 || dt == BF16x2 {
		convertPair(d, dt, st, mode, hasRound, ftz || sat, relu)
		return
	}
	if ftz && dt != F32 && st != F32 {
		d.fail("%s: .ftz needs .f32", d.stmt.op)
	}
	if dt == TF32 {
		d.require(80, 7, 0)
		if st != F32 || ftz || sat || mode == rm || mode == rp || integral {
			d.fail("%s is not supported (.rna, .rn and .rz from .f32 are)", d.stmt.op)
		}
	}
	if relu && (st != F32 || mode > rz || ftz || sat) {
		d.fail("%s: .relu needs .rn or .rz from .f32", d.stmt.op)
	}
	if (dt == BF16 || st == BF16) && (sat || st.Size() == 1 || dt.Size() == 1) {
		d.fail("%s is not supported", d.stmt.op)
	}
	if dt == BF16 || st == BF16 {
		if dt == F32 || st == F32 {
			d.require(80, 7, 0)
			if st == BF16 {
				d.require(80, 7, 1)
			}
			if st == BF16 && ftz {
				d.require(80, 7, 8)
			}
		} else {
			d.require(90, 7, 8)
		}
	}
	for _, t := range []Type{st, dt} {
		if t == Pred || t.untyped() || t == F16x2 || t == BF16x2 || t == TF32 && t == st {
			d.noType(t)
		}
	}
	a := d.args(2)
	in := d.in
	var wt Type
	in.d, wt = d.reg(a[0], dt, true)
	in.a = d.source(a[1], st, true)
	if relu && dt != F16 && dt != BF16 && dt != TF32 {
		d.fail("%s: .relu needs a 16-bit or tf32 result", d.stmt.op)
	}
	var f func(uint64) uint64
	switch {
	case !st.float() && !dt.float():
		if hasRound || integral || ftz {
			d.fail("%s: rounding or .ftz on an integer conversion", d.stmt.op)
		}
		if sat && (dt.Size() > st.Size() && (dt.signed() || st.unsigned()) || dt.Size() == st.Size() && dt.signed() == st.signed()) {
			d.fail("%s: .sat on a conversion that cannot overflow", d.stmt.op)
		}
		if fast := intConvert(st, dt, wt, sat); fast != nil {
			d.alu(fast)
			return
		}
		f = convertInt(st, dt, sat)
	case !st.float():
		if !hasRound || mode == rna {
			d.fail("%s needs .rn, .rz, .rm or .rp", d.stmt.op)
		}
		out, ext := formats[dt], signReader(st)
		f = func(a uint64) uint64 { return out.fromInt(ext(a), st.signed(), mode) }
		if st == S32 && dt == F32 && mode == rn {
			f = func(a uint64) uint64 { return u32(float32(int32(a))) }
		} else if st == U32 && dt == F32 && mode == rn {
			f = func(a uint64) uint64 { return u32(float32(uint32(a))) }
		}
		if sat {
			g := f
			f = func(a uint64) uint64 { return saturate(g(a), dt) }
		}
	case !dt.float():
		if !integral {
			d.fail("%s needs .rni, .rzi, .rmi or .rpi", d.stmt.op)
		}
		dec := decodeFloat(st)
		f = func(a uint64) uint64 {
			x := dec(a)
			if ftz && st == F32 {
				x = float64(ftz32(float32(x)))
			}
			return toInt(x, st, dt, mode)
		}
	default:
		f = convertFloat(d, st, dt, mode, hasRound, integral, ftz, sat, relu)
	}
	if wt.Size() > dt.Size() && dt.signed() { // a wider register gets the result sign-extended
		g, n, m := f, dt.bits(), wt.mask()
		f = func(a uint64) uint64 { return uint64(signExtend(g(a), n)) & m }
	}
	d.alu(lift1(f))
}

func signReader(t Type) func(uint64) uint64 {
	n, m := t.bits(), t.mask()
	if t.signed() {
		return func(a uint64) uint64 { return uint64(signExtend(a, n)) }
	}
	return func(a uint64) uint64 { return a & m }
}

// intConvert returns a fast implementation of a frequent integer conversion, or nil for other
// conversions.
func intConvert(st, dt, wt Type, sat bool) laneFn {
	if sat || wt.Size() != dt.Size() {
		return nil
	}
	switch {
	case dt.Size() == 8 && st == U32, dt.Size() == 4 && (st.Size() == 4 || st.Size() == 8):
		return zext32
	case dt.Size() == 8 && st == S32:
		return sext32
	case dt.Size() == 8 && st.Size() == 8:
		return movLanes
	}
	return nil
}

func convertInt(st, dt Type, sat bool) func(uint64) uint64 {
	ext, m := signReader(st), dt.mask()
	if !sat {
		return func(a uint64) uint64 { return ext(a) & m }
	}
	return func(a uint64) uint64 {
		v := ext(a)
		neg := st.signed() && int64(v) < 0
		if dt.signed() {
			hi := m >> 1
			switch {
			case neg && int64(v) < -int64(hi)-1:
				return hi + 1
			case !neg && v > hi:
				return hi
			}
			return v & m
		}
		if neg {
			return 0
		}
		return min(v, m)
	}
}

// saturate clamps a float to [0, 1].
func saturate(v uint64, t Type) uint64 {
	x := decodeFloat(t)(v)
	switch {
	case x >= 1:
		return formats[t].fromF64(1, rn)
	case x > 0:
		return v
	}
	return 0
}

func convertFloat(d *decoder, st, dt Type, mode rounding, hasRound, integral, ftz, sat, relu bool) func(uint64) uint64 {
	narrows := formats[dt].prec < formats[st].prec || dt == BF16 && st == F16 || dt == F16 && st == BF16
	// between these types, .rn may be omitted
	if st != dt && mode != rna && (st == BF16 || st == F16 && dt == BF16) {
		if narrows && !hasRound {
			hasRound = true
		} else if !narrows {
			hasRound, mode = false, rn
		}
	}
	if narrows && !hasRound {
		d.fail("%s needs a rounding modifier", d.stmt.op)
	}
	if !narrows && hasRound {
		d.fail("%s: rounding modifier on a conversion that does not round", d.stmt.op)
	}
	if mode == rna && dt != TF32 {
		d.fail("%s: .rna needs .tf32", d.stmt.op)
	}
	if dt == TF32 && mode != rna {
		d.require(90, 7, 8)
	}
	if integral && st != dt {
		d.fail("%s: rounding to an integral value needs equal types", d.stmt.op)
	}
	out, dec := formats[dt], decodeFloat(st)
	f := func(a uint64) uint64 {
		x := dec(a)
		if ftz && st == F32 {
			x = float64(ftz32(float32(x)))
		}
		if integral {
			x = roundIntegral(x, mode)
		}
		v := out.fromF64(x, mode)
		if ftz && dt == F32 {
			v = u32(ftz32(f32(v)))
		}
		if sat {
			v = saturate(v, dt)
		}
		if relu && x == x && v>>(out.prec+out.ebits-1+out.low) != 0 {
			v = 0
		}
		return v
	}
	if ftz || integral || sat || relu {
		return f
	}
	switch {
	case st == F16 && dt == F32:
		return func(a uint64) uint64 { return u32(canon(f16(a & 0xffff))) }
	case st == BF16 && dt == F32:
		return func(a uint64) uint64 { return u32(canon(bf16(a & 0xffff))) }
	case st == F32 && dt == F16 && mode == rn:
		return func(a uint64) uint64 { return toF16(f32(a)) }
	case st == F32 && dt == BF16 && mode == rn:
		return func(a uint64) uint64 { return toBF16(f32(a)) }
	case st == F32 && dt == F64:
		return func(a uint64) uint64 { return u64(float64(f32(a))) }
	case st == F64 && dt == F32 && mode == rn:
		return func(a uint64) uint64 { return u32(canon(float32(f64(a)))) }
	}
	return f
}

// convertPair decodes cvt.rn.f16x2.f32 d, a, b and cvt.rn.bf16x2.f32 d, a, b. Operand a becomes the
// upper half of d.
func convertPair(d *decoder, dt, st Type, mode rounding, hasRound, other, relu bool) {
	d.require(80, 7, 0)
	if st != F32 || !hasRound || mode > rz || other {
		d.fail("%s is not supported (.rn or .rz from .f32 is)", d.stmt.op)
	}
	a := d.args(3)
	d.in.d, d.in.a, d.in.b = d.dst(a[0], dt), d.src(a[1], F32), d.src(a[2], F32)
	out := fmtF16
	if dt == BF16x2 {
		out = fmtBF16
	}
	one := func(a uint64) uint64 {
		var v uint64
		switch {
		case mode == rz:
			v = out.fromF64(float64(f32(a)), mode)
		case dt == BF16x2:
			v = toBF16(f32(a))
		default:
			v = toF16(f32(a))
		}
		if relu && v&0x8000 != 0 && !isNaN32(f32(a)) {
			v = 0
		}
		return v
	}
	d.alu(lift2(func(a, b uint64) uint64 { return one(a)<<16 | one(b) }))
}

// convertAddress decodes cvta and cvta.to, which convert between addresses of a state space and
// generic addresses.
func convertAddress(d *decoder) {
	d.typIn(U64)
	to := d.modifier("to")
	sp := d.oneOf("global", "shared", "local", "const", "param")
	if sp < 0 {
		d.fail("%s lacks a state space", d.stmt.op)
	}
	if sp == 4 {
		d.require(70, 7, 7)
	}
	a := d.args(2)
	d.in.d, d.in.a = d.dst(a[0], U64), d.src(a[1], U64)
	win := [...]uint64{0, winShared, winLocal, winConst, winParam}[sp]
	switch {
	case sp == 0:
		d.alu(movLanes)
	case to:
		d.alu(lift1(func(a uint64) uint64 { return a - win }))
	default:
		d.alu(lift1(func(a uint64) uint64 { return a + win }))
	}
}
