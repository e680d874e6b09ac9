package cuda_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCapturedModels captures training steps of networks with many kinds of layers. Replays must
// compute the same bits as eager steps.
func TestCapturedModels(t *testing.T) {
	type model struct {
		layers []any
		loss   func(s *tensor.Scope) *tensor.Tensor
	}
	for name, make := range map[string]func() model{
		"convolution": func() model {
			conv, norm := nn.NewConv2d(1, 3, []int{3, 3}, nn.Padding(1)), nn.NewGroupNorm(1, 3)
			pool, last := nn.NewMaxPool2d([]int{2, 2}), nn.NewLinear(3*3*3, 4)
			return model{[]any{conv, norm, last}, func(s *tensor.Scope) *tensor.Tensor {
				h := pool.Forward(norm.Forward(conv.Forward(s.Rand(2, 1, 6, 6))).Relu())
				return last.Forward(h.Dropout2d(0.3).Flatten(1, -1)).LogSoftmax(-1).Square().Mean()
			}}
		},
		"transformer": func() model {
			words, block := nn.NewEmbedding(9, 8), nn.NewTransformerEncoderLayer(8, 2, nn.TransformerOptions{FeedForward: 12, Dropout: 0.2, BatchFirst: true})
			return model{[]any{words, block}, func(s *tensor.Scope) *tensor.Tensor {
				ids := s.RandInt(0, 9, 2, 5)
				h := block.Forward(words.Forward(ids))
				return nn.CrossEntropy(h.Reshape(10, 8), ids.Reshape(10).RemainderScalar(8))
			}}
		},
		"recurrent": func() model {
			lstm, norm := nn.NewLSTM(4, 5, nn.RecurrentOptions{}), nn.NewLayerNorm([]int{5})
			return model{[]any{lstm, norm}, func(s *tensor.Scope) *tensor.Tensor {
				y, _, _ := lstm.Forward(s.Randn(3, 2, 4), nil, nil)
				return norm.Forward(y).Sub(s.Ones(3, 2, 5)).Abs().Sum()
			}}
		},
	} {
		if testing.Short() && name != "transformer" {
			continue // without FLAMBEAU_SOAK only one model is tested
		}
		t.Run(name, func(t *testing.T) {
			run := func(captured bool) (all []float64) {
				list, err := cuda.Emulate(fmt.Sprint("emulate,mem=64MiB,seed=", 7))
				if err != nil {
					t.Fatal(err)
				}
				dev := list[0]
				m := make()
				init := tensor.NewGenerator(2)
				var params []*tensor.Tensor
				var dicts []map[string]*tensor.Tensor
				for _, l := range m.layers {
					nn.To(l, dev)
					params = append(params, nn.Parameters(l)...)
					dicts = append(dicts, nn.StateDict(l))
				}
				tensor.Do(func(s *tensor.Scope) {
					for _, p := range params {
						p.In(s).Copy(s.On(dev).Typed(dtype.F32).Normal(0, 0.3, p.Shape().Slice()...))
					}
				}, tensor.WithGenerator(init), tensor.NoGrad(), tensor.On(dev))
				opt := optim.NewAdam(params, optim.AdamConfig{LR: 0.02})
				loss := tensor.Root().On(dev).Zeros()
				f := func(s *tensor.Scope) {
					l := m.loss(s)
					l.Backward()
					opt.Step()
					opt.ZeroGrad()
					loss.In(s).Copy(l.Detach())
				}
				opts := []tensor.Option{tensor.On(dev), tensor.WithGenerator(tensor.NewGenerator(4))}
				step := func() error { return tensor.Try(func() { tensor.Do(f, opts...) }) }
				if captured {
					g, err := tensor.Capture(dev, f, opts...)
					if err != nil {
						t.Fatal(err)
					}
					defer g.Close()
					step = g.Replay
				}
				for range 3 {
					if err := step(); err != nil {
						t.Fatal(err)
					}
				}
				all = append(all, loss.Item())
				for _, d := range dicts {
					for _, name := range slices.Sorted(maps.Keys(d)) {
						all = append(all, d[name].Floats()...)
					}
				}
				return all
			}
			if want, got := run(false), run(true); !slices.Equal(want, got) {
				t.Errorf("losses of %v by replays, %v by eager steps", got[0], want[0])
			}
		})
	}
}
