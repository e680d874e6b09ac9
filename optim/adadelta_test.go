package optim_test

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Rho above 1 could make the mean of squares negative, and its square root NaN. So this Rho is an
// error, as in PyTorch. The same holds if SetOption sets it later.
func TestAdadeltaRho(t *testing.T) {
	w := []*tensor.Tensor{tensor.Ones(2).RequiresGrad()}
	func() {
		defer func() {
			if e, ok := recover().(*optim.Error); !ok || !strings.Contains(e.Error(), "rho must be in [0, 1], it is 1.5") {
				t.Errorf("got %v", e)
			}
		}()
		optim.NewAdadelta(w, optim.AdadeltaConfig{LR: 1, Rho: 1.5})
	}()
	o := optim.NewAdadelta(w, optim.AdadeltaConfig{LR: 1, Rho: 1})
	if err := o.Groups()[0].SetOption("rho", 1.1); err == nil {
		t.Error("SetOption takes a rho of 1.1")
	}
}
