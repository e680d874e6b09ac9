package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

func f64bits(v float64) uint64 { return math.Float64bits(v) }

// Encode returns the bits of v as an element of type t, in the low bytes. For floats v is rounded
// to nearest even. For 16-bit floats it is rounded to float32 first. For integers v is truncated
// and saturated.
func Encode(t dtype.Type, v float64) uint64 {
	switch t {
	case dtype.F64:
		return math.Float64bits(v)
	case dtype.F32:
		return uint64(math.Float32bits(float32(v)))
	case dtype.F16:
		return uint64(dtype.ToFloat16(float32(v)))
	case dtype.BF16:
		return uint64(dtype.ToBFloat16(float32(v)))
	case dtype.U8:
		return uint64(min(max(toInt(v, dtype.I64), 0), 255))
	case dtype.I8:
		return uint64(uint8(min(max(toInt(v, dtype.I64), -128), 127)))
	case dtype.I16:
		return uint64(uint16(min(max(toInt(v, dtype.I64), -32768), 32767)))
	}
	return convert(dtype.F64, t, math.Float64bits(v))
}

// Decode returns the value of an element of type t as a float64. Integers beyond 2⁵³ are rounded.
func Decode(t dtype.Type, b uint64) float64 {
	switch t {
	case dtype.F16:
		return float64(dtype.Float16(b).Float32())
	case dtype.BF16:
		return float64(dtype.BFloat16(b).Float32())
	}
	return math.Float64frombits(convert(t.Compute(), dtype.F64, Load(t, b)))
}

// Load converts the stored bits of an element of type t to the bits of the type in which t is
// computed.
func Load(t dtype.Type, b uint64) uint64 {
	switch t {
	case dtype.F16:
		return uint64(math.Float32bits(dtype.Float16(b).Float32()))
	case dtype.BF16:
		return uint64(math.Float32bits(dtype.BFloat16(b).Float32()))
	case dtype.Bool:
		return truth(uint8(b) != 0)
	case dtype.U8:
		return uint64(uint8(b))
	case dtype.I8:
		return uint64(uint32(int32(int8(b))))
	case dtype.I16:
		return uint64(uint32(int32(int16(b))))
	}
	return b
}

// Store converts bits of the type in which t is computed to the stored bits of type t. It rounds to
// a 16-bit float, or wraps to a narrow integer.
func Store(t dtype.Type, b uint64) uint64 {
	switch t {
	case dtype.F16:
		return uint64(dtype.ToFloat16(math.Float32frombits(uint32(b))))
	case dtype.BF16:
		return uint64(dtype.ToBFloat16(math.Float32frombits(uint32(b))))
	case dtype.U8, dtype.I8:
		return b & 0xff
	case dtype.I16:
		return b & 0xffff
	}
	return b
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Eval runs the program on one element. Its results define what every backend must return. The
// slice x holds the stored bits of the operands, params holds the bits of the scalars, and index is
// the element's position. Eval appends the results' stored bits to dst.
func (p *Program) Eval(dst, x, params []uint64, index int64) []uint64 {
	v := make([]uint64, len(p.Code))
	for i, c := range p.Code {
		switch c.Op {
		case OpX:
			v[i] = Load(p.In[c.Imm], x[c.Imm])
		case OpConst:
			v[i] = c.Imm
		case OpParam:
			v[i] = params[c.Imm]
		case OpIndex:
			v[i] = uint64(index)
			if c.Type == dtype.U32 {
				v[i] = uint64(uint32(index))
			}
		default:
			var a, b, d uint64
			switch c.Op.Arity() {
			case 3:
				a, b, d = v[c.A], v[c.B], v[c.C]
			case 2:
				a, b = v[c.A], v[c.B]
			case 1:
				a = v[c.A]
			}
			v[i] = c.apply(p.Code[c.A].Type, a, b, d)
		}
	}
	for k, o := range p.Outs {
		dst = append(dst, Store(p.Out[k], v[o]))
	}
	return dst
}

// Eval64 evaluates e in float64 for float64 operands.
func Eval64(e *Expr, x ...float64) float64 {
	in := make([]dtype.Type, len(x))
	b := make([]uint64, len(x))
	for i, v := range x {
		in[i], b[i] = dtype.F64, math.Float64bits(v)
	}
	p := MustLower([]*Expr{e}, []dtype.Type{dtype.F64}, in, -1)
	return math.Float64frombits(p.Eval(nil, b, nil, 0)[0])
}

// apply computes one primitive. The argument operandType is the type of the first operand.
func (in Instr) apply(operandType dtype.Type, a, b, c uint64) uint64 {
	op, t := in.Op, in.Type
	switch op {
	case OpPhilox:
		v := in.Draw().Value(a, b, int64(c))
		if t == dtype.U32 {
			return v & math.MaxUint32
		}
		return v
	case OpCvt:
		return convert(operandType, t, a)
	case OpBitcast:
		return a
	case OpSelect:
		if a != 0 {
			return b
		}
		return c
	case OpMulHi:
		return uint64(uint32(a)) * uint64(uint32(b)) >> 32
	}
	if op.IsCompare() {
		return compare(op, operandType, a, b)
	}
	switch t {
	case dtype.F32:
		return uint64(math.Float32bits(float32Op(op, fromBits32(a), fromBits32(b), fromBits32(c))))
	case dtype.F64:
		return math.Float64bits(float64Op(op, math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c)))
	case dtype.Bool:
		switch op {
		case OpAnd:
			return a & b
		case OpOr:
			return a | b
		case OpXor:
			return a ^ b
		case OpNot:
			return a ^ 1
		}
	case dtype.I32, dtype.U32, dtype.I64, dtype.U64:
		return intOp(op, t, a, b)
	}
	panic("expr: " + op.String() + " of " + t.String())
}

