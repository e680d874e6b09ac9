package models_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// BenchmarkCharGPTStep measures a training step of a character GPT with 4 layers of 128 features. A
// step has 32 blocks of 64 tokens. The script bench/chargpt/torch_chargpt.py measures the same step
// in PyTorch.
func BenchmarkCharGPTStep(b *testing.B) {
	tensor.Do(func(s *tensor.Scope) {
		m := models.NewGPT(models.GPTConfig{Vocab: 96, Context: 64, Layers: 4, Heads: 4, Width: 128}, nn.In(s))
		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
		x, y := s.RandInt(0, 96, 32, 64), s.RandInt(0, 96, 32, 64)
		step := func() {
			s.Do(func(c *tensor.Scope) {
				m.Loss(x.In(c), y.In(c)).Backward()
				opt.Step()
				opt.ZeroGrad()
			})
		}
		step()
		for b.Loop() {
			step()
		}
	})
}

// BenchmarkGenerate measures greedy generation with the cache, in tokens per second. The model has
// 6 layers of 192 features.
func BenchmarkGenerate(b *testing.B) {
	tensor.Do(func(s *tensor.Scope) {
		m := models.NewGPT(models.GPTConfig{Vocab: 1000, Context: 256, Layers: 6, Heads: 6, Width: 192}, nn.In(s))
		for b.Loop() {
			if _, err := m.Generate([][]int{{1, 2, 3}}, models.GenerateOptions{MaxTokens: 100}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
}
