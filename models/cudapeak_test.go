package models_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A training step takes at most 1.05 times what torch.cuda.max_memory_allocated says of it in PyTorch, or 1.10 times for models that are promised
// nothing. testdata/cudapeak.json has PyTorch's numbers, without what cuBLAS and cuDNN take for themselves; _golden/cudapeak.py says how they come about.
// Here everything counts that the allocator of an emulated GPU hands out.
func TestCUDAPeakAgainstPyTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/cudapeak.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases map[string]struct{ Peak, Graph int }
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	compare := func(c peakCase, autocast dtype.Type, bound float64) {
		name := c.name
		if autocast != dtype.Invalid {
			name += ", bf16"
		}
		want, ok := golden.Cases[name]
		if !ok {
			return
		}
		seen[name] = true
		gpus, err := cuda.Emulate("emulate,mode=meta,mem=140GiB")
		if err != nil {
			t.Fatal(err)
		}
		dev := gpus[0]
		tensor.Do(func(s *tensor.Scope) {
			m, loss := c.make(nn.In(s))
			opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
			step := func() {
				s.Do(func(s *tensor.Scope) { loss(s).Backward() }, tensor.Autocast(autocast))
				opt.Step()
				opt.ZeroGrad()
			}
			step()
			dev.ResetPeak()
			step()
			got := dev.Stats().AllocatedPeak
			quotient := float64(got) / float64(want.Peak)
			t.Logf("%-28s %12d bytes, %.3f of PyTorch's %d", name, got, quotient, want.Peak)
			if quotient > bound {
				t.Errorf("%s: %d bytes at the peak, %.3f of PyTorch's %d\n%s", name, got, quotient, want.Peak, ownersAtPeak(t, dev, step))
			}
		}, tensor.On(dev))
	}
	for _, t := range []dtype.Type{dtype.Invalid, dtype.BF16} {
		for _, c := range peakCases {
			compare(c, t, 1.05)
		}
		for _, c := range largeCases {
			compare(c, t, 1.10)
		}
	}
	if len(seen) < 24 {
		t.Errorf("compared %d cases only", len(seen))
	}
}
