package nn_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A goldenModel makes the model of a golden case. It also returns the function that applies the
// model to inputs and masks.
type goldenModel func(a golden.Args, opts ...nn.Option) (m any, forward func(x, masks []*tt) []*tt)

// goldenModelCase compares the results of a case, concatenated to one vector, and the gradients
// of inputs and parameters with PyTorch's float64 values. The tolerance is 1e-5·max(1, |value|)
// in float32, and 1e-13·max(1, |value|) in float64. goldenModelCase returns the largest
// difference as a multiple of the tolerance.
func goldenModelCase(t *testing.T, dev device.Device, c golden.Case, ty dtype.Type, build goldenModel) (worst float64) {
	where := fmt.Sprintf("%s %s %v on %s", c.Op, c.Name, ty, dev.Name())
	hold := func(what string, got []float64, want golden.Tensor) {
		w := want.Float64s()
		if len(got) != len(w) {
			t.Errorf("%s, %s: %d numbers, want %d", where, what, len(got), len(w))
			return
		}
		tol := 1e-5
		if ty == dtype.F64 {
			tol = 1e-13
		}
		for i := range w {
			off := math.Abs(got[i]-w[i]) / (tol * math.Max(1, math.Abs(w[i])))
			if worst = math.Max(worst, off); !(off <= 1) {
				t.Errorf("%s, %s: number %d is %v, want %v", where, what, i, got[i], w[i])
				return
			}
		}
	}
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			m, forward := build(c.Args, nn.In(s), nn.Typed(ty))
			var names []string
			var params []*tt
			values := placed(s, dev, c.In[len(c.In)-1], ty)
			at := 0
			s.Do(func(s *tensor.Scope) {
				for _, p := range nn.Named(m) {
					names, params = append(names, p.Name), append(params, p.Tensor)
					p.Tensor.In(s).Copy(values.In(s).Narrow(0, at, p.Tensor.Size()).Reshape(p.Tensor.Shape().Slice()...))
					at += p.Tensor.Size()
				}
			}, tensor.NoGrad())
			var want []string
			if err := json.Unmarshal(c.Args["names"], &want); err != nil || !slices.Equal(names, want) || at != values.Size() {
				t.Errorf("%s: parameters %v, PyTorch's are %v", where, names, want)
				return
			}
			n := c.Args.Int("inputs")
			var x, masks []*tt
			for i, o := range c.In[:len(c.In)-1] {
				v := placed(s, dev, o, ty)
				switch {
				case i < n && o.GradF64 != nil:
					x = append(x, v.RequiresGrad())
				case i < n:
					x = append(x, v)
				case c.Args.Text("masks")[i-n] == 'b':
					masks = append(masks, v.Cast(dtype.Bool))
				default:
					masks = append(masks, v)
				}
			}
			var parts []*tt
			for _, y := range forward(x, masks) {
				parts = append(parts, y.Reshape(-1))
			}
			y := tensor.Cat(0, parts...)
			hold("result", y.Floats(), c.Out[0].F64)
			// Without gradients the layers skip some work, but return the same results.
			s.Do(func(s *tensor.Scope) {
				lent := make([]*tt, len(x))
				for i := range x {
					lent[i] = x[i].In(s)
				}
				var got []float64
				for _, y := range forward(lent, masks) {
					got = append(got, y.Floats()...)
				}
				hold("result without gradients", got, c.Out[0].F64)
			}, tensor.NoGrad())
			if c.Out[0].Seed == nil {
				return
			}
			var leaves []*tt
			for i := range n {
				if c.In[i].GradF64 != nil {
					leaves = append(leaves, x[i])
				}
			}
			seed := s.From(c.Out[0].Seed.Float64s()).Reshape(c.Out[0].Seed.Shape...).Cast(ty).To(dev)
			grads := tensor.Gradients(y, append(leaves, params...), tensor.GradOutput(seed))
			k := 0
			for i := range n {
				if c.In[i].GradF64 != nil {
					hold(fmt.Sprintf("gradient of input %d", i), grads[k].Floats(), *c.In[i].GradF64)
					k++
				}
			}
			var all []float64
			for _, g := range grads[k:] {
				all = append(all, g.Floats()...)
			}
			hold("gradient of the parameters", all, *c.In[len(c.In)-1].GradF64)
		}, tensor.On(dev))
	})
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
	return worst
}

