package nn_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// First and second derivatives of attention and of a transformer layer with respect to inputs,
// parameters and a mask equal central differences.
func TestAttentionDerivatives(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		opts := []nn.Option{nn.In(s), nn.Typed(dtype.F64)}
		double := s.Typed(dtype.F64)
		m := nn.NewMultiheadAttention(2, 2, nn.MultiheadOptions{AddBiasKV: true}, opts...)
		m.InProjBias.Detach().UniformInPlace(-1, 1)
		padding := s.From([]bool{false, true, false, false}, 2, 2)
		q, kv, mask := double.Uniform(-1, 1, 2, 2, 2), double.Uniform(-1, 1, 2, 2, 2), double.Uniform(-1, 1, 2, 2)
		in := []*tt{q, kv, mask, m.InProjWeight, m.BiasK}
		for _, weights := range []bool{false, true} {
			err := autograd.Check(func(x []*tt) *tt {
				m.InProjWeight, m.BiasK = x[3], x[4]
				y, w := m.Forward(x[0], x[1], x[1], nn.AttendOptions{Masks: nn.Masks{Mask: x[2], KeyPadding: padding}, NeedWeights: weights})
				if w != nil {
					y = y.Reshape(-1).Add(w.Sum())
				}
				return y
			}, in, autograd.CheckOptions{SecondOrder: true})
			if err != nil {
				t.Errorf("weights %v: %v", weights, err)
			}
		}
		l := nn.NewTransformerEncoderLayer(2, 1, nn.TransformerOptions{FeedForward: 2, Activation: (*tt).Gelu}, opts...)
		if err := autograd.Check(func(x []*tt) *tt {
			l.Linear1.Weight = x[1]
			return l.ForwardMasked(x[0], nn.Masks{Causal: true})
		}, []*tt{q, l.Linear1.Weight}, autograd.CheckOptions{SecondOrder: true}); err != nil {
			t.Error(err)
		}
	}, tensor.Seed(3))
}

// Causal attention with padded keys needs no mask of the size queries times keys, so its peak
// memory grows linearly with the length. The results equal those with one combined mask.
func TestCausalWithPadding(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=1GiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	const length, features = 4096, 16
	peak := func(masks func(s *tensor.Scope) nn.Masks) (bytes int) {
		tensor.Do(func(s *tensor.Scope) {
			m := nn.NewMultiheadAttention(features, 1, nn.MultiheadOptions{}, nn.In(s))
			x := s.Zeros(length, 1, features).RequiresGrad()
			o := nn.AttendOptions{Masks: masks(s)}
			dev.ResetPeak()
			y, _ := m.Forward(x, x, x, o)
			y.Sum().Backward()
			bytes = dev.Stats().AllocatedPeak
		}, tensor.On(dev))
		return bytes
	}
	alone := peak(func(*tensor.Scope) nn.Masks { return nn.Masks{Causal: true} })
	padded := peak(func(s *tensor.Scope) nn.Masks {
		return nn.Masks{Causal: true, KeyPadding: s.Typed(dtype.Bool).Zeros(1, length)}
	})
	if padded > alone+4*length {
		t.Errorf("%d bytes with padded keys, %d without", padded, alone)
	}
	tensor.Do(func(s *tensor.Scope) {
		m := nn.NewMultiheadAttention(4, 2, nn.MultiheadOptions{}, nn.In(s))
		x := s.Rand(3, 2, 4).RequiresGrad()
		// The padding of the second sample includes its first key, so query 0 has no key to attend
		// to.
		padding := s.From([]bool{false, false, true, true, false, false}, 2, 3)
		above := s.Typed(dtype.Bool).Ones(3, 3).Triu(1)
		ways := []nn.Masks{{Mask: above, KeyPadding: padding}, {Causal: true, KeyPadding: padding}, {Causal: true, Mask: above, KeyPadding: padding}}
		var want []*tt
		for i, masks := range ways {
			y, _ := m.Forward(x, x, x, nn.AttendOptions{Masks: masks})
			got := append(tensor.Gradients(y.Square().Sum(), []*tt{x, m.InProjWeight}), y)
			if i == 0 {
				want = got
			}
			for k := range got {
				if !got[k].AllClose(want[k], 1e-6, 1e-6) {
					t.Errorf("way %d, result %d: %v, want %v", i, k, got[k], want[k])
				}
			}
		}
	}, tensor.Seed(4))
}

// If a query attends to no key, its result is the bias of the output projection, and the
// gradients are finite. This holds with and without NeedWeights.
func TestNothingToAttendTo(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := nn.NewMultiheadAttention(4, 2, nn.MultiheadOptions{}, nn.In(s))
		m.OutProj.Bias.Detach().UniformInPlace(-1, 1)
		x := s.Rand(2, 1, 4).RequiresGrad()
		for _, mask := range []*tt{s.From([]bool{true, true, false, false}, 2, 2), s.From([]float32{float32(math.Inf(-1)), float32(math.Inf(-1)), 0, 0}, 2, 2)} {
			for _, weights := range []bool{false, true} {
				y, w := m.Forward(x, x, x, nn.AttendOptions{Masks: nn.Masks{Mask: mask}, NeedWeights: weights})
				if got := y.Select(0, 0).Floats(); !slices.Equal(got, m.OutProj.Bias.Floats()) {
					t.Errorf("weights %v: %v", weights, got)
				}
				if weights && !slices.Equal(w.Floats(), []float64{0, 0, w.Floats()[2], w.Floats()[3]}) {
					t.Errorf("weights %v", w)
				}
				for _, g := range tensor.Gradients(y.Square().Sum(), []*tt{x, m.InProjWeight}) {
					if slices.ContainsFunc(g.Floats(), func(v float64) bool { return v-v != 0 }) {
						t.Errorf("weights %v: gradient %v", weights, g)
					}
				}
			}
		}
	}, tensor.Seed(3))
}

