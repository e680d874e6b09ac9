package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// A clone can serve as a target network, as a teacher, or for experiments.
func ExampleClone() {
	online := nn.NewLinear(1, 1, nn.NoBias())
	initial.Constant(online.Weight, 2)
	target := nn.Freeze(nn.Clone(online))
	initial.Constant(online.Weight, 3)
	fmt.Println(online.Weight.Item(), target.Weight.Item(), target.Weight.NeedsGrad())
	// Output: 3 2 false
}

// The example takes a step of gradient descent that is itself differentiated, as in MAML. It prints
// the loss after the step, and the gradient of that loss with respect to the weight before the
// step.
func ExampleReplace() {
	m := nn.NewLinear(1, 1, nn.NoBias())
	initial.Constant(m.Weight, 2)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(1, 1)
		loss := m.Forward(x).Square().Mean() // the loss is w², and w is 2
		g := tensor.Gradients(loss, []*tensor.Tensor{m.Weight}, tensor.CreateGraph())[0]
		// the updated weight is w - 2w/4 = w/2 = 1
		fast := nn.Replace(m, map[string]*tensor.Tensor{"weight": m.Weight.Sub(g.MulScalar(0.25))})

		after := fast.Forward(x).Square().Mean() // the loss is (w/2)²
		after.Backward()
		fmt.Println(m.Weight.Item(), after.Item(), m.Weight.Grad().Item())
	})
	// Output: 2 1 1
}