// goldenModels runs goldenModelCase for all cases of a file, in float32 and float64 on the CPU, and
// on an emulated GPU. The file must have at least the given number of cases.
func goldenModels(t *testing.T, path string, least int, build map[string]goldenModel) {
	t.Helper()
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	f, err := golden.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Cases) < least {
		t.Fatalf("%s has %d cases", path, len(f.Cases))
	}
	var worst [3]float64
	for _, c := range f.Cases {
		b := build[c.Op]
		if b == nil {
			t.Fatalf("there is no model for %s", c.Op)
		}
		worst[0] = math.Max(worst[0], goldenModelCase(t, cpu, c, dtype.F32, b))
		worst[1] = math.Max(worst[1], goldenModelCase(t, cpu, c, dtype.F64, b))
		worst[2] = math.Max(worst[2], goldenModelCase(t, gpus[0], c, dtype.F32, b))
	}
	t.Logf("largest differences, of what is allowed: %.3f in float32, %.3f in float64, %.3f on a GPU", worst[0], worst[1], worst[2])
}

func biasOption(a golden.Args, opts []nn.Option) []nn.Option {
	if a.Has("bias") && !a.Bool("bias") {
		opts = append(opts, nn.NoBias())
	}
	return opts
}

func transformerOptions(a golden.Args) nn.TransformerOptions {
	o := nn.TransformerOptions{FeedForward: 5, BatchFirst: a.Bool("batch_first"), NormFirst: a.Bool("norm_first"), Eps: a.Float("eps")}
	if a.Text("act") == "gelu" {
		o.Activation = (*tensor.Tensor).Gelu
	}
	return o
}

var transformerModels = map[string]goldenModel{
	"multi_head_attention": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		m := nn.NewMultiheadAttention(4, 2, nn.MultiheadOptions{KDim: a.Int("kdim"), VDim: a.Int("vdim"), BatchFirst: a.Bool("batch_first"),
			AddBiasKV: a.Bool("bias_kv"), AddZeroAttn: a.Bool("zero")}, biasOption(a, opts)...)
		return m, func(x, masks []*tt) []*tt {
			o := nn.AttendOptions{NeedWeights: a.Bool("weights"), PerHead: a.Bool("per_head")}
			o.Causal = a.Bool("causal")
			var which []string
			if err := json.Unmarshal(a["which"], &which); err != nil {
				panic(err)
			}
			for i, w := range which {
				if w == "mask" {
					o.Mask = masks[i]
				} else {
					o.KeyPadding = masks[i]
				}
			}
			q, k, v := x[0], x[0], x[0]
			if len(x) > 1 {
				k, v = x[1], x[1]
			}
			if len(x) > 2 {
				v = x[2]
			}
			y, w := m.Forward(q, k, v, o)
			if (w != nil) != o.NeedWeights {
				panic("weights come if they are wanted")
			}
			if w != nil {
				return []*tt{y, w}
			}
			return []*tt{y}
		}
	},
	"encoder_layer": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		m := nn.NewTransformerEncoderLayer(4, 2, transformerOptions(a), biasOption(a, opts)...)
		return m, func(x, masks []*tt) []*tt {
			return []*tt{m.ForwardMasked(x[0], nn.Masks{Mask: masks[0], KeyPadding: masks[1]})}
		}
	},
	"decoder_layer": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		m := nn.NewTransformerDecoderLayer(4, 2, transformerOptions(a), biasOption(a, opts)...)
		return m, func(x, masks []*tt) []*tt {
			return []*tt{m.Forward(x[0], x[1], nn.Masks{Mask: masks[0], KeyPadding: masks[1]}, nn.Masks{Mask: masks[2], KeyPadding: masks[3]})}
		}
	},
	"encoder": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		m := nn.NewTransformerEncoder(4, 2, 2, transformerOptions(a), opts...)
		if a.Bool("norm") {
			m.Norm = nn.NewLayerNorm([]int{4}, opts...)
		}
		return m, func(x, masks []*tt) []*tt { return []*tt{m.Forward(x[0])} }
	},
	"transformer": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		m := nn.NewTransformer(4, 2, 1, 2, transformerOptions(a), opts...)
		return m, func(x, masks []*tt) []*tt {
			var encoder, self, cross nn.Masks
			if len(masks) > 0 && masks[0].Rank() == 2 && masks[0].Dim(0) == 3 {
				self.Causal = true // the case's mask is the causal mask
			} else if len(masks) > 0 {
				encoder.KeyPadding, cross.KeyPadding = masks[0], masks[0]
			}
			return []*tt{m.Forward(x[0], x[1], encoder, self, cross)}
		}
	},
}

// Attention layers and transformers have PyTorch's results and gradients. Their parameters have the
// same names in the same order.
func TestGoldenTransformers(t *testing.T) {
	goldenModels(t, "testdata/transformer.safetensors.gz", 45, transformerModels)
}
