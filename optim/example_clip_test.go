package optim_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Between Backward and Step, gradients of norm 5 are scaled to norm 1. The norm is a tensor, and
// reading it waits for the device.
func ExampleClipGradNorm() {
	w := tensor.Zeros(2).RequiresGrad()
	w.Mul(tensor.From([]float32{3, 4})).Sum().Backward()
	norm := optim.ClipGradNorm([]*tensor.Tensor{w}, 1)
	fmt.Println(norm.Item(), w.Grad())
	// Output: 5 tensor([0.6000, 0.8000])
}

// The norm of order 1 is the sum of the absolute values of all gradients.
func ExampleGradNorm() {
	w := tensor.Zeros(2).RequiresGrad()
	w.Mul(tensor.From([]float32{3, -4})).Sum().Backward()
	fmt.Println(optim.GradNorm([]*tensor.Tensor{w}, optim.NormType(1)).Item())
	// Output: 7
}

func ExampleClipGradValue() {
	w := tensor.Zeros(3).RequiresGrad()
	w.Mul(tensor.From([]float32{0.5, -7, 2})).Sum().Backward()
	optim.ClipGradValue([]*tensor.Tensor{w}, 1)
	fmt.Println(w.Grad())
	// Output: tensor([ 0.5000, -1.0000,  1.0000])
}

// In a training loop the norm belongs to the scope of the step, and a gradient that is not finite
// raises an error.
func ExampleClipOption() {
	w := tensor.Zeros(1).RequiresGrad()
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			w.In(s).Sqrt().Sum().Backward() // the derivative is infinite at 0
			optim.ClipGradNorm([]*tensor.Tensor{w}, 1, optim.InScope(s), optim.ErrorIfNonfinite())
		})
	})
	fmt.Println(err.(*tensor.Error).Msg)
	// Output: the norm of the gradients is +Inf
}
