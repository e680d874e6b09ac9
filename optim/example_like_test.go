package optim_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Like makes an optimizer for a copy of a model. It has the options of the model's optimizer, but
// not its state.
func ExampleLike() {
	m := nn.NewLinear(2, 1)
	opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.5, Momentum: 0.9})
	other := nn.Clone(m)
	in := map[*tensor.Tensor]*tensor.Tensor{m.Weight: other.Weight, m.Bias: other.Bias}
	like := optim.Like(opt, func(p *tensor.Tensor) *tensor.Tensor { return in[p] })
	fmt.Println(like.LR(), like.Steps(), like.Params()[0] == other.Weight)
	// Output: 0.5 0 true
}
