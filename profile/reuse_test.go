package profile_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestGradientInPlaceHasItsName profiles the gradient of dropout, which is computed in place, in
// the memory of the incoming gradient. The event of the gradient must not get the name of the op
// that allocated that memory.
func TestGradientInPlaceHasItsName(t *testing.T) {
	m := nn.NewSequential(nn.NewLinear(4, 4), nn.NewDropout(0.5), nn.NewLinear(4, 4))
	p, err := profile.Start(profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) { m.Forward(s.Ones(8, 4)).Sum().Backward() })
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for _, r := range p.KeyAverages().Rows {
		calls[r.Key] += r.Count
	}
	// The forward pass has two linear layers. Backward computes the gradients of their parameters,
	// and only one more product: the input needs no gradient.
	if calls["dropout"] != 2 || calls["linear"] != 2 || calls["linear.grad"] != 2 || calls["matmul"] != 1 {
		t.Errorf("%v", calls)
	}
}
