package nn_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// mixed has linear layers in a list and in a field, one of them without a bias.
type mixed struct {
	Body *nn.Sequential
	Norm *nn.LayerNorm
	Head *nn.Linear
}

func newMixed(opts ...nn.Option) *mixed {
	return &mixed{Body: nn.NewSequential(nn.NewLinear(12, 40, opts...), nn.GELU{}, nn.NewLinear(40, 12, append(opts, nn.NoBias())...)),
		Norm: nn.NewLayerNorm(12, opts...), Head: nn.NewLinear(12, 5, opts...)}
}

func (m *mixed) Forward(x *tensor.Tensor) *tensor.Tensor {
	return m.Head.Forward(m.Norm.Forward(m.Body.Forward(x)))
}

func TestQuantizeDynamic(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := newMixed(nn.In(s))
		x := s.Randn(3, 7, 12)
		want := nn.Infer(m, x)
		names := slices.Sorted(maps.Keys(nn.StateDict(m)))
		if n := nn.QuantizeDynamic(m); n != 3 {
			t.Errorf("%d layers are quantised, want 3", n)
		}
		if n := nn.QuantizeDynamic(m); n != 0 {
			t.Errorf("%d quantised layers are quantised again", n)
		}
		y := nn.Infer(m, x)
		if off := y.Sub(want).Abs().Amax().Item(); y.Shape() != want.Shape() || off > 0.1 || off == 0 {
			t.Errorf("the results differ by %v, shape %v", off, y.Shape())
		}
		if l := m.Head; l.Weight.Type() != dtype.I8 || l.WeightScale.Type() != dtype.F32 || l.Bias.NeedsGrad() || !m.Norm.Weight.NeedsGrad() {
			t.Errorf("weight %v, scale %v, bias frozen %v, the norm trained %v", l.Weight.Type(), l.WeightScale.Type(), !l.Bias.NeedsGrad(), m.Norm.Weight.NeedsGrad())
		}
		names = append(names, "body.0.weight_scale", "body.2.weight_scale", "head.weight_scale")
		if got := slices.Sorted(maps.Keys(nn.StateDict(m))); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
			t.Errorf("the state dict has %v", got)
		}
		if again := nn.Infer(nn.Clone(m), x); again.Eq(y).All().Item() == 0 {
			t.Error("a clone gives other results")
		}
		nn.Cast(m, dtype.BF16)
		if low := nn.Infer(m, x.BFloat16()); low.Type() != dtype.BF16 || low.Float().Sub(want).Abs().Amax().Item() > 0.2 {
			t.Errorf("in bfloat16 the results are %v and differ by %v", low.Type(), low.Float().Sub(want).Abs().Amax())
		}
	})
}

// An emulated GPU gives the same bits for quantised layers as the CPU.
func TestQuantizedOnOtherDevices(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewLinear(70, 33, nn.In(s))
		x := s.Randn(9, 70)
		nn.QuantizeDynamic(l)
		want := nn.Infer(l, x).Floats()
		nn.To(l, gpus[0])
		if got := nn.Infer(l, x.To(gpus[0])).Floats(); !slices.Equal(got, want) {
			t.Errorf("on the GPU the results are %v, want %v", got, want)
		}
	})
}

func TestQuantizedFiles(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m, x := newMixed(nn.In(s)), s.Randn(4, 12)
		floats := nn.StateDict(nn.Clone(m))
		nn.QuantizeDynamic(m)
		path := filepath.Join(t.TempDir(), "m.safetensors")
		if err := safetensors.Save(path, nn.StateDict(m), nil); err != nil {
			t.Fatal(err)
		}
		sd, _, err := safetensors.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		other := newMixed(nn.In(s))
		var state *nn.StateError
		if err := nn.LoadStateDict(other, sd); !errors.As(err, &state) || len(state.Unexpected) != 3 {
			t.Errorf("loading into a model of floats: %v", err)
		}
		nn.QuantizeDynamic(other)
		if err := nn.LoadStateDict(other, floats); !errors.As(err, &state) || len(state.Missing) != 3 {
			t.Errorf("loading floats into a quantised model: %v", err)
		}
		if err := nn.LoadStateDict(other, sd); err != nil {
			t.Fatal(err)
		}
		if nn.Infer(other, x).Eq(nn.Infer(m, x)).All().Item() == 0 {
			t.Error("the loaded model gives other results")
		}
	})
}

