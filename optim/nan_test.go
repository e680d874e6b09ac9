package optim_test

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Rprop and Lion use torch's sign function, which is 0 for NaN. An element whose gradient is NaN
// does not change in that step. Rprop changes it in the next step, and adapts its step size in the
// step after that. The expected values for Rprop are those of torch.optim.Rprop.
func TestSignOfNaNIsZero(t *testing.T) {
	nan := float32(0)
	nan /= nan
	p := tensor.From([]float32{1, 2}).RequiresGrad()
	o := optim.NewRprop([]*tensor.Tensor{p}, optim.RpropConfig{LR: 0.1})
	for i, c := range []struct{ grad, want []float32 }{{[]float32{nan, 1}, []float32{1, 1.9}}, {[]float32{1, 1}, []float32{0.9, 1.78}}, {[]float32{1, 1}, []float32{0.78, 1.636}}} {
		p.SetGrad(tensor.From(c.grad))
		o.Step()
		if got := tensor.Data[float32](p.Detach()); !slices.EqualFunc(got, c.want, func(x, y float32) bool { return near(float64(x), float64(y), 1e-6) }) {
			t.Fatalf("Rprop after step %d: %v, torch has %v", i, got, c.want)
		}
	}
	q := tensor.From([]float32{1, 2}).RequiresGrad()
	q.SetGrad(tensor.From([]float32{nan, 1}))
	optim.NewLion([]*tensor.Tensor{q}, optim.LionConfig{LR: 0.5}).Step()
	if got := tensor.Data[float32](q.Detach()); !slices.Equal(got, []float32{1, 1.5}) {
		t.Fatalf("Lion: %v", got)
	}
}
