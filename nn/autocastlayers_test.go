package nn_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// jumps names the layers that are discontinuous or have a discontinuous derivative. Rounding may
// move an input across the discontinuity, so the test does not compare their results.
var jumps = map[string]bool{"max pool": true, "max pool 1d": true, "adaptive max": true, "hardshrink": true, "softshrink": true, "hardtanh": true, "huber": true, "threshold": true,
	"fractional max": true, "fractional max 3d": true, "max unpool": true, "lp pool 3d": true, "lp pool": true, "lp pool 1d": true}

// Every layer runs under autocast, forward and backward, on float32 and on 16-bit inputs. The
// results must equal those in float32 within the rounding error of the 16-bit type. Each gradient
// must have the type of its tensor.
func TestLayersUnderAutocast(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for name, l := range layersThatKeep(nn.In(s)) {
			run := func(low, input dtype.Type) (values, grads []float64) {
				err := tensor.Try(func() {
					s.Do(func(c *tensor.Scope) {
						var x []*tt
						for k, d := range l.dims {
							n := 1
							for _, m := range d {
								n *= m
							}
							v := c.On(s.Device()).Arange(n).MulScalar(0.37).AddScalar(float64(k)).Sin().Reshape(d...)
							if name == "kl" { // for this loss the target must be a probability
								v = v.Abs().AddScalar(0.1)
							}
							x = append(x, v.Cast(input).Detach().RequiresGrad())
						}
						y := l.call(x)
						sum := c.Zeros()
						for _, y := range y {
							values = append(values, y.Detach().Floats()...)
							weights := c.On(s.Device()).Arange(y.Size()).MulScalar(0.61).Cos().Reshape(y.Shape().Slice()...)
							sum = sum.Add(y.Float().Mul(weights).Sum())
						}
						sum.Backward()
						for i, x := range x {
							if x.Grad() == nil || x.Grad().Type() != input {
								t.Errorf("%s under autocast to %v: the gradient of input %d, of %v, is %v", name, low, i, input, x.Grad())
								return
							}
							grads = append(grads, x.Grad().Floats()...)
						}
					}, tensor.Autocast(low), tensor.Seed(5))
				})
				if err != nil {
					t.Errorf("%s under autocast to %v with an input of %v: %v", name, low, input, err)
				}
				return values, grads
			}
			want, slope := run(dtype.Invalid, dtype.F32)
			for _, low := range []dtype.Type{dtype.BF16, dtype.F16} {
				tol := map[dtype.Type]float64{dtype.BF16: 0x1p-8, dtype.F16: 0x1p-11}[low] * 8
				for _, input := range []dtype.Type{dtype.F32, low} {
					got, d := run(low, input)
					if jumps[name] {
						continue
					}
					checkClose(t, name+" under autocast to "+low.String(), got, want, tol)
					checkClose(t, "the gradient of "+name+" under autocast to "+low.String(), d, slope, 4*tol)
				}
			}
		}
	}, tensor.Seed(3)) // with this seed, no relu of the transformer has an input near 0
}

// checkClose fails the test if got and want differ by more than tol times the greatest absolute
// value in want.
func checkClose(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	most := 0.0
	for _, v := range want {
		most = max(most, math.Abs(v))
	}
	for i, v := range want {
		if !(math.Abs(got[i]-v) <= tol*most) {
			t.Errorf("%s: number %d is %v, in float32 %v, the greatest is %v", what, i, got[i], v, most)
			return
		}
	}
}
