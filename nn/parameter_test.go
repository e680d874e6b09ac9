package nn_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Whatever its argument is, Parameter returns a leaf that requires a gradient and is in the scope
// of the argument.
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
			// The optimizer step sets p to 0, and v shares p's memory.
			optim.NewSGD([]*tensor.Tensor{p}, optim.SGDConfig{LR: 0.5}).Step()
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

// positions is a layer that adds position embeddings to its input. The field Table holds the
// embeddings. Forward makes the row numbers on the device of x.
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

func TestParametersAsAVector(t *testing.T) {
	m := nn.NewSequential(nn.NewLinear(3, 2), nn.ReLU{}, nn.NewLinear(2, 1))
	params := nn.Parameters(m)
	v := nn.ParametersToVector(params)
	if v.Size() != nn.Count(m) || !slices.Equal(v.Detach().Narrow(0, 6, 2).Floats(), params[1].Floats()) {
		t.Fatalf("%v", v)
	}
	v.Square().Sum().Backward()
	if !params[2].Grad().AllClose(params[2].MulScalar(2), 1e-6, 0) {
		t.Error("gradients flow to the parameters")
	}
	version := params[0].Version()
	nn.VectorToParameters(v.MulScalar(3), params)
	if w := nn.ParametersToVector(params); !w.AllClose(v.MulScalar(3), 1e-6, 0) || !params[0].IsLeaf() || params[0].Version() == version {
		t.Error("the parameters have the elements of the vector, and count as changed")
	}
	one := nn.ParametersToVector(params[:1])
	params[0].Detach().Fill(0)
	if one.Detach().Abs().Sum().Item() == 0 {
		t.Error("the vector of one parameter is a copy")
	}
	for want, f := range map[string]func(){
		"shape [12], the parameters have 11 elements": func() { nn.VectorToParameters(tensor.Ones(12), params) },
		"vector_to_parameters: an operand is nil":     func() { nn.VectorToParameters(tensor.Ones(11), append(slices.Clone(params), nil)) },
		"shape [11, 1]":           func() { nn.VectorToParameters(tensor.Ones(11, 1), params) },
		"there are no parameters": func() { nn.ParametersToVector(nil) },
	} {
		var e *tensor.Error
		if err := tensor.Try(f); !errors.As(err, &e) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "parameter_test.go") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The example averages the parameters of two models.
func ExampleVectorToParameters() {
	a, b := nn.NewLinear(1, 2, nn.NoBias()), nn.NewLinear(1, 2, nn.NoBias())
	nn.VectorToParameters(tensor.From([]float32{1, 2}), nn.Parameters(a))
	nn.VectorToParameters(tensor.From([]float32{3, 6}), nn.Parameters(b))
	middle := nn.ParametersToVector(nn.Parameters(a)).LerpScalar(nn.ParametersToVector(nn.Parameters(b)), 0.5)
	nn.VectorToParameters(middle, nn.Parameters(a))
	fmt.Println(a.Weight.Floats())
	// Output: [2 4]
}