func fromBits32(b uint64) float32 { return math.Float32frombits(uint32(b)) }

func float32Op(op Op, a, b, c float32) float32 {
	switch op {
	case OpAdd:
		return a + b
	case OpSub:
		return a - b
	case OpMul:
		return a * b
	case OpDiv:
		return a / b
	case OpFMA:
		return FMA32(a, b, c)
	case OpSqrt:
		// Rounding the float64 root to float32 is correct, because float64 has at least 2·24+2
		// bits.
		return float32(math.Sqrt(float64(a)))
	case OpNeg:
		return math.Float32frombits(math.Float32bits(a) ^ 1<<31)
	case OpAbs:
		return math.Float32frombits(math.Float32bits(a) &^ (1 << 31))
	}
	// These operations are exact, so computing them in float64 gives the float32 result.
	return float32(float64Op(op, float64(a), float64(b), 0))
}

func float64Op(op Op, a, b, c float64) float64 {
	switch op {
	case OpAdd:
		return a + b
	case OpSub:
		return a - b
	case OpMul:
		return a * b
	case OpDiv:
		return a / b
	case OpFMA:
		return math.FMA(a, b, c)
	case OpNeg:
		return math.Float64frombits(math.Float64bits(a) ^ 1<<63)
	case OpAbs:
		return math.Abs(a)
	case OpMin:
		return min(a, b) // Go's min and max propagate NaN and order the zeros
	case OpMax:
		return max(a, b)
	case OpSqrt:
		return math.Sqrt(a)
	case OpFloor:
		return math.Floor(a)
	case OpTrunc:
		return math.Trunc(a)
	case OpRoundEven:
		return math.RoundToEven(a)
	}
	panic("expr: " + op.String() + " of a float")
}

// FMA32 returns a·b + c, rounded once. The product is exact in float64. The sum is rounded to odd
// in float64, so that rounding it to float32 gives the correctly rounded result (S. Boldo, G.
// Melquiond: Emulation of FMA and correctly rounded sums, 2008).
func FMA32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	u := math.Float64bits(s)
	// if the last bit of the sum is 1, the sum is not halfway between two float32 numbers
	if u&1 == 0 && s-s == 0 {
		t := s - p
		if e := (p - (s - t)) + (float64(c) - t); e != 0 {
			switch {
			case s == 0:
				return float32(e)
			case (e > 0) == (s > 0):
				u |= 1
			default:
				u--
			}
			s = math.Float64frombits(u)
		}
	}
	return float32(s)
}

func signed(t dtype.Type, a uint64) int64 {
	if t == dtype.I32 {
		return int64(int32(a))
	}
	return int64(a)
}

