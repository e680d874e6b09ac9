package ptx

// Rounding says how a conversion rounds.
type Rounding uint8

// These are the ways to round: to the nearest with ties to even, toward zero, down, up, and to the
// nearest with ties away from zero (Away). They also determine the result of a conversion to an
// integer, or to an integral float. Away exists for TF32 only.
const (
	NearestEven Rounding = iota
	TowardZero
	Down
	Up
)

var (
	floatRounding = [...]string{"rn", "rz", "rm", "rp"}
	intRounding   = [...]string{"rni", "rzi", "rmi", "rpi"}
)

// Cvt converts v to type t. Conversions to floats round to nearest even. A conversion from float to
// integer truncates, saturates at the limits of t, and gives 0 for NaN. A conversion to a narrower
// integer type drops the upper bits. A conversion to a wider type fills the new bits with the sign
// if v's type is signed, otherwise with zeros. There is no conversion from or to Pred: use Select
// and Ne.
func (v Value) Cvt(t Type) Value {
	if v.t.IsFloat() && t.IsInt() {
		return v.CvtRound(t, TowardZero)
	}
	return v.CvtRound(t, NearestEven)
}

// CvtRound converts like Cvt with the given rounding.
func (v Value) CvtRound(t Type, r Rounding) Value {
	b := v.b
	if !b.check("cvt", v) {
		return b.poison(t)
	}
	from, to := v.t, t
	if from == to {
		return v
	}
	bad := func() Value {
		b.fail("cvt from %v to %v is not defined", from, to)
		return b.poison(to)
	}
	if from == Pred || to == Pred || typeTable[from].kind == kindBits || typeTable[to].kind == kindBits || to == Invalid {
		return bad()
	}
	switch {
	case from.IsFloat() && to.IsFloat():
		return v.cvtFloat(to, r)
	case from == BF16:
		return v.cvtFloat(F32, NearestEven).CvtRound(to, r)
	case from.IsFloat() && to.IsInt():
		if to.Bits() == 8 {
			// The instruction cvt would put an 8-bit result into the low byte of a wider register.
			// This code converts to 32 bits and clamps instead.
			lo, hi := Int(0), Int(255)
			if to.IsSigned() {
				lo, hi = -128, 127
			}
			return v.CvtRound(S32, r).Max(lo).Min(hi).Bitcast(to.register())
		}
		return b.emit("cvt."+intRounding[r], to, from, to, v)
	case from.IsInt() && to.IsFloat():
		if to == BF16 || to == F16 && from.Bits() == 64 {
			return v.CvtRound(F32, r).cvtFloat(to, r)
		}
		return b.emit("cvt."+floatRounding[r], to, from, to, v)
	}
	// both types are integers
	if to.Bits() == 8 {
		if from.Bits() != 32 {
			v = v.CvtRound(S32, r)
		}
		if to == U8 {
			return v.Bitcast(U32).And(Int(0xff))
		}
		return v.Bitcast(S32).Shl(Int(24)).Shr(Int(24))
	}
	if from.Bits() == to.Bits() {
		return v.Bitcast(to)
	}
	return b.emit("cvt", to, from, to, v)
}

func (v Value) cvtFloat(to Type, r Rounding) Value {
	b := v.b
	rn := "cvt." + floatRounding[r]
	switch {
	case v.t == BF16:
		// A bfloat16 is the upper half of a float32. The conversion instruction would need PTX 7.1.
		w := v.Bitcast(U16).Cvt(U32).Shl(Int(16)).Bitcast(F32)
		if to == F32 {
			return w
		}
		return w.CvtRound(to, r)
	case to == BF16:
		if v.t != F32 {
			v = v.cvtFloat(F32, r)
		}
		return b.emit(rn, BF16, F32, BF16, v)
	case to.Bits() > v.t.Bits():
		return b.emit("cvt", to, v.t, to, v) // the conversion is exact
	}
	return b.emit(rn, to, v.t, to, v)
}

