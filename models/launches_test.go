package models_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// blockLaunches has the greatest allowed numbers of launches of a block of GPT-2 124M, with 8×1024
// tokens, in the forward and the backward pass. Lower a limit when a change needs fewer launches.
var blockLaunches = map[dtype.Type][2]int{dtype.BF16: {9, 17}, dtype.Invalid: {9, 17}}

func modeName(low dtype.Type) string {
	if low == dtype.Invalid {
		return "float32"
	}
	return "autocast to " + low.String()
}

// A block of GPT-2 124M launches at most the numbers of kernels in blockLaunches. With -v the test
// lists the kernels, each with the op that launched it. The list must be complete: a third block
// must add exactly this many launches to a step.
func TestGPTBlockLaunches(t *testing.T) {
	for _, low := range []dtype.Type{dtype.BF16, dtype.Invalid} {
		name, most := modeName(low), blockLaunches[low]
		l := listLaunches(t, gptLayers(3), low, false)
		both := 0
		for i, pass := range []string{"forward", "backward"} {
			list := l.kernels("h.1", pass)
			t.Logf("%s, %s: %d launches\n%s", name, pass, len(list), table(list))
			if len(list) > most[i] {
				t.Errorf("%s, %s: %d launches of a block, the limit is %d", name, pass, len(list), most[i])
			}
			both += len(list)
		}
		less := listLaunches(t, gptLayers(2), low, false)
		t.Logf("%s: %d launches of a block, %d of a step of 3 blocks", name, both, len(l.list))
		if one := len(l.list) - len(less.list); both != one {
			t.Errorf("%s: %d launches are listed as a block's, and one more takes %d", name, both, one)
		}
	}
}

// The graph of a step has the same kernels as the step, with two exceptions. In the graph, the
// kernels for random numbers and for the optimizer read from the device's memory the values that
// change from step to step.
func TestCapturedLaunches(t *testing.T) {
	mlp := peakCases[0].make
	for name, make := range map[string]func(in nn.Option) (any, lossStep){"gpt2 of 2 blocks": gptLayers(2), "mlp": mlp} {
		for _, low := range []dtype.Type{dtype.BF16, dtype.Invalid} {
			eager, graph := listLaunches(t, make, low, false).list, listLaunches(t, make, low, true).list
			t.Logf("%s, %s: %d launches, %d in a graph", name, modeName(low), len(eager), len(graph))
			if len(graph) > len(eager) {
				t.Fatalf("%s, %s: %d launches in a graph, %d in a step", name, modeName(low), len(graph), len(eager))
			}
			for i, n := range graph {
				m := eager[i]
				if !n.event.Recorded || m.event.Recorded {
					t.Fatalf("%s: %s is recorded: %v, %s: %v", name, n.kernel, n.event.Recorded, m.kernel, m.event.Recorded)
				}
				same := n.op == m.op && (strings.Replace(n.kernel, "_numbers", "", 1) == m.kernel || strings.Contains(n.op, "dropout"))
				if n.pass != m.pass || !same && n.pass != "optimizer" {
					t.Fatalf("%s, %s: launch %d is %s %s %s in the graph, and %s %s %s", name, modeName(low), i, n.pass, n.op, n.kernel, m.pass, m.op, m.kernel)
				}
			}
		}
	}
}

// In mixed precision, matrix products use the tensor cores. With -v the test prints those that do
// not.
func TestProductsOnTensorCores(t *testing.T) {
	for _, c := range []struct {
		name   string
		layers int
		make   func(in nn.Option) (any, lossStep)
	}{
		{"gpt2, 8 of 1024", 12, gptLayers(12)},
		{"bert-base, 16 of 512", 12, func(in nn.Option) (any, lossStep) {
			m := models.NewMaskedLM(models.BERTBase(), in)
			return m, func(s *tensor.Scope) *tt {
				return m.Loss(s.Typed(dtype.I64).Zeros(16, 512), s.Typed(dtype.I64).Zeros(16, 512), models.BERTInput{})
			}
		}},
	} {
		l := listLaunches(t, c.make, dtype.BF16, false)
		on, loose, flops, all := 0, 0, 0, 0
		seen := map[string]bool{}
		for _, n := range l.list {
			e := n.event
			if e.Class != device.ByProducts || !n.first {
				continue
			}
			all += e.Work.FLOPs
			if slices.ContainsFunc(e.Launches, func(l device.LaunchEvent) bool { return l.Tensor > 0 }) {
				on++
				continue
			}
			loose++
			flops += e.Work.FLOPs
			if line := n.pass + ", " + n.op + ", " + n.kernel; !seen[line] {
				seen[line] = true
				t.Logf("%s: %s: %s %v", c.name, n.layer, line, e.Shapes)
			}
		}
		t.Logf("%s: %d products on the tensor cores, %d not, which are %.1f %% of the operations of products", c.name, on, loose, 100*float64(flops)/float64(all))
		if loose > 0 {
			t.Errorf("%s: %d products do not run on the tensor cores", c.name, loose)
		}
		if on < 12*c.layers {
			t.Errorf("%s: %d products on the tensor cores only", c.name, on)
		}
	}
}
