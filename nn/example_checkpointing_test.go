package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func ExampleSetCheckpointing() {
	tensor.Do(func(s *tensor.Scope) {
		in := nn.In(s)
		model := nn.NewSequential(nn.NewTransformerEncoder(8, 2, 3, nn.TransformerOptions{FeedForward: 16, Dropout: 0.1}, in), nn.NewLinear(8, 1, in))
		n := nn.SetCheckpointing(model, true) // the parts are the chain and each encoder layer
		model.Forward(s.Randn(5, 2, 8)).Square().Mean().Backward()
		fmt.Println(n, nn.Parameters(model)[0].Grad() != nil)
	})
	// Output: 4 true
}

// pair is a user's layer that supports checkpointing.
type pair struct {
	nn.Base
	nn.Checkpointing
	First, Second *nn.Linear
}

func (p *pair) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer p.Enter(&x, &y)()
	return p.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor { return p.Second.Forward(p.First.Forward(x[0]).Tanh()) }, x)
}

func ExampleCheckpointing() {
	tensor.Do(func(s *tensor.Scope) {
		in := nn.In(s)
		model := &pair{First: nn.NewLinear(2, 3, in), Second: nn.NewLinear(3, 1, in)}
		fmt.Println(nn.SetCheckpointing(model, true), model.Checkpointing.Checkpointing())
		model.Forward(s.Ones(1, 2)).Sum().Backward()
		fmt.Println(model.First.Weight.Grad().Shape())
	})
	// Output:
	// 1 true
	// [3, 2]
}
