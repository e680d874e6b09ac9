package ptx

// These are sets of types. An operation accepts the types of one or several sets.
const (
	ints    = 1 << iota // integers of 16, 32 and 64 bits
	floats              // the types f32 and f64
	bitwise             // types of integers and of bits
	preds
)

func (t Type) in(set int) bool {
	return set&ints != 0 && t.IsInt() && t.Bits() >= 16 ||
		set&floats != 0 && (t == F32 || t == F64) ||
		set&bitwise != 0 && (t.IsInt() && t.Bits() >= 16 || typeTable[t].kind == kindBits) ||
		set&preds != 0 && t == Pred
}

// apply emits an instruction with the operands v and others. The instruction is op, or floatOp if
// the operands are floats. All operands must have the type of v. This type must belong to one of
// the sets in the argument set.
func (v Value) apply(op, floatOp string, set int, others ...Operand) Value {
	b := v.b
	if b == nil {
		panic("ptx: " + op + " on the zero Value")
	}
	args := make([]Value, 1, 3)
	args[0] = v
	for _, o := range others {
		args = append(args, o.as(b, v.t))
	}
	if !b.sameType(op, args...) {
		return b.poison(v.t)
	}
	if !v.t.in(set) {
		b.fail("%s is not defined for %v", op, v.t)
		return b.poison(v.t)
	}
	t := v.t
	if set&bitwise != 0 {
		t = t.bitsType()
	}
	if t.IsFloat() {
		op = floatOp
	}
	return b.emit(op, t, Invalid, v.t, args...)
}

// Add returns v + o.
func (v Value) Add(o Operand) Value { return v.apply("add", "add.rn", ints|floats, o) }

// Sub returns v - o.
func (v Value) Sub(o Operand) Value { return v.apply("sub", "sub.rn", ints|floats, o) }

// Mul returns v·o. For integers it is the low half of the product.
func (v Value) Mul(o Operand) Value { return v.apply("mul.lo", "mul.rn", ints|floats, o) }

// MulHi returns the high half of the integer product v·o.
func (v Value) MulHi(o Operand) Value { return v.apply("mul.hi", "", ints, o) }

// Div returns v / o: correctly rounded for floats, truncated for integers. Integer division by zero
// does not fault; its value is unspecified.
func (v Value) Div(o Operand) Value { return v.apply("div", "div.rn", ints|floats, o) }

// Rem returns the remainder of the truncated integer division v / o.
func (v Value) Rem(o Operand) Value { return v.apply("rem", "", ints, o) }

// Mad returns the low half of v·o + c for integers. For floats use FMA, or Mul and Add, which round
// differently.
func (v Value) Mad(o, c Operand) Value { return v.apply("mad.lo", "", ints, o, c) }

// FMA returns v·o + c with one rounding.
func (v Value) FMA(o, c Operand) Value { return v.apply("fma", "fma.rn", floats, o, c) }

// MulWide returns the 64-bit product of two 32-bit integers.
func (v Value) MulWide(o Operand) Value { return v.wide("mul.wide", o) }

// MadWide returns v·o + c, with 32-bit v and o and 64-bit c.
func (v Value) MadWide(o Operand, c Value) Value { return v.wide("mad.wide", o, c) }

func (v Value) wide(op string, o Operand, c ...Value) Value {
	b := v.b
	t := U64
	if v.t == S32 {
		t = S64
	}
	w := o.as(b, v.t)
	if !b.sameType(op, v, w) || !b.check(op, c...) {
		return b.poison(t)
	}
	if v.t != U32 && v.t != S32 || len(c) == 1 && c[0].t != t {
		b.fail("%s is not defined for %v, %v", op, v.t, append([]Value{w}, c...)[len(c)].t)
		return b.poison(t)
	}
	return b.emit(op, v.t, Invalid, t, append([]Value{v, w}, c...)...)
}

// Neg returns -v. For an unsigned integer it is the two's complement.
func (v Value) Neg() Value {
	if v.t.IsUnsigned() {
		return v.b.constant(v.t, 0).Sub(v)
	}
	return v.apply("neg", "neg", ints|floats)
}

