package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

func countOf(hit func(v float64) bool, finish func(n int) float64) func([]float64) float64 {
	return func(x []float64) float64 {
		n := 0
		for _, v := range x {
			if hit(v) {
				n++
			}
		}
		return finish(n)
	}
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func isZero(v float64) bool  { return v == 0 }
func notZero(v float64) bool { return v != 0 }

var (
	countNonzeroOp = declareReduction(&Reduction{Name: "count_nonzero", Kind: device.Sum, Count: true, Domain: [2]float64{-2, 2},
		Map: x0.Ne(expr.C(0)).Cvt(dtype.I64), Ref: countOf(notZero, func(n int) float64 { return float64(n) })})
	anyOp = declareReduction(&Reduction{Name: "any", Kind: device.Sum, Count: true, Truth: true, Domain: [2]float64{-2, 2},
		Map: x0.Ne(expr.C(0)).Cvt(dtype.I64), Finish: x0.Ne(expr.C(0)), Ref: countOf(notZero, func(n int) float64 { return indicator(n > 0) })})
	allOp = declareReduction(&Reduction{Name: "all", Kind: device.Sum, Count: true, Truth: true, Domain: [2]float64{-2, 2},
		Map: x0.Eq(expr.C(0)).Cvt(dtype.I64), Finish: x0.Eq(expr.C(0)), Ref: countOf(isZero, func(n int) float64 { return indicator(n == 0) })})
)

// CountNonzero returns the number of elements that are not 0, as int64. It counts over dims, or
// over all dimensions if dims is empty. NaN is not 0.
func (x *Tensor) CountNonzero(dims ...int) *Tensor { return countNonzeroOp.Apply(x, dims...) }

// Any returns whether any element is not 0, over dims, or over all dimensions if dims is empty. For
// no elements the result is false. It has type bool, or uint8 if x has type uint8, as in torch.
func (x *Tensor) Any(dims ...int) *Tensor { return x.truth(anyOp, dims) }

// All returns whether no element is 0, over dims, or over all dimensions if dims is empty. For no
// elements the result is true. It has type bool, or uint8 if x has type uint8, as in torch.
func (x *Tensor) All(dims ...int) *Tensor { return x.truth(allOp, dims) }

func (x *Tensor) truth(r *Reduction, dims []int) *Tensor {
	y := r.Apply(x, dims...)
	if x.dtype == dtype.U8 {
		return y.Cast(dtype.U8)
	}
	return y
}
