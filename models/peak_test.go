package models_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A training step holds no more than PyTorch's autograd does. testdata/peak.json has, for each case, what parameters, optimizer state,
// gradients and saved tensors of the same step take in PyTorch at the worst moment (held), without what is on its way in forward and Backward,
// and what all its tensors take (live); _golden/peak.py says how it is taken. Here everything counts that the allocator of an emulated GPU hands out,
// in blocks of 512 bytes, after a first step.
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
	type step func(s *tensor.Scope) *tt
	classes := func(m nn.Module, dims ...int) step {
		return func(s *tensor.Scope) *tt {
			logits := m.Forward(s.Zeros(dims...))
			defer logits.Free() // as PyTorch does when the expression ends
			return nn.CrossEntropy(logits, s.Typed(dtype.I64).Zeros(dims[0]))
		}
	}
	mlp := func(in nn.Option, layers int, dropout float64) nn.Module {
		sizes := make([]int, layers+1)
		for i := range sizes {
			sizes[i] = 256
		}
		return models.NewMLP(sizes, dropout, in)
	}
	gpt := func(in nn.Option, vocab, context, layers, heads, width int, dropout float64, batch int) (any, step) {
		m := models.NewGPT(models.GPTConfig{Vocab: vocab, Context: context, Layers: layers, Heads: heads, Width: width, Dropout: dropout}, in)
		return m, func(s *tensor.Scope) *tt {
			ids := s.Typed(dtype.I64).Zeros(batch, context)
			return m.Loss(ids, s.Typed(dtype.I64).Zeros(batch, context))
		}
	}
	for _, c := range []struct {
		name string
		make func(in nn.Option) (any, step)
	}{
		{"mlp", func(in nn.Option) (any, step) {
			m := models.NewMLP([]int{784, 512, 256, 10}, 0.2, in)
			return m, classes(m, 128, 784)
		}},
		{"mlp, wide batch", func(in nn.Option) (any, step) {
			m := models.NewMLP([]int{784, 512, 256, 10}, 0.2, in)
			return m, classes(m, 2048, 784)
		}},
		{"mlp, 24 layers", func(in nn.Option) (any, step) { m := mlp(in, 24, 0.1); return m, classes(m, 1024, 256) }},
		{"mlp, without dropout", func(in nn.Option) (any, step) { m := mlp(in, 24, 0); return m, classes(m, 1024, 256) }},
		{"lenet", func(in nn.Option) (any, step) {
			m := models.NewLeNet(28, 1, 10, in)
			return m, classes(m, 256, 1, 28, 28)
		}},
		{"cnn", func(in nn.Option) (any, step) { m := models.NewCNN(1, 10, in); return m, classes(m, 256, 1, 28, 28) }},
		{"chargpt", func(in nn.Option) (any, step) { return gpt(in, 65, 64, 4, 4, 128, 0, 32) }},
		{"chargpt, dropout", func(in nn.Option) (any, step) { return gpt(in, 65, 64, 4, 4, 128, 0.1, 32) }},
		{"gpt, 12 layers", func(in nn.Option) (any, step) { return gpt(in, 1000, 256, 12, 4, 256, 0.1, 2) }},
	} {
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
