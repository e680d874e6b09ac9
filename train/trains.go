package train

import (
	"slices"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// trains reports whether an optimizer has a parameter of the model, or there is none to have.
func trains(o optim.Optimizer, model any) bool {
	known := map[*tensor.Tensor]bool{}
	for _, p := range o.Params() {
		known[p] = true
	}
	params := nn.Parameters(model)
	return len(params) == 0 || len(known) == 0 || slices.ContainsFunc(params, func(p *tensor.Tensor) bool { return known[p] })
}
