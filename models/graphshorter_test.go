package models_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// graphOperations has the greatest allowed numbers of operations in the graph of a training step
// with AdamW, in float32 and under autocast to bfloat16. Lower a limit when a change needs fewer
// operations.
var graphOperations = map[string][2]int{"lenet": {157, 171}, "cnn": {120, 126}, "chargpt, dropout": {128, 145}}

// The graph of a training step has fewer operations than the capture recorded, and at most the
// number in graphOperations. With -v the test prints both numbers.
func TestGraphsAreShorter(t *testing.T) {
	for _, c := range peakCases {
		most, ok := graphOperations[c.name]
		if !ok {
			continue
		}
		for i, low := range []dtype.Type{dtype.Invalid, dtype.BF16} {
			dev := bare(t)
			m, loss := c.make(nn.In(tensor.Root()))
			nn.To(m, dev)
			opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
			g, err := tensor.Capture(dev, func(s *tensor.Scope) {
				s.Do(func(s *tensor.Scope) { loss(s).Backward() })
				opt.Step()
				opt.ZeroGrad()
			}, tensor.On(dev), tensor.Autocast(low))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %s: %v", c.name, modeName(low), g)
			recorded := 0
			if _, text, ok := strings.Cut(g.String(), ", of "); ok {
				fmt.Sscan(text, &recorded)
			}
			if n := g.Operations(); n > most[i] || recorded <= n {
				t.Errorf("%s, %s: %v, the limit is %d", c.name, modeName(low), g, most[i])
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
