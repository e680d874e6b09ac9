package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A copy of a model calls the model's hooks, so check for hooks before you copy a model.
func ExampleHooked() {
	m := nn.NewSequential(nn.NewLinear(2, 2), &nn.ReLU{})
	fmt.Println(nn.Hooked(m))
	remove := m.Layers[1].(*nn.ReLU).RegisterForwardHook(func(x, y *tensor.Tensor) *tensor.Tensor { return nil })
	fmt.Println(nn.Hooked(m))
	remove()
	fmt.Println(nn.Hooked(m))
	// Output:
	// false
	// true
	// false
}
