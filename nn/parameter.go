package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// Parameter returns x as what a model learns: a leaf that requires a gradient and shares the memory
// of x, torch.nn.Parameter. A result is cut off its graph.
//
// The parameter belongs to the scope of x, as do its gradient and what an optimizer remembers of it:
// to the root scope if x was made without one, which is where the parameters of a model belong, and
// otherwise it ends with the scope of x. It may replace x, which can be freed.
//
//	type Scale struct {
//		nn.Base
//		Weight *tensor.Tensor `nn:"weight"`
//	}
//
//	l := &Scale{Weight: nn.Parameter(tensor.Ones(3))}
func Parameter(x *tensor.Tensor) *tensor.Tensor {
	given("parameter", x)
	if !x.Type().IsFloat() {
		hinted("parameter", tensor.ErrType, fmt.Sprintf("only floating point tensors have gradients, this one is %v", x.Type()),
			"x.Float() converts it; what is not learnt is a buffer, with the tag nn:\"name,buffer\"", x)
	}
	return x.Detach().RequiresGrad()
}
