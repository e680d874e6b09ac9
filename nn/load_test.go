package nn_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// everyLayer makes one layer of each kind that has parameters.
func everyLayer(opts ...nn.Option) map[string]any {
	return map[string]any{
		"linear":    nn.NewLinear(3, 4, opts...),
		"bilinear":  nn.NewBilinear(2, 3, 4, opts...),
		"embedding": nn.NewEmbedding(5, 3, append([]nn.Option{nn.PaddingIndex(1)}, opts...)...),
		"bag":       nn.NewEmbeddingBag(5, 3, nn.BagSum, opts...),
		"conv":      nn.NewConv2d(2, 3, 3, opts...),
		"layernorm": nn.NewLayerNorm([]int{4}, opts...),
		"rmsnorm":   nn.NewRMSNorm([]int{4}, opts...),
		"batchnorm": nn.NewBatchNorm2d(3, opts...),
		"groupnorm": nn.NewGroupNorm(2, 4, opts...),
		"prelu":     nn.NewPReLU(1, 0.25, opts...),
		"lstm":      nn.NewLSTM(3, 4, nn.RecurrentOptions{Layers: 2, ProjSize: 2}, opts...),
		"cell":      nn.NewGRUCell(3, 4, opts...),
		"attention": nn.NewMultiheadAttention(4, 2, nn.MultiheadOptions{KDim: 3, AddBiasKV: true}, opts...),
		"adaptive":  nn.NewAdaptiveLogSoftmaxWithLoss(8, 6, []int{2}, append([]nn.Option{nn.HeadBias()}, opts...)...),
		"chunks":    nn.NewLinearCrossEntropyLoss(3, 4, opts...),
		"transformer": nn.NewTransformer(4, 2, 1, 1, nn.TransformerOptions{FeedForward: 8},
			opts...),
	}
}

// A layer made with SkipInit has no memory and draws no random number. After a load with Loose, the
// parameters that the dict lacked cannot be used.
func TestSkipInit(t *testing.T) {
	seed, before := tensor.Root().Generator().State()
	hollow := everyLayer(nn.SkipInit())
	if s, after := tensor.Root().Generator().State(); s != seed || after != before {
		t.Fatalf("%d numbers were drawn", after-before)
	}
	full := everyLayer()
	for name, m := range hollow {
		buffers := map[*tensor.Tensor]bool{}
		for _, p := range nn.Buffers(m) {
			buffers[p] = true
		}
		for _, p := range nn.Named(m) {
			if p.Tensor.Device().Info().Meta == buffers[p.Tensor] {
				t.Errorf("%s: %s is on %v", name, p.Name, p.Tensor.Device())
			}
		}
		if err := nn.LoadStateDict(m, nn.StateDict(full[name])); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := nn.StateDict(full[name])
		for n, x := range nn.StateDict(m) {
			if x.Device() != want[n].Device() || !slices.Equal(x.Floats(), want[n].Floats()) {
				t.Errorf("%s: %s was not loaded", name, n)
			}
			if len(x.Floats()) > 0 && x.Storage() == want[n].Storage() {
				t.Errorf("%s: %s shares the dict's memory", name, n)
			}
		}
		for _, p := range nn.Parameters(m) {
			if !p.NeedsGrad() {
				t.Errorf("%s: a parameter lost its gradient", name)
			}
		}
	}

	l := nn.NewLinear(3, 4, nn.SkipInit())
	if err := tensor.Try(func() { l.Forward(tensor.Ones(1, 3)) }); !errors.Is(err, tensor.ErrDevice) || !strings.Contains(err.Error(), "SkipInit") {
		t.Errorf("a layer without a weight ran: %v", err)
	}
	sd := nn.StateDict(nn.NewLinear(3, 4))
	weight := map[string]*tensor.Tensor{"weight": sd["weight"]}
	var e *nn.StateError
	if err := nn.LoadStateDict(l, weight); !errors.As(err, &e) || e.Missing[0] != "bias" || !l.Weight.Device().Info().Meta {
		t.Errorf("a part was loaded: %v", err)
	}
	if err := nn.LoadStateDict(l, weight, nn.Loose()); err != nil {
		t.Fatal(err)
	}
	if err := tensor.Try(func() { l.Forward(tensor.Ones(1, 3)) }); !errors.Is(err, tensor.ErrDevice) || !strings.Contains(err.Error(), "SkipInit") {
		t.Errorf("a layer without a bias ran: %v", err)
	}
	if err := tensor.Try(func() { l.Bias.Floats() }); !errors.Is(err, device.ErrNoValues) {
		t.Errorf("a bias without values has some: %v", err)
	}
	if err := tensor.Try(func() { nn.To(l, tensor.Root().Device()) }); !errors.Is(err, device.ErrNoValues) {
		t.Errorf("a bias without values was moved: %v", err)
	}
}

