package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// wholeRange returns the least number of an integer type, and the least above its range.
func wholeRange(t dtype.Type) (lo, hi float64) {
	hi = math.Ldexp(1, 8*t.Size()-1)
	if !t.IsSigned() {
		return 0, 2 * hi
	}
	return -hi, hi
}

// integral reports whether t is an integer type; bool is none.
func integral(t dtype.Type) bool { return !t.IsFloat() && t != boolType }

// fitted returns v as elements of type t hold it, and panics if they are integers and cannot. As in PyTorch a fraction is cut off,
// and an unsigned type takes the negative of what it holds, wrapped. in are the operands that the error names.
func fitted(op string, t dtype.Type, v float64, in ...*Tensor) float64 {
	if !integral(t) {
		return v
	}
	lo, hi := wholeRange(t)
	if lo == 0 {
		lo = 1 - hi
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

// limits panics if x, of integer type, cannot be limited to whole numbers in [lo, hi] because its type has none of them.
func (x *Tensor) limits(op string, lo, hi float64) {
	x.use(op)
	if !integral(x.dtype) {
		return
	}
	if least, above := wholeRange(x.dtype); lo == math.Trunc(lo) && lo >= above && !math.IsInf(lo, 0) || hi == math.Trunc(hi) && hi < least && !math.IsInf(hi, 0) {
		fail(op, ErrValue, []*Tensor{x}, "the limits [%v, %v] are outside of the range of %v", lo, hi, x.dtype)
	}
}

// modular returns the whole number v as arithmetic in x's type sees it: modulo 2³² if that has 32 bits or less.
func (x *Tensor) modular(v float64) float64 {
	if integral(x.dtype) && x.dtype.Size() <= 4 && v == math.Trunc(v) && math.Abs(v) < 1<<63 {
		return float64(int32(int64(v)))
	}
	return v
}
