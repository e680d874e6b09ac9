package tensor_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestGluGradient compares the gradient of Glu with that of the composition of other ops. The bits
// must be equal. A gradient that records a graph must have these bits too.
func TestGluGradient(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
			for _, shape := range [][]int{{4, 6, 34}, {2, 2, 2}, {2, 0, 4}} {
				base := s.Randn(shape...).MulScalar(3).Cast(ty)
				for _, x := range []*tensor.Tensor{base, base.Transpose(0, -1).Contiguous().Transpose(0, -1)} {
					for dim := range 3 {
						all := func(graph bool, options ...tensor.Option) (out []float64) {
							s.Do(func(s *tensor.Scope) {
								x := x.In(s).Detach().RequiresGrad()
								y := x.Glu(dim)
								how := []tensor.GradOption{tensor.GradOutput(y.Detach().Sin())}
								if graph {
									how = append(how, tensor.CreateGraph())
								}
								out = tensor.Gradients(y, []*tensor.Tensor{x}, how...)[0].Detach().Double().Floats()
							}, options...)
							return out
						}
						got, want, again := all(false), all(false, tensor.Composed()), all(true)
						for i := range want {
							if a, b := math.Float64bits(want[i]), math.Float64bits(got[i]); a != b || a != math.Float64bits(again[i]) {
								t.Fatalf("%v of %v along %d: element %d is %v and %v, composed %v", shape, ty, dim, i, got[i], again[i], want[i])
							}
						}
					}
				}
			}
		}
	})
}
