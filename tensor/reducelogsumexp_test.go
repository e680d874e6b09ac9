package tensor_test

import (
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestLogSumExpInOnePass compares LogSumExp with the several ops that it replaces. It also compares
// the gradients with those that CreateGraph composes of several ops. The bits must be the same.
func TestLogSumExpInOnePass(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		for _, dims := range [][]int{{3}, {5, 1}, {4, 7}, {64, 257}, {2, 3, 1024}, {3, 1500}, {2, 9000}} {
			for way := range 4 {
				tensor.Do(func(s *tensor.Scope) {
					x := s.Randn(dims...)
					switch way {
					case 1:
						x = x.MaskedFill(x.LtScalar(1), math.Inf(-1))
					case 2:
						x = x.MaskedFill(x.GtScalar(1), math.Inf(1))
					case 3:
						x = x.Transpose(0, -1)
					}
					x = x.Cast(typ).Detach().RequiresGrad()
					for _, over := range [][]int{{-1}, {0}, {}, {0, tensor.KeepDim}} {
						y := x.LogSumExp(over...)
						one := tensor.Gradients(y, []*tensor.Tensor{x}, tensor.GradOutput(y.Detach()), tensor.RetainGraph())[0]
						composed := tensor.Gradients(y, []*tensor.Tensor{x}, tensor.GradOutput(y.Detach()), tensor.CreateGraph())[0]
						if !slices.Equal(one.Bytes(), composed.Detach().Bytes()) {
							t.Errorf("%v, shape %v, way %d, over %v: the gradients differ", typ, dims, way, over)
						}
						wide := x.Detach().Cast(typ.Compute())
						most := wide.Amax(append(slices.Clone(over), tensor.KeepDim)...)
						most = most.MaskedFill(most.Abs().EqScalar(math.Inf(1)), 0)
						sum := wide.Sub(most).Exp().Sum(over...)
						want := sum.Log().Add(most.Reshape(sum.Shape().Slice()...)).Cast(typ)
						if !slices.Equal(y.Detach().Bytes(), want.Bytes()) {
							t.Errorf("%v, shape %v, way %d, over %v: the values differ", typ, dims, way, over)
						}
					}
				}, tensor.On(opened(t, "cpu")), tensor.Seed(4))
			}
		}
	}
}
