package optim_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// An optimizer refuses a leaf that neither requires a gradient nor was frozen. The error gives
// the leaf's index. The optimizer accepts a frozen parameter, and trains the parameter after it
// is unfrozen.
func TestOptimizerOfALeafWithoutGradient(t *testing.T) {
	p, plain := tensor.Ones(2).RequiresGrad(), tensor.Zeros(3)
	refused := func(f func(), says ...string) {
		t.Helper()
		defer func() {
			t.Helper()
			err, _ := recover().(error)
			e := (*optim.Error)(nil)
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			for _, s := range append(says, "does not require a gradient", "nn.Parameter(x)") {
				if !strings.Contains(e.Error(), s) {
					t.Errorf("%q does not say %q", e.Error(), s)
				}
			}
		}()
		f()
	}
	refused(func() { optim.NewSGD([]*tensor.Tensor{p, plain}, optim.SGDConfig{LR: 1}) }, "SGD", "parameter 1, of shape [3]")
	refused(func() {
		optim.NewAdamW([]*tensor.Tensor{p}, optim.AdamConfig{LR: 1}).AddGroup([]*tensor.Tensor{plain}, optim.AdamConfig{LR: 1})
	}, "AdamW", "parameter 0 of group 1")

	m := nn.NewSequential(nn.NewLinear(2, 3), nn.NewLinear(3, 1))
	nn.Freeze(m.Layers[0])
	if copied := nn.Clone(m); !nn.Parameters(copied)[0].IsFrozen() {
		t.Error("a copy of a frozen parameter is not frozen")
	}
	params := nn.Parameters(m)
	opt := optim.NewSGD(params, optim.SGDConfig{LR: 1})
	step := func() (changed [2]bool) {
		before := [2][]float64{params[0].Floats(), params[2].Floats()}
		m.Forward(tensor.Ones(4, 2)).Sum().Backward()
		opt.Step()
		opt.ZeroGrad()
		for i, w := range []*tensor.Tensor{params[0], params[2]} {
			for j, v := range w.Floats() {
				changed[i] = changed[i] || v != before[i][j]
			}
		}
		return changed
	}
	if got := step(); got != [2]bool{false, true} {
		t.Errorf("frozen: %v", got)
	}
	if nn.Unfreeze(m); step() != [2]bool{true, true} || params[0].IsFrozen() {
		t.Error("what was frozen is not trained")
	}
}
