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

// takes panics if x's type, of integers, cannot hold the number v.
func (x *Tensor) takes(op string, v float64) { storable(op, x.dtype, v, x) }

// storable panics if t, a type of integers, cannot hold the number v. As in PyTorch a fraction is cut off, and an unsigned type takes the
// negative of what it holds.
func storable(op string, t dtype.Type, v float64, in ...*Tensor) {
	if !integral(t) {
		return
	}
	lo, hi := wholeRange(t)
	if lo == 0 {
		lo = 1 - hi
	}
	if v = math.Trunc(v); !(v >= lo && v < hi) {
		fail(op, ErrValue, in, "the number %v does not fit into %v", v, t)
	}
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
