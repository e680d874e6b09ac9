package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// fitted returns v as elements of type t hold it, and panics if they are integers and cannot. As in PyTorch a fraction is cut off,
// and an unsigned type takes the negative of what it holds, wrapped. in are the operands that the error names.
func fitted(op string, t dtype.Type, v float64, in ...*Tensor) float64 {
	if t.IsFloat() || t == boolType {
		return v
	}
	width := 8 * t.Size()
	lo, hi := -math.Ldexp(1, width-1), math.Ldexp(1, width-1)
	if !t.IsSigned() {
		lo, hi = -2*hi+1, 2*hi
	}
	whole := math.Trunc(v)
	if !(whole >= lo && whole < hi) {
		fail(op, ErrValue, in, "the number %v does not fit into %v", v, t)
	}
	if !t.IsSigned() && whole < 0 {
		whole += hi
	}
	return whole
}

// takes is fitted for an op that writes v into elements of x's type.
func (x *Tensor) takes(op string, v float64) float64 {
	x.use(op)
	return fitted(op, x.dtype, v, x)
}
