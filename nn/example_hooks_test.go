package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// residual is a user's model. It embeds Base and its Forward begins with Enter, which makes hooks
// work.
type residual struct {
	nn.Base
	Inner *nn.Linear
}

func (m *residual) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return x.Add(m.Inner.Forward(x))
}

// Hooks see the results of layers in the forward pass, and the gradients in Backward. The layers
// themselves do not change.
func ExampleBase() {
	m := &residual{Inner: nn.NewLinear(3, 3)}
	m.RegisterForwardHook(func(x, y *tensor.Tensor) *tensor.Tensor {
		fmt.Println("forward of m:", x.Shape(), "to", y.Shape())
		return nil
	})
	remove := m.Inner.RegisterFullBackwardHook(func(gradInput, gradOutput *tensor.Tensor) *tensor.Tensor {
		fmt.Println("backward of m.Inner:", gradOutput.Shape(), "to", gradInput.Shape())
		return nil
	})
	m.Forward(tensor.Ones(2, 3).RequiresGrad()).Sum().Backward()
	remove()
	// Output:
	// forward of m: [2, 3] to [2, 3]
	// backward of m.Inner: [2, 3] to [2, 3]
}
