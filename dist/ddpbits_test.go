package dist

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// charNet is a small transformer that predicts the next of eleven characters.
type charNet struct {
	nn.Base
	Embed   *nn.Embedding
	Encoder *nn.TransformerEncoder
	Out     *nn.Linear
}

func newCharNet(typ dtype.Type, dropout float64) *charNet {
	o := nn.TransformerOptions{FeedForward: 16, BatchFirst: true, Dropout: dropout}
	return fixed(&charNet{
		Embed:   nn.NewEmbedding(11, 8, nn.Typed(typ)),
		Encoder: nn.NewTransformerEncoder(8, 2, 1, o, nn.Typed(typ)),
		Out:     nn.NewLinear(8, 11, nn.Typed(typ)),
	})
}

func (m *charNet) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return m.Out.Forward(m.Encoder.ForwardMasked(m.Embed.Forward(x), nn.Masks{Causal: true}))
}

// newCNN returns a convolutional network. If norm is set, it has batch norms with running
// statistics.
func newCNN(typ dtype.Type, norm bool) *nn.Sequential {
	of := nn.Typed(typ)
	layers := []nn.Module{nn.NewConv2d(1, 3, 3, of, nn.Padding(1))}
	if norm {
		layers = append(layers, nn.Eval(nn.NewBatchNorm2d(3, of)))
	}
	layers = append(layers, nn.ReLU{}, nn.NewFlatten(1, -1), nn.NewLinear(3*12, 5, of))
	return fixed(nn.NewSequential(layers...))
}

// kit is a function that makes a model, with functions for its data and its loss.
type kit struct {
	model func() nn.Module
	loss  func(s *tensor.Scope, m nn.Module, step, lo, hi int) *tensor.Tensor
}

func kits(typ dtype.Type, dropout float64) map[string]kit {
	classes := func(shape ...int) func(*tensor.Scope, nn.Module, int, int, int) *tensor.Tensor {
		return func(s *tensor.Scope, m nn.Module, step, lo, hi int) *tensor.Tensor {
			x, y := batch(s, typ, step, lo, hi)
			return nn.CrossEntropy(m.Forward(x.Reshape(append([]int{hi - lo}, shape...)...)), y)
		}
	}
	return map[string]kit{
		"mlp": {func() nn.Module { return mlp(typ) }, classes(12)},
		"cnn": {func() nn.Module { return newCNN(typ, true) }, classes(1, 3, 4)},
		"chars": {func() nn.Module { return newCharNet(typ, dropout) }, func(s *tensor.Scope, m nn.Module, step, lo, hi int) *tensor.Tensor {
			var x, y []int64
			for i := lo; i < hi; i++ {
				for k := range 6 {
					at := step*5 + i*7 + k*k
					x, y = append(x, int64(at%11)), append(y, int64((at*3+1)%11))
				}
			}
			return nn.CrossEntropy(m.Forward(s.From(x).Reshape(hi-lo, 6)).Reshape(-1, 11), s.From(y))
		}},
	}
}

// drill describes a training: a model with its data, and the settings.
type drill struct {
	kit
	steps, parts int // number of steps, and number of parts of each batch
	bf16         bool
	sharded      bool // use ZeRO with AdamW as the optimizer
	synced       bool // use batch norms whose statistics are over all ranks
	opts         []DDPOption
}

// train trains the model on the samples with numbers lo to hi-1 of each step, and returns the
// weights and the losses. It calls do for each part of a batch. All parts except the last run
// inside a call of quiet.
func (d *drill) train(m nn.Module, g *Group, do func(func(s *tensor.Scope), ...tensor.Option), quiet func(func()), lo, hi int) (w, losses []float64) {
	var opt interface {
		optim.Optimizer
		amp.Optimizer
	} = optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.05, Momentum: 0.9})
	if d.sharded {
		adam := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
		if opt = adam; g != nil {
			opt = NewZeRO(g, adam)
		}
	}
	scaler := amp.NewGradScaler(amp.Enabled(d.bf16), amp.InitScale(1024))
	var modes []tensor.Option
	if d.bf16 {
		modes = append(modes, tensor.Autocast(dtype.BF16))
	}
	n := (hi - lo) / d.parts
	for step := range d.steps {
		sum := 0.0
		for k := range d.parts {
			part := func() {
				do(func(s *tensor.Scope) {
					loss := d.loss(s, m, step, lo+k*n, lo+(k+1)*n).DivScalar(float64(d.parts))
					sum += loss.Item()
					scaler.Scale(loss).Backward()
				}, modes...)
			}
			if k < d.parts-1 {
				quiet(part)
			} else {
				part()
			}
		}
		scaler.Step(opt)
		scaler.Update()
		opt.ZeroGrad()
		losses = append(losses, sum)
	}
	return weights(m), losses
}