// Abs returns the absolute value of a signed integer or a float.
func (v Value) Abs() Value {
	if v.t.IsUnsigned() {
		v.b.fail("abs is not defined for %v", v.t)
		return v.b.poison(v.t)
	}
	return v.apply("abs", "abs", ints|floats)
}

// Sqrt returns the correctly rounded square root.
func (v Value) Sqrt() Value { return v.apply("sqrt", "sqrt.rn", floats) }

// Rcp returns the correctly rounded reciprocal.
func (v Value) Rcp() Value { return v.apply("rcp", "rcp.rn", floats) }

// Min returns the smaller operand. If exactly one operand is NaN, it returns the operand that is a
// number.
func (v Value) Min(o Operand) Value { return v.apply("min", "min", ints|floats, o) }

// Max returns the larger operand. If exactly one operand is NaN, it returns the operand that is a
// number.
func (v Value) Max(o Operand) Value { return v.apply("max", "max", ints|floats, o) }

// MinNaN returns the smaller operand, or NaN if either is NaN. For float64 there is no such
// instruction, so several instructions compute it.
func (v Value) MinNaN(o Operand) Value { return v.nanPropagating("min", o) }

// MaxNaN returns the larger operand, or NaN if either is NaN.
func (v Value) MaxNaN(o Operand) Value { return v.nanPropagating("max", o) }

func (v Value) nanPropagating(op string, o Operand) Value {
	if v.t.IsInt() {
		return v.apply(op, "", ints, o)
	}
	if v.t == F64 {
		w := o.as(v.b, F64)
		m := v.apply(op, op, floats, w)
		return v.Compare(Unordered, w).Select(v.Add(w), m)
	}
	return v.apply(op, op+".NaN", floats, o)
}

// The methods from here on are fast approximations for float32. Their error bounds are those of the
// PTX instructions.

// Ex2Approx returns 2^v within 2 ulp.
func (v Value) Ex2Approx() Value { return v.approx("ex2.approx") }

// Ex2ApproxFlushed does the same as Ex2Approx, with subnormal arguments and results flushed to 0
// (`.ftz`). It takes a quarter of the machine instructions.
func (v Value) Ex2ApproxFlushed() Value { return v.approx("ex2.approx.ftz") }

// Lg2Approx returns log2(v) with relative error 2^-22. For v near 1, 2^-22 is the bound of the
// absolute error instead.
func (v Value) Lg2Approx() Value { return v.approx("lg2.approx") }

// RcpApprox returns 1/v within 1 ulp.
func (v Value) RcpApprox() Value { return v.approx("rcp.approx") }

// RsqrtApprox returns 1/√v with relative error 2^-22.9.
func (v Value) RsqrtApprox() Value { return v.approx("rsqrt.approx") }

// SqrtApprox returns √v with relative error 2^-23.
func (v Value) SqrtApprox() Value { return v.approx("sqrt.approx") }

// SinApprox returns sin v with absolute error 2^-20.5 in [-2π, 2π]. Far outside of that interval
// the result is meaningless.
func (v Value) SinApprox() Value { return v.approx("sin.approx") }

// CosApprox returns cos v with the errors of SinApprox.
func (v Value) CosApprox() Value { return v.approx("cos.approx") }

// TanhApprox returns tanh v with relative error 2^-11.
func (v Value) TanhApprox() Value { return v.approx("tanh.approx") }

// DivApprox returns v/o within 2 ulp for 2^-126 ≤ |o| ≤ 2^126.
func (v Value) DivApprox(o Operand) Value { return v.approx("div.approx", o) }

func (v Value) approx(op string, o ...Operand) Value {
	if v.t != F32 && v.r != nil {
		v.b.fail("%s is not defined for %v", op, v.t)
		return v.b.poison(v.t)
	}
	return v.apply(op, op, floats, o...)
}

// And returns the bitwise conjunction. For predicates it is the logical conjunction.
func (v Value) And(o Operand) Value { return v.apply("and", "", bitwise|preds, o) }

