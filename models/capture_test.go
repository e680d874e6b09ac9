package models_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// captureCase is a model with a loss that draws random data in each step.
type captureCase struct {
	name string
	make func() (model any, loss func(s *tensor.Scope) *tensor.Tensor)
}

// captureCases returns each kind of model at a small size, with dropout and batch norm.
func captureCases() []captureCase {
	images := func(model interface {
		Forward(*tensor.Tensor) *tensor.Tensor
	}, shape ...int) func(s *tensor.Scope) *tensor.Tensor {
		return func(s *tensor.Scope) *tensor.Tensor {
			return nn.CrossEntropy(model.Forward(s.Rand(shape...)), s.RandInt(0, 5, shape[0]))
		}
	}
	return []captureCase{
		{"MLP", func() (any, func(s *tensor.Scope) *tensor.Tensor) {
			m := models.NewMLP([]int{64, 32, 5}, 0.2)
			return m, images(m, 9, 64)
		}},
		{"LeNet", func() (any, func(s *tensor.Scope) *tensor.Tensor) {
			m := models.NewLeNet(28, 1, 5)
			return m, images(m, 3, 1, 28, 28)
		}},
		{"CNN", func() (any, func(s *tensor.Scope) *tensor.Tensor) {
			m := models.NewCNN(1, 5)
			return m, images(m, 3, 1, 8, 8)
		}},
		{"ResNet", func() (any, func(s *tensor.Scope) *tensor.Tensor) {
			m := models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Classes: 5, Width: 4})
			return m, images(m, 2, 3, 32, 32)
		}},
		{"LSTM", func() (any, func(s *tensor.Scope) *tensor.Tensor) {
			m := &struct {
				LSTM *nn.LSTM
				GRU  *nn.GRU
				Head *nn.Linear
			}{nn.NewLSTM(6, 8, nn.RecurrentOptions{Layers: 2, Dropout: 0.2}), nn.NewGRU(8, 8, nn.RecurrentOptions{Bidirectional: true}), nn.NewLinear(16, 5)}
			return m, func(s *tensor.Scope) *tensor.Tensor {
				y, _, _ := m.LSTM.Forward(s.Randn(7, 3, 6), nil, nil)
				z, _ := m.GRU.Forward(y, nil)
				return nn.CrossEntropy(m.Head.Forward(z.Select(0, -1)), s.RandInt(0, 5, 3))
			}
		}},
		{"GPT", func() (any, func(s *tensor.Scope) *tensor.Tensor) {
			m := models.NewGPT(models.GPTConfig{Vocab: 17, Context: 12, Layers: 2, Heads: 2, Width: 16, Dropout: 0.1})
			return m, func(s *tensor.Scope) *tensor.Tensor { return m.Loss(s.RandInt(0, 17, 2, 12), s.RandInt(0, 17, 2, 12)) }
		}},
		{"BERT", func() (any, func(s *tensor.Scope) *tensor.Tensor) {
			m := models.NewMaskedLM(models.BERTConfig{Vocab: 17, Context: 12, Layers: 2, Heads: 2, Width: 16, Hidden: 32, Dropout: 0.1})
			return m, func(s *tensor.Scope) *tensor.Tensor {
				return m.Loss(s.RandInt(0, 17, 2, 12), s.RandInt(0, 17, 2, 12), models.BERTInput{})
			}
		}},
		{"ViT", func() (any, func(s *tensor.Scope) *tensor.Tensor) {
			m := models.NewViT(models.ViTConfig{Image: 16, Patch: 8, Layers: 2, Heads: 2, Width: 16, Classes: 5, Dropout: 0.1})
			return m, images(m, 2, 3, 16, 16)
		}},
	}
}

// Replays of a training step that was captured on the CPU are bitwise equal to eager steps, in
// float32 and under autocast. This holds for parameters, running statistics and the generator's
// state.
func TestCapturedOnCPU(t *testing.T) {
	for _, c := range captureCases() {
		for _, low := range []dtype.Type{0, dtype.BF16} {
			name := c.name
			if low != 0 {
				name += " " + low.String()
			}
			t.Run(name, func(t *testing.T) {
				run := func(captured bool) (all []float64) {
					tensor.ManualSeed(3)
					model, loss := c.make()
					gen := tensor.NewGenerator(5)
					opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-2})
					last := tensor.Zeros()
					f := func(s *tensor.Scope) {
						l := loss(s)
						l.Backward()
						optim.ClipGradNorm(nn.Parameters(model), 1)
						opt.Step()
						opt.ZeroGrad()
						last.In(s).Copy(l.Detach())
					}
					opts := []tensor.Option{tensor.WithGenerator(gen), tensor.Autocast(low)}
					step := func() error { return tensor.Try(func() { tensor.Do(f, opts...) }) }
					if captured {
						g, err := tensor.Capture(cpu.Get(), f, opts...)
						if err != nil {
							t.Fatal(err)
						}
						defer g.Close()
						step = g.Replay
					}
					for range 4 {
						if err := step(); err != nil {
							t.Fatal(err)
						}
						all = append(all, last.Item())
					}
					d := nn.StateDict(model)
					for _, name := range slices.Sorted(maps.Keys(d)) {
						all = append(all, d[name].Floats()...)
					}
					_, offset := gen.State()
					return append(all, float64(offset))
				}
				if want, got := run(false), run(true); !slices.Equal(want, got) {
					t.Errorf("losses of %v by replays, %v by eager steps", got[:4], want[:4])
				}
			})
		}
	}
}
