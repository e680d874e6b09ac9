package nn_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

type block struct {
	Fc1, Fc2 *nn.Linear
	Drop     *nn.Dropout
	hidden   int
	Scale    *tensor.Tensor `nn:"scale"`
	Seen     *tensor.Tensor `nn:"seen,buffer"`
}

func (b *block) Forward(x *tensor.Tensor) *tensor.Tensor {
	return b.Fc2.Forward(b.Drop.Forward(b.Fc1.Forward(x).Relu())).Mul(b.Scale)
}

type model struct {
	Embed  *tensor.Tensor // not part of the model, since the field has no tag
	Blocks []*block
	Head   *nn.Linear `nn:"lm_head"`
	Tied   *nn.Linear
	Act    nn.Module
}

func newBlock() *block {
	return &block{Fc1: nn.NewLinear(4, 8), Fc2: nn.NewLinear(8, 4, nn.NoBias()), Drop: nn.NewDropout(0.5), hidden: 8,
		Scale: tensor.Ones(4).RequiresGrad(), Seen: tensor.Zeros(1)}
}

func TestNamesAreTorchs(t *testing.T) {
	head := nn.NewLinear(4, 2)
	m := &model{Blocks: []*block{newBlock(), newBlock()}, Head: head, Tied: head, Act: nn.NewSequential(nn.ReLU{}, nn.NewLinear(2, 2))}
	var names []string
	for _, p := range nn.Named(m) {
		names = append(names, p.Name)
	}
	want := []string{
		"blocks.0.fc1.weight", "blocks.0.fc1.bias", "blocks.0.fc2.weight", "blocks.0.scale", "blocks.0.seen",
		"blocks.1.fc1.weight", "blocks.1.fc1.bias", "blocks.1.fc2.weight", "blocks.1.scale", "blocks.1.seen",
		"lm_head.weight", "lm_head.bias", "act.1.weight", "act.1.bias"}
	if !slices.Equal(names, want) {
		t.Fatalf("got  %v\nwant %v", names, want)
	}
	if n := len(nn.Parameters(m)); n != len(want)-2 {
		t.Fatalf("%d parameters: buffers do not count, and a shared layer counts once", n)
	}
	if nn.Count(nn.NewLinear(3, 5)) != 20 {
		t.Fatal("3·5 weights and 5 biases")
	}
}

func TestStructureMistakes(t *testing.T) {
	type hidden struct{ fc *nn.Linear }
	type twice struct {
		A *tensor.Tensor `nn:"w"`
		B *tensor.Tensor `nn:"w"`
	}
	type badTag struct {
		A int `nn:"w"`
	}
	type badOption struct {
		A *tensor.Tensor `nn:"w,buffr"`
	}
	type mapped struct{ Heads map[string]*nn.Linear }
	type tower struct{ Fc *nn.Linear }
	type behind struct{ *tower }
	type loose struct{ Loose *tensor.Tensor }
	for name, m := range map[string]any{
		"fc: the field is not exported":    &hidden{nn.NewLinear(1, 1)},
		`B: the name "w" is used twice`:    &twice{},
		"cannot be a parameter or a layer": &badTag{},
		"Loose: a tensor that requires a":  &loose{tensor.Ones(1).RequiresGrad()},
		"a int is not a model":             3,
		`unknown option "buffr"`:           &badOption{},
		"heads: layers in a map":           &mapped{map[string]*nn.Linear{"a": nn.NewLinear(1, 1)}},
		"tower: the field is not exported": &behind{&tower{nn.NewLinear(1, 1)}},
		"blocks.0: the layer is nil":       &model{Blocks: []*block{nil}, Head: nn.NewLinear(1, 1)},
		"the model is nil":                 (*model)(nil),
		"pass a pointer to the model, not": model{},
	} {
		func() {
			defer func() {
				e, ok := recover().(*nn.Error)
				if !ok || !strings.Contains(e.Error(), name) {
					t.Errorf("%s: got %v", name, e)
				}
			}()
			nn.Parameters(m)
		}()
	}
}

type trunk struct {
	nn.Base
	Fc *nn.Linear
}

// The exported fields of an embedded struct belong to the model even if the struct's type is not
// exported. A struct and its first field have the same address, but count as different layers.
func TestEmbeddedStructs(t *testing.T) {
	type outer struct {
		Inner trunk
		Extra *nn.Linear
	}
	o := &outer{trunk{Fc: nn.NewLinear(1, 1)}, nn.NewLinear(1, 1)}
	m := &struct {
		trunk
		First *trunk
		Whole *outer
	}{trunk{Fc: nn.NewLinear(1, 1)}, &o.Inner, o}
	var names []string
	for _, p := range nn.Named(m) {
		names = append(names, p.Name)
	}
	want := []string{"fc.weight", "fc.bias", "first.fc.weight", "first.fc.bias", "whole.extra.weight", "whole.extra.bias"}
	if !slices.Equal(names, want) {
		t.Errorf("got  %v\nwant %v", names, want)
	}
	if nn.Eval(m); m.Training() || m.First.Training() {
		t.Error("Eval reaches embedded layers")
	}
}

