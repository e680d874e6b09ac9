package optest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestRoPELaunches checks that one launch rotates the features, both forward and backward, with the
// same bits on every device. A second launch makes the angles if they are not given. A third launch
// copies the features that are not rotated.
func TestRoPELaunches(t *testing.T) {
	dev := emulated(t)
	launches := func(f func()) uint64 {
		before := dev.Counters().Launches
		f()
		return dev.Counters().Launches - before
	}
	const batch, length, heads, features = 2, 5, 3, 16
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F64} {
		for _, interleaved := range []bool{false, true} {
			for _, dims := range []int{0, 8} {
				what := fmt.Sprintf("%v, interleaved %v, %d features", typ, interleaved, dims)
				both := func(s *tensor.Scope, emulated bool) (y, dx []float64) {
					check := func(step string, most uint64, f func()) {
						if n := launches(f); emulated && n != most {
							t.Errorf("%s, %s: %d launches, want %d", what, step, n, most)
						}
					}
					// The queries and keys of this projection are neighbours in memory.
					x := s.Typed(typ).Arange(batch*length*3*heads*features).MulScalar(0.01).Reshape(batch, length, 3*heads, features).RequiresGrad()
					qk := x.Narrow(2, 0, 2*heads).Transpose(1, 2)
					o := tensor.RoPEOptions{Interleaved: interleaved, Dims: dims, Offset: 3}
					rest := uint64(0)
					if dims > 0 {
						rest = 1
					}
					var turned, again *tensor.Tensor
					check("forward", 2+rest, func() { turned = qk.RoPE(o) })
					cos, sin := qk.RoPEAngles(o)
					check("by given angles", 1+rest, func() { again = qk.RoPE(tensor.RoPEOptions{Interleaved: interleaved, Cos: cos, Sin: sin}) })
					if !slices.Equal(turned.Floats(), again.Floats()) {
						t.Errorf("%s: given angles give other results", what)
					}
					// qk is a part of a larger tensor. So the gradient is written into a tensor of
					// zeros that has the size of the larger tensor.
					g := qk.Detach().MulScalar(0.5)
					check("backward", 3+rest, func() { turned.Backward(tensor.GradOutput(g)) })
					return turned.Floats(), x.Grad().Floats()
				}
				var y, dx []float64
				tensor.Do(func(s *tensor.Scope) { y, dx = both(s, true) }, tensor.On(dev))
				tensor.Do(func(s *tensor.Scope) {
					wantY, wantDX := both(s, false)
					if !slices.Equal(y, wantY) || !slices.Equal(dx, wantDX) {
						t.Errorf("%s: the devices differ", what)
					}
				})
			}
		}
	}
}