// Assign shares the dict's memory if possible, and copies otherwise.
func TestAssign(t *testing.T) {
	make := func(opts ...nn.Option) *nn.Linear { return nn.NewLinear(2, 3, opts...) }
	x := tensor.From([]float32{1, 2}, 1, 2)
	for _, r := range []struct {
		name   string
		weight *tensor.Tensor
		opts   []nn.Option
		shared bool
	}{
		{"plain", tensor.From([]float32{1, 2, 3, 4, 5, 6}, 3, 2), nil, true},
		{"hollow", tensor.From([]float32{1, 2, 3, 4, 5, 6}, 3, 2), []nn.Option{nn.SkipInit()}, true},
		{"another type", tensor.From([]float64{1, 2, 3, 4, 5, 6}, 3, 2), []nn.Option{nn.SkipInit()}, false},
		{"strided", tensor.From([]float32{1, 3, 5, 2, 4, 6}, 2, 3).T(), []nn.Option{nn.SkipInit()}, false},
	} {
		l, weight := make(r.opts...), (*tensor.Tensor)(nil)
		weight = l.Weight
		bias := tensor.From([]float32{7, 8, 9})
		if err := nn.LoadStateDict(l, map[string]*tensor.Tensor{"weight": r.weight, "bias": bias}, nn.Assign()); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		if l.Weight != weight || !l.Weight.NeedsGrad() || l.Weight.Type() != dtype.F32 || !l.Weight.IsContiguous() {
			t.Errorf("%s: another tensor came out", r.name)
		}
		if shared := l.Weight.Storage() == r.weight.Storage(); shared != r.shared {
			t.Errorf("%s: shared is %v", r.name, shared)
		}
		r.weight.Free()
		bias.Free()
		if y := l.Forward(x); !slices.Equal(y.Floats(), []float64{12, 19, 26}) {
			t.Errorf("%s: %v", r.name, y.Floats())
		}
		l.Forward(x).Sum().Backward()
		if l.Weight.Grad() == nil {
			t.Errorf("%s: no gradient", r.name)
		}
	}

	// Assign never makes two tensors of a model share memory.
	both := nn.NewSequential(nn.NewLinear(2, 2, nn.NoBias()), nn.NewLinear(2, 2, nn.NoBias()))
	w := tensor.From([]float32{1, 2, 3, 4}, 2, 2)
	if err := nn.LoadStateDict(both, map[string]*tensor.Tensor{"0.weight": w, "1.weight": w}, nn.Assign()); err != nil {
		t.Fatal(err)
	}
	a, b := both.Layers[0].(*nn.Linear), both.Layers[1].(*nn.Linear)
	if a.Weight.Storage() == b.Weight.Storage() || !slices.Equal(a.Weight.Floats(), b.Weight.Floats()) {
		t.Error("two layers have one weight")
	}

	// A model made on a device without memory, torch's meta device, moves to the dict's device.
	meta, err := device.OpenMeta("cpu", device.MetaConfig{})
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		l := make(nn.In(s))
		sd := map[string]*tensor.Tensor{"weight": tensor.Ones(3, 2), "bias": tensor.Ones(3)}
		if err := nn.LoadStateDict(l, sd); err != nil || !l.Weight.Device().Info().Meta {
			t.Errorf("a plan got memory: %v", err)
		}
		if err := nn.LoadStateDict(l, sd, nn.Assign()); err != nil || l.Weight.Storage() != sd["weight"].Storage() {
			t.Error(err)
		}
		if y := l.Forward(x); !slices.Equal(y.Floats(), []float64{4, 4, 4}) {
			t.Errorf("%v", y.Floats())
		}
	}, tensor.On(meta))

	// A tensor whose scope ends earlier than the model's is copied.
	l := make(nn.SkipInit())
	tensor.Do(func(s *tensor.Scope) {
		if err := nn.LoadStateDict(l, map[string]*tensor.Tensor{"weight": s.Ones(3, 2), "bias": s.Ones(3)}, nn.Assign()); err != nil {
			t.Fatal(err)
		}
	})
	if y := l.Forward(x); !slices.Equal(y.Floats(), []float64{4, 4, 4}) {
		t.Errorf("%v", y.Floats())
	}
}