// Dropout acts only in training. It drops attention weights, and elements of the results of
// attention and of the linear layers.
func TestTransformerDropout(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewTransformerEncoderLayer(4, 2, nn.TransformerOptions{FeedForward: 8, Dropout: 0.5}, nn.In(s))
		x := s.Rand(3, 2, 4)
		if a, b := l.Forward(x).Floats(), l.Forward(x).Floats(); slices.Equal(a, b) {
			t.Error("nothing is dropped in training")
		}
		nn.Eval(l)
		if a, b := l.Forward(x).Floats(), l.Forward(x).Floats(); !slices.Equal(a, b) {
			t.Error("two results in evaluation")
		}
		m := nn.NewMultiheadAttention(4, 2, nn.MultiheadOptions{Dropout: 1}, nn.In(s))
		_, w := m.Forward(x, x, x, nn.AttendOptions{NeedWeights: true})
		if slices.ContainsFunc(w.Floats(), func(v float64) bool { return v != 0 }) {
			t.Errorf("weights that are all dropped: %v", w)
		}
		y, _ := m.Forward(x, x, x, nn.AttendOptions{})
		if slices.ContainsFunc(y.Floats(), func(v float64) bool { return v != 0 }) {
			t.Errorf("a result of dropped weights: %v", y)
		}
	}, tensor.Seed(3))
}

// Without gradients, a call leaves only its result in memory.
func TestTransformerLeavesNothing(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewTransformerEncoderLayer(8, 2, nn.TransformerOptions{FeedForward: 16}, nn.In(s))
		x := s.Rand(16, 4, 8)
		before := dev.Stats().Allocated
		y := l.Forward(x)
		if held, most := dev.Stats().Allocated-before, y.Size()*4; int(held) != most {
			t.Errorf("%d bytes are held, the result has %d", held, most)
		}
	}, tensor.On(dev), tensor.NoGrad())
}

func TestAttentionMisuse(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := nn.NewMultiheadAttention(4, 2, nn.MultiheadOptions{}, nn.In(s))
		x, bools := s.Rand(3, 2, 4), s.Typed(dtype.Bool)
		call := func(q, k, v *tt, masks nn.Masks) func() {
			return func() { m.Forward(q, k, v, nn.AttendOptions{Masks: masks}) }
		}
		for name, c := range map[string]struct {
			kind error
			f    func()
			says string
		}{
			"nil":            {tensor.ErrValue, call(x, nil, x, nn.Masks{}), "nil"},
			"rank":           {tensor.ErrShape, call(s.Rand(4), x, x, nn.Masks{}), "[4]"},
			"mixed ranks":    {tensor.ErrShape, call(x, s.Rand(3, 4), x, nn.Masks{}), "[3, 4]"},
			"features":       {tensor.ErrShape, call(s.Rand(3, 2, 5), x, x, nn.Masks{}), "queries have 5 features, the layer needs 4"},
			"value features": {tensor.ErrShape, call(x, x, s.Rand(3, 2, 5), nn.Masks{}), "values have 5"},
			"batches":        {tensor.ErrShape, call(x, s.Rand(3, 1, 4), s.Rand(3, 1, 4), nn.Masks{}), "2 sequences of queries, 1 of keys"},
			"lengths":        {tensor.ErrShape, call(x, x, s.Rand(2, 2, 4), nn.Masks{}), "3 keys and 2 values"},
			"mask":           {tensor.ErrShape, call(x, x, x, nn.Masks{Mask: bools.Zeros(3, 2)}), "Mask has shape [3, 2]"},
			"mask of batch":  {tensor.ErrShape, call(x, x, x, nn.Masks{Mask: bools.Zeros(2, 3, 3)}), "[4 3 3]"},
			"padding":        {tensor.ErrShape, call(x, x, x, nn.Masks{KeyPadding: bools.Zeros(3, 2)}), "KeyPadding has shape [3, 2]"},
			"integers":       {tensor.ErrType, call(x, x, x, nn.Masks{Mask: s.Typed(dtype.I64).Zeros(3, 3)}), "Cast(dtype.Bool)"},
			"types":          {tensor.ErrType, call(x.Double(), x.Double(), x.Double(), nn.Masks{}), "float64"},
			"nil to encoder": {tensor.ErrValue, func() { nn.NewTransformerEncoderLayer(2, 1, nn.TransformerOptions{}).Forward(nil) }, "nil"},
			"nil memory": {tensor.ErrValue, func() {
				nn.NewTransformerDecoderLayer(4, 1, nn.TransformerOptions{}).Forward(x, nil, nn.Masks{}, nn.Masks{})
			}, "nil"},
		} {
			err := tensor.Try(c.f)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, f := range []func(){
			func() { nn.NewMultiheadAttention(5, 2, nn.MultiheadOptions{}) },
			func() { nn.NewMultiheadAttention(4, 0, nn.MultiheadOptions{}) },
			func() { nn.NewMultiheadAttention(4, 2, nn.MultiheadOptions{KDim: -1}) },
			func() { nn.NewMultiheadAttention(4, 2, nn.MultiheadOptions{Dropout: 2}) },
		} {
			func() {
				defer func() {
					if _, ok := recover().(*nn.Error); !ok {
						t.Error("a layer that cannot be was made")
					}
				}()
				f()
			}()
		}
	})
}
