package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// num and real are short names for the types of integer and float constants.
type (
	num  = ptx.Int
	real = ptx.Float
)

// storage returns the PTX type of an element of type t in memory.
func storage(t dtype.Type) ptx.Type {
	switch t {
	case dtype.Bool, dtype.U8:
		return ptx.U8
	case dtype.I8:
		return ptx.S8
	case dtype.I16:
		return ptx.S16
	case dtype.F16:
		return ptx.F16
	case dtype.BF16:
		return ptx.BF16
	}
	return computing(t)
}

// computing returns the type of a register that holds a value of type t, which must be a computing
// type.
func computing(t dtype.Type) ptx.Type {
	switch t {
	case dtype.Bool:
		return ptx.Pred
	case dtype.I32:
		return ptx.S32
	case dtype.I64:
		return ptx.S64
	case dtype.U32:
		return ptx.U32
	case dtype.U64:
		return ptx.U64
	case dtype.F32:
		return ptx.F32
	case dtype.F64:
		return ptx.F64
	}
	return ptx.Invalid
}

// widen converts a loaded element to its computing type.
func widen(t dtype.Type, v ptx.Value) ptx.Value {
	switch t {
	case dtype.Bool:
		return v.Ne(num(0))
	case dtype.U8:
		return v.Bitcast(ptx.S32)
	case dtype.I16:
		return v.Cvt(ptx.S32)
	case dtype.F16, dtype.BF16:
		return v.Cvt(ptx.F32)
	}
	return v
}

// narrow converts a value of t's computing type to t. 16-bit floats are rounded once, and narrow
// integers wrap.
func narrow(b *ptx.Builder, t dtype.Type, v ptx.Value) ptx.Value {
	switch t {
	case dtype.Bool:
		return v.Select(b.U32(1), num(0))
	case dtype.U8:
		return v.Bitcast(ptx.U32)
	case dtype.I16:
		return v.Cvt(ptx.S16)
	case dtype.F16, dtype.BF16:
		return v.Cvt(storage(t))
	}
	return v
}

// convert emits the operation OpCvt of package expr, a conversion between computing types.
func convert(b *ptx.Builder, v ptx.Value, to ptx.Type) ptx.Value {
	from := v.Type()
	switch {
	case from == to:
		return v
	case to == ptx.Pred:
		return v.Ne(num(0))
	case from == ptx.Pred:
		if to == ptx.F64 {
			return v.Select(b.F64(1), real(0))
		}
		return v.Select(b.Const(to, num(1)), num(0))
	case from.IsFloat() && to.IsInt() && (to.Bits() == 64 || from == ptx.F64):
		// For NaN the instruction returns 0 only if both types have at most 32 bits. Otherwise it
		// returns an integer with only the highest bit set.
		return v.IsNaN().Select(b.Const(to, num(0)), v.Cvt(to))
	}
	return v.Cvt(to)
}

// environment supplies the inputs of a program.
type environment struct {
	x      func(i int) ptx.Value // returns the value of operand i, in its computing type
	params []ptx.Value           // scalars that are given at each launch
	// index returns the index of the element, as S64 or U32.
	index func(t ptx.Type) ptx.Value
	// at is the index as the sum of a register and a constant. It is nil if the constant is not
	// known when the kernel is built.
	at *place
}

// lower emits a program and returns its results, in the computing types of p.Out.
func lower(b *ptx.Builder, p *expr.Program, env environment) []ptx.Value {
	v := make([]ptx.Value, len(p.Code))
	for i, c := range p.Code {
		t := computing(c.Type)
		switch c.Op {
		case expr.OpX:
			v[i] = env.x(int(c.Imm))
			continue
		case expr.OpConst:
			if t == ptx.Pred {
				v[i] = b.U32(uint32(c.Imm)).Ne(num(0))
			} else {
				v[i] = b.Bits(t, c.Imm)
			}
			continue
		case expr.OpParam:
			v[i] = env.params[c.Imm]
			continue
		case expr.OpIndex:
			v[i] = env.index(t)
			continue
		}
		var x, y, z ptx.Value
		switch c.Op.Arity() {
		case 3:
			z = v[c.C]
			fallthrough
		case 2:
			y = v[c.B]
			fallthrough
		case 1:
			x = v[c.A]
		}
		if c.Op == expr.OpDiv && p.Code[c.A].Op == expr.OpConst && expr.Decode(c.Type, p.Code[c.A].Imm) == 1 {
			v[i] = y.Rcp() // this is correctly rounded, like a quotient
			continue
		}
		if c.Op == expr.OpPhilox {
			at := place{z, 0, 1}
			if env.at != nil && indexOf(p, c.C) {
				at = *env.at
			}
			v[i] = drawn(b, c.Draw(), t, x, y, at)
			continue
		}
		if c.Op == expr.OpAnd && env.at != nil {
			if low, ok := lowBits(p, c, env.at); ok {
				v[i] = b.Bits(t, low)
				continue
			}
		}
		v[i] = primitive(b, c.Op, t, x, y, z)
	}
	outs := make([]ptx.Value, len(p.Outs))
	for k, o := range p.Outs {
		outs[k] = v[o]
	}
	return outs
}