func (d *drill) alone() (w, losses []float64) {
	return d.train(d.model(), nil, func(f func(s *tensor.Scope), o ...tensor.Option) { tensor.Do(f, o...) }, func(f func()) { f() }, 0, whole)
}

// ranks trains on many devices. It checks that all ranks have equal weights, and returns these
// weights and the mean losses.
func (d *drill) ranks(t *testing.T, l DeviceList) (w, losses []float64) {
	t.Helper()
	run(t, l, func(g *Group) {
		m := nn.To(d.model(), g.Device())
		if d.synced {
			ConvertSyncBatchNorm(m, g)
		}
		DDP(m, g, d.opts...)
		n := whole / g.World()
		own, some := d.train(m, g, g.Do, g.NoSync, g.Rank()*n, (g.Rank()+1)*n)
		all, means := Exchange(g, own), Exchange(g, some)
		if !slices.Equal(all[0], own) {
			t.Errorf("weights of ranks 0 and %d differ", g.Rank())
		}
		if g.Rank() == 0 {
			w, losses = own, make([]float64, d.steps)
			for i := range losses {
				for _, x := range means {
					losses[i] += x[i] / float64(g.World())
				}
			}
		}
	}, Seed(7))
	return w, losses
}

// TestDDPEqualsOneProcess trains for ten to fifty steps and compares the weights with those of one
// process.
func TestDDPEqualsOneProcess(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("TestDDP is the short form")
	}
	for kind, l := range lists(t, 2) {
		typ, steps := dtype.F64, 50
		if kind == "cuda×2" {
			typ, steps = dtype.F32, 20
		}
		for name, k := range kits(typ, 0) {
			t.Run(fmt.Sprintf("%s/%s, %v", kind, name, typ), func(t *testing.T) {
				d := &drill{kit: k, steps: steps, parts: 1}
				if name == "chars" {
					if d.parts = 2; kind == "cuda×2" {
						d.steps = 10
					}
				}
				want, _ := d.alone()
				got, _ := d.ranks(t, l)
				if d := distance(got, want); !(d <= tolerance(typ)) {
					t.Errorf("the weights are %v from one process", d)
				}
			})
		}
	}
}

// TestDDPSameBits trains twice, with and without dropout, and compares the bits.
func TestDDPSameBits(t *testing.T) {
	t.Parallel()
	for kind, l := range lists(t, 2) {
		if testing.Short() && kind != "cpu×2" {
			continue
		}
		for _, dropout := range []float64{0, 0.2} {
			for name, k := range kits(dtype.F32, dropout) {
				if dropout > 0 && name != "chars" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s, dropout %v", kind, name, dropout), func(t *testing.T) {
					steps := 4
					if kind == "cuda×2" {
						// two steps: the buckets have another order from the second step on
						steps = 2
					}
					d := &drill{kit: k, steps: steps, parts: 1, opts: []DDPOption{BucketBytes(600, 3000)}}
					a, la := d.ranks(t, l)
					b, lb := d.ranks(t, l)
					if !slices.Equal(a, b) || !slices.Equal(la, lb) {
						t.Error("a second run has other bits")
					}
					d.opts = nil
					if c, _ := d.ranks(t, l); !slices.Equal(a, c) {
						t.Error("buckets of other sizes give other bits")
					}
					if dropout > 0 {
						plain := &drill{kit: kits(dtype.F32, 0)[name], steps: steps, parts: 1}
						if c, _ := plain.ranks(t, l); slices.Equal(a, c) {
							t.Error("nothing was dropped")
						}
					}
				})
			}
		}
	}
}

// TestDDPAutocast trains in bfloat16 with a scaled loss. The losses must be within 2 % of those of
// one process.
func TestDDPAutocast(t *testing.T) {
	t.Parallel()
	for kind, l := range lists(t, 2) {
		if testing.Short() && kind != "cpu×2" {
			continue
		}
		for name, k := range kits(dtype.F32, 0) {
			t.Run(kind+"/"+name, func(t *testing.T) {
				d := &drill{kit: k, steps: 8, parts: 2, bf16: true}
				if kind == "cuda×2" && name == "chars" {
					d.steps = 3
				}
				_, want := d.alone()
				_, got := d.ranks(t, l)
				_, again := d.ranks(t, l)
				for i := range want {
					if math.Abs(got[i]-want[i]) > 0.02*want[i] {
						t.Errorf("loss %d is %v, of one process %v", i, got[i], want[i])
					}
				}
				if !slices.Equal(got, again) {
					t.Error("a second run has other bits")
				}
			})
		}
	}
}
