package nn

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

type tt = tensor.Tensor

// autocastLayer is a test case. call applies a layer or a loss. operands has the shapes of the
// floating-point operands, which autocast may convert. indices has the shapes of the integer
// index tensors.
type autocastLayer struct {
	operands, indices [][]int
	call              func(x, i []*tt, t dtype.Type) *tt
}

func autocastLayers() map[string]autocastLayer {
	two := [][]int{{4, 4}, {4, 4}}
	loss2 := func(f func(x, y *tt) *tt) autocastLayer {
		return autocastLayer{operands: two, call: func(x, _ []*tt, _ dtype.Type) *tt { return f(x[0], x[1]) }}
	}
	classes := func(dims []int, f func(x, target *tt) *tt) autocastLayer {
		return autocastLayer{operands: [][]int{{4, 4}}, indices: [][]int{dims}, call: func(x, i []*tt, _ dtype.Type) *tt { return f(x[0], i[0]) }}
	}
	weighted := func(f func(w *tt) interface{ Forward(x, target *tt) *tt }) autocastLayer {
		return classes([]int{4}, func(x, target *tt) *tt { return f(x.Scope().Ones(4)).Forward(x, target) })
	}
	return map[string]autocastLayer{
		"L1":            loss2(func(x, y *tt) *tt { return L1(x, y) }),
		"SmoothL1":      loss2(func(x, y *tt) *tt { return SmoothL1(x, y, 1) }),
		"Huber":         loss2(func(x, y *tt) *tt { return Huber(x, y, 1) }),
		"MSE":           loss2(func(x, y *tt) *tt { return MSE(x, y) }),
		"BCE":           loss2(func(x, y *tt) *tt { return BCE(x, y) }),
		"BCEWithLogits": loss2(func(x, y *tt) *tt { return BCEWithLogits(x, y, x.Scope().Ones(4)) }),
		"KLDiv":         loss2(func(x, y *tt) *tt { return KLDiv(x, y) }),
		"KLDivLog":      loss2(func(x, y *tt) *tt { return KLDivLog(x, y) }),
		"CrossEntropy":  weighted(func(w *tt) interface{ Forward(x, target *tt) *tt } { return CrossEntropyLoss{Weight: w} }),
		"NLL":           weighted(func(w *tt) interface{ Forward(x, target *tt) *tt } { return NLLLoss{Weight: w} }),
		"MultiMargin": weighted(func(w *tt) interface{ Forward(x, target *tt) *tt } {
			return &MultiMarginLoss{P: 1, Margin: 1, Weight: w}
		}),
		"PoissonNLL":           loss2(NewPoissonNLLLoss().Forward),
		"SoftMargin":           loss2(SoftMarginLoss{}.Forward),
		"MultiLabelSoftMargin": loss2(MultiLabelSoftMarginLoss{}.Forward),
		"MultiLabelMargin":     classes([]int{4, 4}, MultiLabelMarginLoss{}.Forward),
		"HingeEmbedding":       loss2(HingeEmbeddingLoss{Margin: 1}.Forward),
		"MarginRanking":        {operands: [][]int{{4}, {4}, {4}}, call: func(x, _ []*tt, _ dtype.Type) *tt { return MarginRankingLoss{}.Forward(x[0], x[1], x[2]) }},
		"CosineEmbedding": {operands: [][]int{{4, 4}, {4, 4}, {4}}, call: func(x, _ []*tt, _ dtype.Type) *tt {
			return CosineEmbeddingLoss{}.Forward(x[0], x[1], x[2])
		}},
		"TripletMargin": {operands: [][]int{{4, 4}, {4, 4}, {4, 4}}, call: func(x, _ []*tt, _ dtype.Type) *tt {
			return NewTripletMarginLoss().Forward(x[0], x[1], x[2])
		}},
		"GaussianNLL": {operands: [][]int{{4, 4}, {4, 4}, {4, 4}}, call: func(x, _ []*tt, _ dtype.Type) *tt {
			return NewGaussianNLLLoss().Forward(x[0], x[1], x[2])
		}},
		"Linear": {operands: [][]int{{4, 4}}, call: func(x, _ []*tt, t dtype.Type) *tt { return NewLinear(4, 4, Typed(t)).Forward(x[0]) }},
		"LSTMCell": {operands: [][]int{{4, 4}}, call: func(x, _ []*tt, t dtype.Type) *tt {
			h, _ := NewLSTMCell(4, 4, Typed(t)).Forward(x[0], nil, nil)
			return h
		}},
		"GRUCell": {operands: [][]int{{4, 4}, {4, 4}}, call: func(x, _ []*tt, t dtype.Type) *tt {
			return NewGRUCell(4, 4, Typed(t)).Forward(x[0], x[1])
		}},
		"RNNCell": {operands: [][]int{{4, 4}, {4, 4}}, call: func(x, _ []*tt, t dtype.Type) *tt {
			return NewRNNCell(4, 4, Typed(t)).Forward(x[0], x[1])
		}},
		"MultiheadAttention": {operands: [][]int{{3, 4}}, call: func(x, _ []*tt, t dtype.Type) *tt {
			y, _ := NewMultiheadAttention(4, 2, MultiheadOptions{}, Typed(t)).Forward(x[0], x[0], x[0], AttendOptions{})
			return y
		}},
	}
}

// Under autocast, the results of layers and losses have the same types as in PyTorch on CUDA. A
// call that PyTorch refuses panics here too.
func TestAutocastTypes(t *testing.T) {
	text, err := os.ReadFile("testdata/autocast.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]map[string]string
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	layers := autocastLayers()
	for key, want := range golden {
		name, isOp := strings.CutPrefix(key, "op ")
		if !isOp {
			continue
		}
		l, ok := layers[name]
		if !ok {
			t.Errorf("%s is not tried", name)
			continue
		}
		for _, low := range []dtype.Type{dtype.F16, dtype.BF16} {
			for how, result := range want {
				err := tensor.Try(func() {
					tensor.Do(func(s *tensor.Scope) {
						var x, index []*tt
						for k, dims := range l.operands {
							ty := dtype.F32
							if how == "h" || how == "m" && k == 0 {
								ty = low
							}
							x = append(x, s.Rand(dims...).Cast(ty).Detach().RequiresGrad())
						}
						for _, dims := range l.indices {
							index = append(index, s.Typed(dtype.I64).Zeros(dims...))
						}
						weights := dtype.F32
						if how == "h" {
							weights = low
						}
						y := l.call(x, index, weights)
						if is := map[bool]string{true: "low", false: y.Type().String()}[y.Type() == low]; is != result && !(is == "float32" && result == "f32") {
							t.Errorf("%s under autocast to %v, case %q: %v, want %s", name, low, how, y.Type(), result)
						}
						y.Sum().Backward()
						for i, x := range x {
							if g := x.Grad(); g != nil && g.Type() != x.Type() {
								t.Errorf("%s: gradient %d is %v, the leaf %v", name, i, g.Type(), x.Type())
							}
						}
					}, tensor.Autocast(low))
				})
				if result == "error" && !errors.Is(err, tensor.ErrType) || result != "error" && err != nil {
					t.Errorf("%s under autocast to %v, case %q: %v, want %s", name, low, how, err, result)
				}
			}
		}
	}
}
