package nn_test

import (
	"bytes"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// naive is a user's layer that does not support checkpointing.
type naive struct {
	nn.Base
	Body *nn.Sequential
	Norm *nn.BatchNorm1d
}

func (b *naive) Forward(x *tt) (y *tt) {
	defer b.Enter(&x, &y)()
	return x.Add(b.Norm.Forward(b.Body.Forward(x)))
}

func newNaive(in nn.Option) *naive {
	return &naive{Body: nn.NewSequential(nn.NewLinear(8, 8, in), &nn.ReLU{}, nn.NewDropout(0.2), nn.NewLinear(8, 8, in)), Norm: nn.NewBatchNorm1d(8, in)}
}

// A step with checkpointing gives exactly the same loss, gradients, running statistics and random
// generator state as a step without it. Backward computes the layers a second time.
func TestSetCheckpointing(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []tensor.Option{tensor.Seed(1), tensor.On(gpus[0])} {
		tensor.Do(func(s *tensor.Scope) {
			in := nn.In(s)
			plain := func(n int) *nn.Sequential {
				m := nn.NewSequential()
				for range n {
					average := nn.NewBatchNorm1d(8, in)
					average.Momentum = nn.CumulativeAverage
					m.Layers = append(m.Layers, nn.NewLinear(8, 8, in), nn.NewBatchNorm1d(8, in), &nn.ReLU{}, nn.NewDropout(0.3), average)
				}
				return m
			}
			options := nn.TransformerOptions{FeedForward: 16, Dropout: 0.1}
			for name, c := range map[string]struct {
				m     any
				parts int
				run   func(x *tt) *tt
			}{
				"chain":         {m: plain(4), parts: 1},
				"blocks":        {m: nn.NewSequential(nn.NewLinear(8, 8, in), newNaive(in), newNaive(in), nn.Tanh{}, nn.NewLinear(8, 8, in)), parts: 1},
				"chain in it":   {m: nn.NewSequential(plain(1), &nn.ReLU{}, plain(1)), parts: 3},
				"encoder":       {m: nn.NewTransformerEncoder(8, 2, 3, options, in), parts: 3},
				"encoder in it": {m: nn.NewSequential(nn.NewTransformerEncoder(8, 2, 2, options, in), nn.NewLinear(8, 8, in)), parts: 3},
				"nothing":       {m: nn.NewLinear(8, 8, in), parts: 0},
			} {
				x := s.Randn(6, 8)
				first := nn.StateDict(c.m)
				for k, v := range first {
					first[k] = v.Clone()
				}
				step := func() []byte {
					s.Generator().SetState(7, 0)
					if err := nn.LoadStateDict(c.m, first); err != nil {
						t.Fatal(err)
					}
					nn.ZeroGrad(c.m)
					var all []byte
					s.Do(func(s *tensor.Scope) {
						loss := c.m.(nn.Module).Forward(x.In(s)).Square().Sum()
						loss.Backward()
						all = loss.Bytes()
					})
					for _, p := range nn.Named(c.m) {
						if all = append(all, p.Tensor.Bytes()...); !p.Buffer {
							all = append(all, p.Tensor.Grad().Bytes()...)
						}
					}
					return append(all, s.Rand(3).Bytes()...)
				}
				want := step()
				if n := nn.SetCheckpointing(c.m, true); n != c.parts {
					t.Errorf("%s: %d parts know how, not %d", name, n, c.parts)
				}
				if !bytes.Equal(step(), want) {
					t.Errorf("%s on %s: not the same bits with checkpointing", name, s.Device().Name())
				}
				if n := nn.SetCheckpointing(c.m, false); n < c.parts || !bytes.Equal(step(), want) {
					t.Errorf("%s: not the same bits without checkpointing again; %d parts", name, n)
				}
			}
		}, on)
	}
}

// The masks and the memory of a decoder may be freed before Backward, because they are operands of
// the checkpointed function.
func TestCheckpointedDecoder(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := nn.NewTransformer(8, 2, 2, 2, nn.TransformerOptions{FeedForward: 16, Dropout: 0.1}, nn.In(s))
		x, y := s.Randn(5, 3, 8), s.Randn(4, 3, 8)
		step := func() (all []byte) {
			nn.ZeroGrad(m)
			s.Generator().SetState(7, 0)
			s.Do(func(s *tensor.Scope) {
				var out *tt
				s.Do(func(c *tensor.Scope) {
					padding := c.From([]bool{false, false, false, true, true, false, false, false, false, false, false, false, false, false, true}, 3, 5)
					out = m.Forward(x.In(c), y.In(c), nn.Masks{KeyPadding: padding}, nn.Masks{Mask: nn.CausalMask(c.On(c.Device()), 4)}, nn.Masks{KeyPadding: padding})
					c.Close(out)
				})
				out.Square().Sum().Backward()
			})
			for _, p := range nn.Parameters(m) {
				all = append(all, p.Grad().Bytes()...)
			}
			return all
		}
		want := step()
		if n := nn.SetCheckpointing(m, true); n != 4 {
			t.Errorf("%d parts", n)
		}
		if !bytes.Equal(step(), want) {
			t.Error("not the same bits")
		}
	})
}
