package amp_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// modes are the element types that the benchmarks compare: float32, and autocast to a 16-bit type.
var modes = []struct {
	name string
	low  dtype.Type
}{{"float32", dtype.Invalid}, {"bfloat16", dtype.BF16}, {"float16", dtype.F16}}

// BenchmarkMatMul multiplies matrices of 512×512, which autocast casts first.
func BenchmarkMatMul(b *testing.B) {
	for _, mode := range modes {
		b.Run(mode.name, func(b *testing.B) {
			tensor.Do(func(s *tensor.Scope) {
				x, w := s.Randn(512, 512), s.Randn(512, 512)
				for b.Loop() {
					x.MatMul(w).Free()
				}
			}, tensor.Autocast(mode.low))
		})
	}
}

// BenchmarkGPTStep makes a training step of a character GPT under autocast, as BenchmarkCharGPTStep
// of package models does in float32.
func BenchmarkGPTStep(b *testing.B) {
	for _, mode := range modes {
		b.Run(mode.name, func(b *testing.B) {
			tensor.Do(func(s *tensor.Scope) {
				m := models.NewGPT(models.GPTConfig{Vocab: 96, Context: 64, Layers: 4, Heads: 4, Width: 128}, nn.In(s))
				opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
				x, y := s.RandInt(0, 96, 32, 64), s.RandInt(0, 96, 32, 64)
				for b.Loop() {
					s.Do(func(c *tensor.Scope) {
						m.Loss(x.In(c), y.In(c)).Backward()
						opt.Step()
						opt.ZeroGrad()
					}, tensor.Autocast(mode.low))
				}
			})
		})
	}
}

// BenchmarkCNNStep makes a training step of a convolutional network, on 32 images [3, 32, 32].
func BenchmarkCNNStep(b *testing.B) {
	for _, mode := range modes {
		b.Run(mode.name, func(b *testing.B) {
			tensor.Do(func(s *tensor.Scope) {
				pad, in := nn.Padding(1), nn.In(s)
				m := nn.NewSequential(nn.NewConv2d(3, 32, 3, pad, in), nn.NewBatchNorm2d(32, in), nn.ReLU{}, nn.NewMaxPool2d(2),
					nn.NewConv2d(32, 64, 3, pad, in), nn.NewBatchNorm2d(64, in), nn.ReLU{}, nn.NewMaxPool2d(2),
					nn.Flatten{}, nn.NewLinear(64*64, 10, in))
				opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 1e-2, Momentum: 0.9})
				x, y := s.Randn(32, 3, 32, 32), s.RandInt(0, 10, 32)
				for b.Loop() {
					s.Do(func(c *tensor.Scope) {
						nn.CrossEntropy(m.Forward(x.In(c)), y.In(c)).Backward()
						opt.Step()
						opt.ZeroGrad()
					}, tensor.Autocast(mode.low))
				}
			})
		})
	}
}
