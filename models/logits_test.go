package models_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// logitPasses limits how often the loss of GPT-2 124M reads or writes a tensor as large as the
// logits. The number counts the forward and the backward pass, without matrix products. The
// minimum is three: the logits are read for the loss and for the gradient, and the gradient is
// written.
var logitPasses = map[dtype.Type]int{dtype.Invalid: 3, dtype.BF16: 3}

// The loss reads and writes the logits at most as often as logitPasses says. Lower a limit when a
// change saves a pass.
func TestLogitPasses(t *testing.T) {
	for low, most := range logitPasses {
		passes, bytes := 0, 0
		for _, n := range listLaunches(t, gptLayers(1), low, false).list {
			if !n.first || n.event.Class == device.ByProducts {
				continue
			}
			large := 0
			for _, s := range n.event.Shapes {
				if s.Size() == 8*1024*50257 {
					large++
				}
			}
			if large > 0 {
				passes, bytes = passes+large, bytes+n.event.Work.Bytes
				t.Logf("%s: %s, %s: %d passes, %.2f GB", modeName(low), n.op, n.kernel, large, float64(n.event.Work.Bytes)/1e9)
			}
		}
		t.Logf("%s: %d passes over the logits, %.2f GB", modeName(low), passes, float64(bytes)/1e9)
		if passes > most || passes < 3 {
			t.Errorf("%s: %d passes over the logits, the limit is %d", modeName(low), passes, most)
		}
	}
}