// A layer's scope may be younger or older than its input's, and need not be the root scope.
func TestLayerInScope(t *testing.T) {
	x := tensor.Ones(2, 4)
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewLinear(4, 3, nn.In(s))
		y := l.Forward(x)
		if y.Scope() != s {
			t.Error("the result belongs to the younger scope")
		}
		s.Do(func(c *tensor.Scope) { l.Forward(x.In(c)).Sum().Backward() })
		if g := l.Bias.Grad(); g.Scope() != s || g.Sum().Item() != 6 {
			t.Errorf("the gradient is %v", g)
		}
	})
}

// A field of interface type belongs to the model if and only if its value is a layer.
func TestLayersInInterfaces(t *testing.T) {
	type open struct {
		Layer, Nothing, Number any
	}
	if n := len(nn.Parameters(&open{Layer: nn.NewLinear(2, 3), Number: 4})); n != 2 {
		t.Fatalf("%d parameters", n)
	}
}

func TestTrainAndEval(t *testing.T) {
	b := newBlock()
	x := tensor.Ones(2, 4)
	nn.Eval(b)
	if b.Drop.Training() {
		t.Fatal("Eval reaches every layer")
	}
	y, z := b.Forward(x).Floats(), b.Forward(x).Floats()
	if !slices.Equal(y, z) {
		t.Fatal("no dropout in evaluation")
	}
	nn.Train(b)
	if !b.Drop.Training() {
		t.Fatal("Train")
	}
	d := nn.NewDropout(0.25).Forward(tensor.Ones(100000).RequiresGrad())
	if m := d.Mean().Item(); math.Abs(m-1) > 0.01 {
		t.Fatalf("dropout keeps the mean, got %v", m)
	}
	zeros := 0
	for _, v := range d.Floats() {
		switch {
		case v == 0:
			zeros++
		case math.Abs(v-4.0/3) > 1e-6:
			t.Fatalf("kept values are scaled to 4/3, got %v", v)
		}
	}
	if math.Abs(float64(zeros)/100000-0.25) > 0.01 {
		t.Fatalf("%d of 100000 were dropped", zeros)
	}
}

// The gradient of dropout is zero for the elements that the forward pass dropped.
func TestDropoutGradient(t *testing.T) {
	x := tensor.Ones(1000).RequiresGrad()
	y := x.Dropout(0.5)
	y.Sum().Backward()
	if !slices.Equal(y.Floats(), x.Grad().Floats()) {
		t.Fatal("the gradient is the mask")
	}
}

func TestLinearInit(t *testing.T) {
	tensor.ManualSeed(3)
	l := nn.NewLinear(100, 400)
	for name, w := range map[string]*tensor.Tensor{"weight": l.Weight, "bias": l.Bias} {
		lo, hi, sq := 0.0, 0.0, 0.0
		for _, v := range w.Floats() {
			lo, hi, sq = min(lo, v), max(hi, v), sq+v*v
		}
		if lo < -0.1 || hi > 0.1 || lo > -0.095 || hi < 0.095 {
			t.Errorf("%s lies in [%v, %v], not ±0.1", name, lo, hi)
		}
		if v := sq / float64(w.Size()); math.Abs(v-0.01/3) > 5e-4 {
			t.Errorf("%s: variance %v", name, v)
		}
	}
	tensor.ManualSeed(3)
	if !slices.Equal(nn.NewLinear(100, 400).Weight.Floats(), l.Weight.Floats()) {
		t.Error("one seed, one model")
	}
}

func TestLosses(t *testing.T) {
	x := tensor.From([][]float64{{1, 2, 3}, {1, 1, 1}, {0, 0, 9}})
	y := tensor.From([]int64{2, 0, nn.IgnoreIndex})
	want := ((math.Log(math.Exp(1)+math.Exp(2)+math.Exp(3)) - 3) + math.Log(3)) / 2
	if got := nn.CrossEntropy(x, y).Item(); math.Abs(got-want) > 1e-12 {
		t.Fatalf("cross entropy %v want %v", got, want)
	}
	if got := nn.MSE(tensor.From([]float32{1, 2}), tensor.From([]float32{3, 5})).Item(); got != 6.5 {
		t.Fatalf("mean squared error %v", got)
	}
	err := tensor.Try(func() { nn.CrossEntropy(x, tensor.From([]int64{0, 3, 1})) })
	if !errors.Is(err, tensor.ErrIndex) || !strings.Contains(err.Error(), "index 3 at position 1") {
		t.Fatalf("a class out of range: %v", err)
	}
}