func TestQuantizedErrors(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m, x := newMixed(nn.In(s)), s.Randn(4, 12)
		nn.QuantizeDynamic(m)
		for name, c := range map[string]struct {
			kind error
			f    func()
		}{
			// a weight of the LayerNorm requires a gradient
			"training":                  {tensor.ErrGrad, func() { m.Forward(x) }},
			"an input with gradient":    {tensor.ErrGrad, func() { m.Head.Forward(s.Randn(2, 12).RequiresGrad()) }},
			"an input of integers":      {tensor.ErrType, func() { m.Head.Forward(x.Long()) }},
			"an input of another width": {tensor.ErrShape, func() { m.Head.Forward(s.Randn(2, 11)) }},
			"unfrozen":                  {tensor.ErrType, func() { nn.Unfreeze(m.Head) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) {
				t.Errorf("%s: %v, want an error of the kind %v", name, err, c.kind)
			}
		}
		lazy := nn.NewSequential(nn.NewLinear(3, 4, nn.In(s)), nn.NewLazyLinear(5, nn.In(s)))
		var e *nn.Error
		if err := tensor.Try(func() { nn.QuantizeDynamic(lazy) }); !errors.As(err, &e) || e.Path != "1" {
			t.Errorf("a lazy layer: %v", err)
		}
		if w := lazy.Layers[0].(*nn.Linear).Weight; w.Type() != dtype.F32 {
			t.Error("a layer has changed although another one could not")
		}
		var misuse *optim.Error
		if err := tensor.Try(func() { optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 1}) }); !errors.As(err, &misuse) || !strings.Contains(err.Error(), "int8") {
			t.Errorf("an optimizer of quantised weights: %v", err)
		}
	})
}

// Two layers with the same weight still share it after quantisation.
func TestQuantizeSharedWeight(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		a, b := nn.NewLinear(6, 6, nn.In(s)), nn.NewLinear(6, 6, nn.In(s))
		b.Weight = a.Weight
		if n := nn.QuantizeDynamic(nn.NewSequential(a, nn.ReLU{}, b)); n != 2 || a.Weight != b.Weight || a.WeightScale != b.WeightScale {
			t.Errorf("%d layers, one weight: %v", n, a.Weight == b.Weight)
		}
	})
}

// If one layer cannot be quantised, no layer changes. The same holds for Unfreeze.
func TestQuantizeAllOrNothing(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		a, b := nn.NewLinear(6, 6, nn.In(s)), nn.NewLinear(6, 6, nn.In(s))
		b.Weight.Free()
		if err := tensor.Try(func() { nn.QuantizeDynamic(nn.NewSequential(a, b)) }); err == nil {
			t.Error("a freed weight was quantised")
		}
		if a.Weight.Type() != dtype.F32 || a.WeightScale != nil || !a.Bias.NeedsGrad() {
			t.Errorf("the weight is %v, the bias needs a gradient: %v", a.Weight.Type(), a.Bias.NeedsGrad())
		}

		norm := nn.NewLayerNorm([]int{6}, nn.In(s))
		m := nn.NewSequential(norm, a)
		nn.QuantizeDynamic(m)
		nn.Freeze(m)
		var misuse *tensor.Error
		if err := tensor.Try(func() { nn.Unfreeze(m) }); !errors.As(err, &misuse) || !errors.Is(err, tensor.ErrType) || norm.Weight.NeedsGrad() {
			t.Errorf("Unfreeze: %v, the norm needs a gradient: %v", err, norm.Weight.NeedsGrad())
		}
	})
}

// The linear layer of a LinearCrossEntropyLoss stays float32, and Cast leaves the scales of
// quantised layers float32.
func TestQuantizeLeavesFloat(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		loss := nn.NewLinearCrossEntropyLoss(6, 5, nn.In(s))
		if n := nn.QuantizeDynamic(loss); n != 0 || loss.Linear.Weight.Type() != dtype.F32 {
			t.Errorf("%d layers of a loss, its weight is %v", n, loss.Linear.Weight.Type())
		}
		l := nn.NewLinear(6, 6, nn.In(s))
		nn.QuantizeDynamic(l)
		if nn.Cast(l, dtype.F16); l.WeightScale.Type() != dtype.F32 || l.Bias.Type() != dtype.F16 {
			t.Errorf("after Cast the scale is %v and the bias %v", l.WeightScale.Type(), l.Bias.Type())
		}
	})
}

// BenchmarkQuantized runs a linear layer of 1024 features with weights of float32, bfloat16 and
// int8.
func BenchmarkQuantized(b *testing.B) {
	for _, rows := range []int{1, 16, 256} {
		for _, kind := range []string{"float32", "bfloat16", "int8"} {
			b.Run(fmt.Sprintf("%dx1024/%s", rows, kind), func(b *testing.B) {
				tensor.Do(func(s *tensor.Scope) {
					l, x := nn.NewLinear(1024, 1024, nn.In(s)), s.Randn(rows, 1024)
					switch kind {
					case "bfloat16":
						nn.Cast(l, dtype.BF16)
						x = x.BFloat16()
					case "int8":
						nn.QuantizeDynamic(l)
					}
					for b.Loop() {
						l.Forward(x).Free()
					}
				}, tensor.NoGrad())
			})
		}
	}
}
