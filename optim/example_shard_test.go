package optim_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A shard of an optimizer updates only its part of a parameter, and has state only for that part.
func ExampleSharder() {
	p := tensor.Zeros(6).RequiresGrad()
	var opt optim.Sharder = optim.NewSGD([]*tensor.Tensor{p}, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	opt.Shard(map[*tensor.Tensor]optim.Part{p: {From: 2, To: 4}})
	p.SetGrad(tensor.Ones(6))
	opt.Step()
	fmt.Println(p.Detach())
	fmt.Println(opt.StateDict()["state"].(map[int64]any)[0].(map[string]any)["momentum_buffer"])
	// Output:
	// tensor([ 0.0000,  0.0000, -0.1000, -0.1000,  0.0000,  0.0000])
	// tensor([1., 1.])
}
