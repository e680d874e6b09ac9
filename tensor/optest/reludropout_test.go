package optest

import (
	"bytes"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestReluDropout checks that ReluDropout gives the same bits as Relu followed by Dropout. The
// gradients must have the same bits too, even with CreateGraph, and the generator must end in the
// same state. The operands contain infinities and NaN.
func TestReluDropout(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []tensor.Option{tensor.Seed(2), tensor.On(gpus[0])} {
		for _, low := range []dtype.Type{dtype.F16, dtype.BF16, dtype.F32, dtype.F64} {
			for _, p := range []float64{0, 0.3, 1} {
				tensor.Do(func(s *tensor.Scope) {
					some := []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0, math.Copysign(0, -1), 6e4}
					odd := tensor.From(some).To(s.Device())
					x := tensor.Cat(0, s.Typed(low).Randn(500), odd.In(s).Repeat(40).Cast(low)).Detach().RequiresGrad()
					results := func(f func(x *tt) *tt) (list [][]byte) {
						s.Do(func(s *tensor.Scope) {
							y := f(x.In(s))
							g := tensor.Cat(0, s.Typed(low).Randn(x.Size()-1), s.Typed(low).Full(math.Inf(1), 1)).Detach()
							d := tensor.Gradients(y, []*tt{x}, tensor.GradOutput(g), tensor.RetainGraph())
							d = append(d, tensor.Gradients(y, []*tt{x}, tensor.GradOutput(g.RequiresGrad()), tensor.CreateGraph())...)
							d = append(d, tensor.Gradients(d[1], []*tt{g}, tensor.GradOutput(d[0]))...)
							for _, v := range append(d, y, s.Rand(3)) {
								list = append(list, v.Bytes())
							}
						}, tensor.Seed(9))
						return list
					}
					got := results(func(x *tt) *tt { return x.ReluDropout(p) })
					want := results(func(x *tt) *tt { return x.Relu().Dropout(p) })
					for i, what := range []string{"gradient", "recorded gradient", "gradient's gradient", "result", "next number"} {
						if !bytes.Equal(got[i], want[i]) {
							t.Errorf("%v, p %v, %s: the %s differs", low, p, s.Device().Name(), what)
						}
					}
				}, on)
			}
		}
	}
}