// guesser is a model that, like BERT, guesses masked words. Its table of embeddings is also the
// weight of its last layer.
type guesser struct {
	nn.Base
	Words *nn.Embedding  `nn:"words"`
	Bias  *tensor.Tensor `nn:"bias"`
}

func (*guesser) TiedNames() map[string]string {
	return map[string]string{"decoder.weight": "words.weight", "decoder.bias": "bias"}
}

// Tied weights load from files that contain them under all of their names or under one name.
// Different values for one weight are an error.
func TestLoadTiedWeights(t *testing.T) {
	root := tensor.Root().Typed(dtype.F32)
	words, bias := root.Rand(5, 3), root.Rand(5)
	model := func() *guesser {
		return &guesser{Words: nn.NewEmbedding(5, 3), Bias: tensor.Zeros(5).RequiresGrad()}
	}
	wrap := func(m *guesser) any { return nn.NewModuleMap[any]().Set("cls", m) }
	load := func(sd map[string]*tensor.Tensor) (*guesser, error) {
		m := model()
		named := map[string]*tensor.Tensor{}
		for name, x := range sd {
			named["cls."+name] = x
		}
		if err := nn.LoadStateDict(wrap(m), named); err != nil {
			return m, err
		}
		m = model()
		return m, nn.LoadStateDict(m, sd)
	}
	nan := tensor.Full(0, 5).Fill(0).DivScalar(0)
	for name, sd := range map[string]map[string]*tensor.Tensor{
		"once":       {"words.weight": words, "bias": bias},
		"both":       {"words.weight": words, "bias": bias, "decoder.weight": words.Clone(), "decoder.bias": bias.Clone()},
		"the others": {"decoder.weight": words, "decoder.bias": bias},
		"one memory": {"words.weight": words, "bias": bias, "head.proj.weight": words.Detach()},
		"NaN":        {"words.weight": words, "bias": nan, "decoder.bias": nan.Clone()},
	} {
		m, err := load(sd)
		if err != nil || !slices.Equal(m.Words.Weight.Floats(), words.Floats()) || name != "NaN" && !slices.Equal(m.Bias.Floats(), bias.Floats()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := func(what string, want [2]string, sd map[string]*tensor.Tensor) {
		t.Helper()
		m := model()
		before := m.Words.Weight.Floats()
		err := nn.LoadStateDict(m, sd, nn.Loose())
		var e *nn.StateError
		if !errors.As(err, &e) || len(e.Differing) != 1 || e.Differing[0] != want || !strings.Contains(err.Error(), want[1]+" differs from "+want[0]) {
			t.Errorf("%s: %v", what, err)
		}
		if !slices.Equal(m.Words.Weight.Floats(), before) {
			t.Errorf("%s: a part was loaded", what)
		}
	}
	bad("other values", [2]string{"words.weight", "decoder.weight"},
		map[string]*tensor.Tensor{"words.weight": words, "bias": bias, "decoder.weight": words.AddScalar(1)})
	bad("another type", [2]string{"bias", "decoder.bias"},
		map[string]*tensor.Tensor{"words.weight": words, "bias": bias, "decoder.bias": bias.Cast(dtype.F64)})
	if _, err := load(map[string]*tensor.Tensor{"words.weight": words, "bias": bias, "head.proj.weight": words.Clone()}); err == nil {
		t.Error("a name that nobody knows was taken")
	}

	// A layer in two places of the model gives its weight two names.
	l := nn.NewLinear(3, 3, nn.NoBias())
	two := nn.NewSequential(l, l)
	sd := map[string]*tensor.Tensor{"0.weight": tensor.Ones(3, 3), "1.weight": tensor.Zeros(3, 3)}
	var e *nn.StateError
	if err := nn.LoadStateDict(two, sd); !errors.As(err, &e) || len(e.Differing) != 1 {
		t.Errorf("two values for one tensor: %v", err)
	}
}
