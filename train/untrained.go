package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// trains reports whether optimizer o has a parameter of the model. It also returns true if o or the
// model has no parameters.
func trains(o optim.Optimizer, model any) bool {
	known := map[*tensor.Tensor]bool{}
	for _, p := range o.Params() {
		known[p] = true
	}
	params := nn.Parameters(model)
	return len(params) == 0 || len(known) == 0 || slices.ContainsFunc(params, func(p *tensor.Tensor) bool { return known[p] })
}

// untrained lists the parameters of a model that the optimizer does not train, or returns "" if
// there are none. The log warns of them, because the program may have forgotten them.
func untrained(o optim.Optimizer, model any) string {
	given := map[*tensor.Tensor]bool{}
	for _, p := range o.Params() {
		given[p] = true
	}
	var frozen, left []string
	for _, p := range nn.NamedParameters(model) {
		switch {
		case !p.Tensor.NeedsGrad():
			frozen = append(frozen, p.Name)
		case !given[p.Tensor]:
			left = append(left, p.Name)
		}
	}
	var parts []string
	for _, x := range []struct {
		names []string
		why   string
	}{{frozen, "as no gradient is required: "}, {left, "as the optimizer was not given them: "}} {
		if n := len(x.names); n > 0 {
			more := ""
			if n > 5 {
				more = fmt.Sprintf(" and %d more", n-5)
			}
			parts = append(parts, x.why+strings.Join(x.names[:min(n, 5)], ", ")+more)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "not trained, " + strings.Join(parts, "; ")
}