func intOp(op Op, t dtype.Type, a, b uint64) uint64 {
	wide := t.Size() == 8
	width := uint64(8 * t.Size())
	less := func() bool {
		if t.IsSigned() {
			return signed(t, a) < signed(t, b)
		}
		return a < b
	}
	var r uint64
	switch op {
	case OpAdd:
		r = a + b
	case OpSub:
		r = a - b
	case OpMul:
		r = a * b
	case OpNeg:
		r = -a
	case OpAbs:
		r = a
		if signed(t, a) < 0 {
			r = -a
		}
	case OpMin:
		r = b
		if less() {
			r = a
		}
	case OpMax:
		r = a
		if less() {
			r = b
		}
	case OpAnd:
		r = a & b
	case OpOr:
		r = a | b
	case OpXor:
		r = a ^ b
	case OpNot:
		r = ^a
	case OpShl:
		if b < width {
			r = a << b
		}
	case OpShr:
		switch {
		case t.IsSigned():
			r = uint64(signed(t, a) >> min(b, width-1))
		case b < width:
			r = a >> b
		}
	default:
		panic("expr: " + op.String() + " of an integer")
	}
	if !wide {
		r = uint64(uint32(r))
	}
	return r
}

func compare(op Op, t dtype.Type, a, b uint64) uint64 {
	var lt, eq, unordered bool
	switch {
	case t == dtype.F32 || t == dtype.F64:
		x, y := math.Float64frombits(a), math.Float64frombits(b)
		if t == dtype.F32 {
			x, y = float64(fromBits32(a)), float64(fromBits32(b))
		}
		lt, eq, unordered = x < y, x == y, x != x || y != y
	case t.IsSigned():
		lt, eq = signed(t, a) < signed(t, b), a == b
	default:
		lt, eq = a < b, a == b
	}
	switch op {
	case OpEq:
		return truth(eq)
	case OpNe:
		return truth(!eq)
	case OpLt:
		return truth(lt)
	case OpLe:
		return truth(lt || eq)
	case OpGt:
		return truth(!lt && !eq && !unordered)
	}
	return truth(!lt && !unordered)
}

// convert converts the bits of a value from type src to type dst. Both are types in which
// arithmetic is computed.
func convert(src, dst dtype.Type, a uint64) uint64 {
	if src == dst {
		return a
	}
	if dst == dtype.Bool {
		switch src {
		case dtype.F32:
			return truth(fromBits32(a) != 0)
		case dtype.F64:
			return truth(math.Float64frombits(a) != 0)
		}
		return truth(a != 0)
	}
	switch src {
	case dtype.F32, dtype.F64:
		v := math.Float64frombits(a)
		if src == dtype.F32 {
			v = float64(fromBits32(a))
		}
		switch dst {
		case dtype.F32:
			return uint64(math.Float32bits(float32(v)))
		case dtype.F64:
			return math.Float64bits(v)
		case dtype.U32, dtype.U64:
			return toUint(v, dst)
		}
		if r := toInt(v, dst); dst == dtype.I32 {
			return uint64(uint32(r))
		} else {
			return uint64(r)
		}
	case dtype.I32, dtype.I64, dtype.Bool:
		v := signed(src, a)
		switch dst {
		case dtype.F32:
			return uint64(math.Float32bits(float32(v)))
		case dtype.F64:
			return math.Float64bits(float64(v))
		}
		a = uint64(v)
	case dtype.U32, dtype.U64:
		switch dst {
		case dtype.F32:
			return uint64(math.Float32bits(float32(a)))
		case dtype.F64:
			return math.Float64bits(float64(a))
		}
	}
	if dst.Size() == 4 {
		return uint64(uint32(a))
	}
	return a
}

// toInt truncates v towards zero and saturates at the range of t (I32 or I64). NaN becomes 0. PTX's
// cvt.rzi does the same.
func toInt(v float64, t dtype.Type) int64 {
	w := 63
	if t == dtype.I32 {
		w = 31
	}
	lim := math.Ldexp(1, w)
	switch {
	case v != v:
		return 0
	case v >= lim:
		return 1<<w - 1
	case v < -lim:
		return -1 << w
	}
	return int64(v)
}

// toUint truncates v towards zero and saturates at the range of t (U32 or U64). NaN becomes 0.
func toUint(v float64, t dtype.Type) uint64 {
	switch {
	case v != v || v <= 0:
		return 0
	case t == dtype.U32 && v >= 1<<32:
		return math.MaxUint32
	case v >= 1<<64:
		return math.MaxUint64
	case v >= 1<<63:
		return uint64(int64(v-1<<63)) + 1<<63
	}
	return uint64(int64(v))
}