// primitive emits one operation of the expression language with result type t.
func primitive(b *ptx.Builder, op expr.Op, t ptx.Type, x, y, z ptx.Value) ptx.Value {
	switch op {
	case expr.OpAdd:
		return x.Add(y)
	case expr.OpSub:
		return x.Sub(y)
	case expr.OpMul:
		return x.Mul(y)
	case expr.OpDiv:
		return x.Div(y)
	case expr.OpFMA:
		return x.FMA(y, z)
	case expr.OpNeg:
		return x.Neg()
	case expr.OpAbs:
		return x.Abs()
	case expr.OpMin:
		return x.MinNaN(y)
	case expr.OpMax:
		return x.MaxNaN(y)
	case expr.OpSqrt:
		return x.Sqrt()
	case expr.OpFloor:
		return x.Floor()
	case expr.OpTrunc:
		return x.Trunc()
	case expr.OpRoundEven:
		return x.RoundEven()
	case expr.OpEq:
		return x.Eq(y)
	case expr.OpNe:
		return x.Ne(y)
	case expr.OpLt:
		return x.Lt(y)
	case expr.OpLe:
		return x.Le(y)
	case expr.OpGt:
		return x.Gt(y)
	case expr.OpGe:
		return x.Ge(y)
	case expr.OpSelect:
		return x.Select(y, z)
	case expr.OpAnd:
		return x.And(y)
	case expr.OpOr:
		return x.Or(y)
	case expr.OpXor:
		return x.Xor(y)
	case expr.OpNot:
		return x.Not()
	case expr.OpShl:
		return x.Shl(amount(y))
	case expr.OpShr:
		return x.Shr(amount(y))
	case expr.OpMulHi:
		return x.MulHi(y)
	case expr.OpCvt:
		return convert(b, x, t)
	case expr.OpBitcast:
		return x.Bitcast(t)
	}
	b.Errorf("no lowering of %v", op)
	return x
}

// amount converts an integer to a 32-bit shift amount. A 64-bit integer is first clamped, so that
// its lower 32 bits have the same effect.
func amount(y ptx.Value) ptx.Value {
	if y.Type().Bits() == 64 {
		return y.Bitcast(ptx.U64).Min(num(64)).Cvt(ptx.U32)
	}
	return y.Bitcast(ptx.U32)
}

// scalarParams declares kernel parameters for a program's scalars.
func scalarParams(b *ptx.Builder, types []dtype.Type) []ptx.Value {
	list := make([]ptx.Value, len(types))
	for i, t := range types {
		name := "s" + string(rune('a'+i%26)) + string(rune('0'+i/26))
		switch {
		case t == dtype.Invalid: // the program does not use this scalar
		case t == dtype.Bool:
			list[i] = b.Param(name, ptx.U32).Ne(num(0))
		default:
			list[i] = b.Param(name, computing(t.Compute()))
		}
	}
	return list
}

// packScalars packs a program's scalars in the order in which scalarParams declares them.
func (p *packer) packScalars(op string, types []dtype.Type, bits []uint64) error {
	if len(bits) < len(types) {
		return fail(op, "%d run-time scalars given, the program takes %d", len(bits), len(types))
	}
	for i, t := range types {
		switch {
		case t == dtype.Invalid:
		case t.Compute().Size() == 8:
			p.u64(bits[i])
		default:
			p.u32(uint32(bits[i]))
		}
	}
	return nil
}
