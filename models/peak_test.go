package models_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A training step needs no more memory than PyTorch's autograd. For each case, testdata/peak.json
// has two sizes at the peak in PyTorch: "held" counts parameters, optimizer state, gradients and
// saved tensors, and "live" counts temporary tensors too. The script _golden/peak.py explains how
// they were measured. The test counts all memory that the allocator of an emulated GPU allocates
// after a first step, in blocks of 512 bytes.
func TestPeakAgainstPyTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/peak.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases map[string]struct{ Held, Live, Parameters int }
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=16GiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	for _, c := range peakCases {
		want, ok := golden.Cases[c.name]
		if !ok {
			t.Errorf("%s: PyTorch's numbers are not there", c.name)
			continue
		}
		tensor.Do(func(s *tensor.Scope) {
			m, loss := c.make(nn.In(s))
			opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
			step := func() {
				s.Do(func(s *tensor.Scope) { loss(s).Backward() })
				opt.Step()
				opt.ZeroGrad()
			}
			step()
			dev.ResetPeak()
			step()
			got := dev.Stats().AllocatedPeak
			t.Logf("%-22s %12d bytes: %.3f of what PyTorch holds, %.3f of what is live there", c.name, got, float64(got)/float64(want.Held), float64(got)/float64(want.Live))
			if float64(got) > 1.05*float64(want.Held) {
				t.Errorf("%s: %d bytes at the peak, %.3f of the %d that PyTorch holds", c.name, got, float64(got)/float64(want.Held), want.Held)
			}
		}, tensor.On(dev))
	}
}
