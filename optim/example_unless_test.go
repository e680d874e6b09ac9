package optim_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// StepUnless skips a step if a number on the device is not 0. Neither parameters nor counts change
// in this case. Package amp skips steps with overflowed gradients in this way.
func ExampleAdam_StepUnless() {
	w := tensor.From([]float32{1}).RequiresGrad()
	opt := optim.NewAdam([]*tensor.Tensor{w}, optim.AdamConfig{LR: 0.5})
	for _, found := range []float64{1, 0} {
		opt.ZeroGrad()
		w.Square().Sum().Backward()
		opt.StepUnless(tensor.Full(found))
		fmt.Printf("%.2f %d\n", w.Detach().Item(), opt.Steps())
	}
	// Output:
	// 1.00 0
	// 0.50 1
}