// Round rounds a float to an integral value of its type.
func (v Value) Round(r Rounding) Value {
	if v.r != nil && v.t != F32 && v.t != F64 {
		v.b.fail("round is not defined for %v", v.t)
		return v.b.poison(v.t)
	}
	if !v.b.check("round", v) {
		return v.b.poison(v.t)
	}
	return v.b.emit("cvt."+intRounding[r], v.t, v.t, v.t, v)
}

// Floor rounds down to an integral value.
func (v Value) Floor() Value { return v.Round(Down) }

// Ceil rounds up to an integral value.
func (v Value) Ceil() Value { return v.Round(Up) }

// Trunc rounds toward zero to an integral value.
func (v Value) Trunc() Value { return v.Round(TowardZero) }

// RoundEven rounds to the nearest integral value, ties to even.
func (v Value) RoundEven() Value { return v.Round(NearestEven) }

// TF32 rounds a float32 to the 10-bit mantissa of the tensor cores' tf32 format (to nearest, ties
// away from zero). The result still has 32 bits.
func (v Value) TF32() Value {
	b := v.b
	if !b.check("cvt.tf32", v) {
		return b.poison(B32)
	}
	if v.t != F32 {
		b.fail("cvt.rna.tf32 is not defined for %v", v.t)
		return b.poison(B32)
	}
	out := b.result(B32)
	b.add(&node{op: "cvt.rna.tf32.f32", dst: []*register{out.r}, args: []*register{v.r}, effect: pure})
	return out
}

// Pack2 rounds two float32 values to the type half (F16 or BF16) and packs them into one 32-bit
// register, with lo in the lower bits.
func (b *Builder) Pack2(half Type, lo, hi Value) Value {
	if !b.check("cvt.x2", lo, hi) {
		return b.poison(B32)
	}
	if lo.t != F32 || hi.t != F32 || half != F16 && half != BF16 {
		b.fail("packing %v and %v into %vx2 is not defined", lo.t, hi.t, half)
		return b.poison(B32)
	}
	out := b.result(B32)
	b.add(&node{op: "cvt.rn." + half.String() + "x2.f32", dst: []*register{out.r},
		args: []*register{hi.r, lo.r}, effect: pure})
	return out
}

// Bitcast returns v's bits as another type of the same width. It costs no instruction.
func (v Value) Bitcast(t Type) Value {
	if !v.b.check("bitcast", v) {
		return v.b.poison(t)
	}
	if v.t.Bits() != t.Bits() || (v.t == Pred) != (t == Pred) {
		v.b.fail("bitcast from %v to %v: widths differ", v.t, t)
		return v.b.poison(t)
	}
	if v.r.konst {
		return v.b.constant(t, v.r.bits)
	}
	return Value{v.b, v.r, t}
}

// Join combines two halves into a value of type t.
func (b *Builder) Join(t Type, lo, hi Value) Value {
	if !b.check("join", lo, hi) {
		return b.poison(t)
	}
	if lo.t.Bits()*2 != t.Bits() || hi.t.Bits()*2 != t.Bits() || lo.t.Bits() < 16 {
		b.fail("join of %v and %v into %v: widths differ", lo.t, hi.t, t)
		return b.poison(t)
	}
	v := b.result(t)
	b.add(&node{op: "mov", t: t.bitsType(), form: formPack, dst: []*register{v.r},
		args: []*register{lo.r, hi.r}, effect: pure})
	return v
}

// Split returns the two halves of v as values of type t, the lower half first.
func (v Value) Split(t Type) (lo, hi Value) {
	b := v.b
	if !b.check("split", v) {
		return b.poison(t), b.poison(t)
	}
	if t.Bits()*2 != v.t.Bits() || t.Bits() < 16 {
		b.fail("split of %v into two %v: widths differ", v.t, t)
		return b.poison(t), b.poison(t)
	}
	lo, hi = b.result(t), b.result(t)
	b.add(&node{op: "mov", t: v.t.bitsType(), form: formUnpack, dst: []*register{lo.r, hi.r},
		args: []*register{v.r}, effect: pure})
	return lo, hi
}
