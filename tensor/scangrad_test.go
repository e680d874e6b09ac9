package tensor_test

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCumProdGradient computes gradients by one program, and again with CreateGraph, which composes
// them of several ops. Both must have the same bits.
func TestCumProdGradient(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		for _, dims := range [][]int{{3}, {5, 1}, {64, 257}, {2, 3, 100}, {0, 4}} {
			tensor.Do(func(s *tensor.Scope) {
				x := s.Randn(dims...)
				for _, x := range []*tensor.Tensor{x, x.MaskedFill(x.GtScalar(1), 0), x.Transpose(0, -1)} {
					for dim := range dims {
						x := x.Cast(typ).Detach().RequiresGrad()
						y := x.CumProd(dim)
						g := tensor.GradOutput(y.Detach().Neg())
						one := tensor.Gradients(y, []*tensor.Tensor{x}, g, tensor.RetainGraph())[0]
						composed := tensor.Gradients(y, []*tensor.Tensor{x}, g, tensor.CreateGraph())[0]
						if !slices.Equal(one.Bytes(), composed.Detach().Bytes()) {
							t.Errorf("%v, shape %v, dimension %d: the gradients differ", typ, dims, dim)
						}
					}
				}
			}, tensor.Seed(4))
		}
	}
}
