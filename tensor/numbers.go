package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// wholeRange returns the least number lo of an integer type, and hi, one more than its greatest
// number.
func wholeRange(t dtype.Type) (lo, hi float64) {
	hi = math.Ldexp(1, 8*t.Size()-1)
	if !t.IsSigned() {
		return 0, 2 * hi
	}
	return -hi, hi
}

// integral reports whether t is an integer type. bool is not.
func integral(t dtype.Type) bool { return !t.IsFloat() && t != boolType }

// fitted returns v in the form that elements of type t can hold. It panics if t is an integer type
// that cannot hold v. As in PyTorch a fraction is cut off. An unsigned type with numbers up to n
// accepts -n … n, and wraps negative numbers. The error shows the given operands.
func fitted(op string, t dtype.Type, v float64, operands ...*Tensor) float64 {
	if !integral(t) {
		return v
	}
	lo, hi := wholeRange(t)
	if lo == 0 {
		lo = 1 - hi
	}
	whole := math.Trunc(v)
	if !(whole >= lo && whole < hi) {
		fail(op, ErrValue, operands, "the number %v does not fit into %v", v, t)
	}
	if !t.IsSigned() && whole < 0 {
		whole += hi
	}
	return whole
}

// fittedNumber returns v in the form that elements of x can hold, for an op that writes v into x.
// It panics if x's integer type cannot hold v.
func (x *Tensor) fittedNumber(op string, v float64) float64 {
	x.use(op)
	return fitted(op, x.dtype, v, x)
}

// checkLimits panics if x's type is an integer type that has no whole number in [lo, hi].
func (x *Tensor) checkLimits(op string, lo, hi float64) {
	x.use(op)
	if !integral(x.dtype) {
		return
	}
	if least, above := wholeRange(x.dtype); lo == math.Trunc(lo) && lo >= above && !math.IsInf(lo, 0) || hi == math.Trunc(hi) && hi < least && !math.IsInf(hi, 0) {
		fail(op, ErrValue, []*Tensor{x}, "the limits [%v, %v] are outside of the range of %v", lo, hi, x.dtype)
	}
}

// modular reduces the whole number v as arithmetic in x's type does: integer types of 32 bits or
// less compute modulo 2³².
func (x *Tensor) modular(v float64) float64 {
	if integral(x.dtype) && x.dtype.Size() <= 4 && v == math.Trunc(v) && math.Abs(v) < 1<<63 {
		return float64(int32(int64(v)))
	}
	return v
}

// number applies e, an op with one number, to x and v. If the integer type of x cannot hold v, a
// comparison is computed in a type that can, or in float32. Arithmetic in x's type wraps a whole
// number v.
func (e *Elementwise) number(x *Tensor, v float64) *Tensor {
	if e.Result == Truth {
		return x.compareScalar(e, v)
	}
	if x.use(e.called()); e.Result == Promoted {
		v = x.modular(v)
	}
	return x.scalar(e, v)
}

func (e *Elementwise) numberInPlace(x *Tensor, v float64) *Tensor {
	if e.Result == Promoted {
		x.mustHold(e.called(), v)
		v = x.modular(v)
	}
	return x.inPlace(e, []*Tensor{x}, v)
}

// number returns v and x as two tensors of the same type, for op. As in torch, only the class of v
// affects the type. A whole number turns bool into int64. A fraction, NaN or an infinity turns bool
// and integers into float32.
func (x *Tensor) number(op string, v float64) (n, same *Tensor) {
	x.use(op)
	if !x.dtype.IsFloat() {
		switch {
		case v != math.Trunc(v) || math.IsInf(v, 0):
			x = x.Float()
		case x.dtype == boolType:
			x = x.Long()
		}
	}
	return x.scope.On(x.st.dev).make(op, x.dtype, nil).fill(v), x
}

// reversed returns f(n, x), where n is a tensor that holds the number v.
func (x *Tensor) reversed(op string, v float64, f func(x, y *Tensor) *Tensor) *Tensor {
	x.use(op)
	return within(x.scope, func(c *Scope) *Tensor { n, x := x.In(c).number(op, v); return f(n, x) })
}

// reversedWhole does what reversed does, for a whole number that a float64 may be unable to hold.
func (x *Tensor) reversedWhole(op string, v int64, f func(x, y *Tensor) *Tensor) *Tensor {
	return x.reversed(op, float64(v), func(n, x *Tensor) *Tensor { return f(n.Fill(0).BitwiseOrScalar(v), x) })
}
