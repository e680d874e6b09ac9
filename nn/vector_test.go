package nn_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

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
		if err := tensor.Try(f); !errors.As(err, &e) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "vector_test.go") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Half of the way from one model to another.
func ExampleVectorToParameters() {
	a, b := nn.NewLinear(1, 2, nn.NoBias()), nn.NewLinear(1, 2, nn.NoBias())
	nn.VectorToParameters(tensor.From([]float32{1, 2}), nn.Parameters(a))
	nn.VectorToParameters(tensor.From([]float32{3, 6}), nn.Parameters(b))
	middle := nn.ParametersToVector(nn.Parameters(a)).LerpScalar(nn.ParametersToVector(nn.Parameters(b)), 0.5)
	nn.VectorToParameters(middle, nn.Parameters(a))
	fmt.Println(a.Weight.Floats())
	// Output: [2 4]
}
