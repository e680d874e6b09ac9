package nn_test

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A parameter is a leaf with a gradient in the scope of its values, whatever these are.
func TestParameter(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 3)
		for name, v := range map[string]*tensor.Tensor{
			"leaf": x, "result": x.Clone().RequiresGrad().Exp(), "view": x.T(), "frozen": x.Clone().SetRequiresGrad(false),
		} {
			p := nn.Parameter(v)
			if p == v || !p.IsLeaf() || !p.NeedsGrad() || p.IsFrozen() || p.Scope() != s || p.Shape() != v.Shape() {
				t.Errorf("%s: %v", name, p)
			}
			p.Square().Sum().Backward()
			optim.NewSGD([]*tensor.Tensor{p}, optim.SGDConfig{LR: 0.5}).Step() // to 0, in the memory of v
			if v.Abs().Sum().Item() != 0 {
				t.Errorf("%s: the memory is not shared: %v", name, v.Floats())
			}
			x.Fill(1)
		}
		if x.NeedsGrad() {
			t.Error("the tensor itself requires a gradient now")
		}
	})
	for _, x := range []*tensor.Tensor{nil, tensor.From([]int{1})} {
		err := tensor.Try(func() { nn.Parameter(x) })
		if e, ok := err.(*tensor.Error); !ok || e.Op != "parameter" {
			t.Errorf("%v: %v", x, err)
		}
	}
}

// Embeddings of positions are added to what comes in: position holds them, and index is made where x is.
type positions struct {
	nn.Base
	Table *tensor.Tensor `nn:"table"`
}

func (l *positions) Forward(x *tensor.Tensor) *tensor.Tensor {
	index := x.New().Arange(x.Dim(0))
	return x.Add(l.Table.In(x.Scope()).IndexSelect(0, index))
}

func ExampleParameter() {
	l := &positions{Table: nn.Parameter(tensor.From([][]float32{{1, 2}, {3, 4}, {5, 6}}))}
	fmt.Println(l.Forward(tensor.Ones(2, 2)).Floats())
	fmt.Println(nn.Parameters(l)[0].Shape())
	// Output:
	// [2 3 4 5]
	// [3, 2]
}