// Or returns the bitwise disjunction. For predicates it is the logical disjunction.
func (v Value) Or(o Operand) Value { return v.apply("or", "", bitwise|preds, o) }

// Xor returns the bitwise exclusive disjunction. For predicates it is the logical exclusive
// disjunction.
func (v Value) Xor(o Operand) Value { return v.apply("xor", "", bitwise|preds, o) }

// Not returns the bitwise complement. For predicates it is the logical negation.
func (v Value) Not() Value { return v.apply("not", "", bitwise|preds) }

// Shl shifts v left by n, which has the type u32. The result is 0 if n is at least the width of v.
func (v Value) Shl(n Operand) Value { return v.shift("shl", n) }

// Shr shifts v right by n, which has the type u32. If v is signed, copies of its sign fill the
// upper bits.
func (v Value) Shr(n Operand) Value { return v.shift("shr", n) }

func (v Value) shift(op string, n Operand) Value {
	b := v.b
	amount := n.as(b, U32)
	if !b.check(op, v, amount) {
		return b.poison(v.t)
	}
	if !v.t.in(bitwise) || amount.t != U32 {
		b.fail("%s is not defined for %v by %v (the amount is u32)", op, v.t, amount.t)
		return b.poison(v.t)
	}
	t := v.t
	if op == "shl" {
		t = t.bitsType()
	}
	return b.emit(op, t, Invalid, v.t, v, amount)
}

// Popc returns the number of one bits, as u32.
func (v Value) Popc() Value { return v.count("popc", v.t.bitsType()) }

// Clz returns the number of leading zero bits, as u32.
func (v Value) Clz() Value { return v.count("clz", v.t.bitsType()) }

// FindHighest returns the index of the highest one bit of an unsigned v, as u32. For 0 it returns
// 0xffffffff.
func (v Value) FindHighest() Value { return v.count("bfind", v.t) }

func (v Value) count(op string, t Type) Value {
	if !v.b.check(op, v) {
		return v.b.poison(U32)
	}
	if v.t.Bits() < 32 || v.t.IsFloat() {
		v.b.fail("%s is not defined for %v", op, v.t)
		return v.b.poison(U32)
	}
	return v.b.emit(op, t, Invalid, U32, v)
}

// ReverseBits returns v with its bits in reverse order.
func (v Value) ReverseBits() Value {
	if v.r != nil && v.t.Bits() < 32 {
		v.b.fail("brev is not defined for %v", v.t)
		return v.b.poison(v.t)
	}
	return v.apply("brev", "", bitwise)
}

// ExtractBits returns a field of v's bits. The argument pos is the index of the field's lowest bit,
// and length is the number of its bits. Both have the type u32. The result is sign-extended if v is
// signed.
func (v Value) ExtractBits(pos, length Operand) Value {
	b := v.b
	p, n := pos.as(b, U32), length.as(b, U32)
	if !b.check("bfe", v, p, n) {
		return b.poison(v.t)
	}
	if !v.t.IsInt() || v.t.Bits() < 32 || p.t != U32 || n.t != U32 {
		b.fail("bfe is not defined for %v, %v, %v", v.t, p.t, n.t)
		return b.poison(v.t)
	}
	return b.emit("bfe", v.t, Invalid, v.t, v, p, n)
}

// Permute returns four bytes, selected from those of v and o. Each of the four low nibbles of sel
// is the index of a byte. Indices 0 to 3 are the bytes of v, lowest first, and 4 to 7 are the
// bytes of o. All values have 32 bits.
func (v Value) Permute(o, sel Operand) Value {
	b := v.b
	w, s := o.as(b, v.t), sel.as(b, U32)
	if !b.check("prmt", v, w, s) {
		return b.poison(v.t)
	}
	if v.t.Bits() != 32 || w.t.Bits() != 32 || s.t.Bits() != 32 {
		b.fail("prmt is not defined for %v, %v, %v", v.t, w.t, s.t)
		return b.poison(v.t)
	}
	return b.emit("prmt", B32, Invalid, v.t, v, w, s)
}
