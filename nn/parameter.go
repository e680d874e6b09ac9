package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// Parameter returns a leaf that requires a gradient and shares the memory of x: torch.nn.Parameter.
// If x is the result of an op, the parameter is not connected to x's graph.
//
// The parameter, its gradient and an optimizer's state for it belong to the scope of x. A tensor
// made without a scope belongs to the root scope, as the parameters of a model should. In any other
// scope the parameter is freed with the scope. x itself may be freed, because the parameter keeps
// the memory.
//
//	type Scale struct {
//		nn.Base
//		Weight *tensor.Tensor `nn:"weight"`
//	}
//
//	l := &Scale{Weight: nn.Parameter(tensor.Ones(3))}
func Parameter(x *tensor.Tensor) *tensor.Tensor {
	requireUsable("parameter", x)
	if !x.Type().IsFloat() {
		hinted("parameter", tensor.ErrType, fmt.Sprintf("only floating point tensors have gradients, this one is %v", x.Type()),
			"x.Float() converts it; what is not learnt is a buffer, with the tag nn:\"name,buffer\"", x)
	}
	return x.Detach().RequiresGrad()
}

// ParametersToVector concatenates the elements of all parameters to one vector:
// torch.nn.utils.parameters_to_vector. Gradients flow back to the parameters, which must be on one
// device. Use it for norms, distances or interpolations of models, and for your own optimizers.
func ParametersToVector(params []*tensor.Tensor) (v *tensor.Tensor) {
	if len(params) == 0 {
		misuse("parameters_to_vector", tensor.ErrValue, "there are no parameters")
	}
	tensor.Youngest(params...).Do(func(c *tensor.Scope) {
		parts := make([]*tensor.Tensor, len(params))
		for i, p := range params {
			parts[i] = p.In(c).Reshape(-1)
		}
		v = tensor.Cat(0, parts...)
		c.Close(v)
	})
	return v
}

// VectorToParameters copies the elements of v into the parameters, one parameter after another:
// torch.nn.utils.vector_to_parameters. v must have as many elements as all parameters together. The
// *Tensor values remain the same. No gradient flows from the parameters to v. If v needs a
// gradient, use [Replace].
func VectorToParameters(v *tensor.Tensor, params []*tensor.Tensor) {
	const op = "vector_to_parameters"
	requireUsable(op, v)
	n := 0
	for _, p := range params {
		requireUsable(op, p)
		n += p.Size()
	}
	if v.Rank() != 1 || v.Size() != n {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the vector has shape %v, the parameters have %d elements together", v.Shape(), n), v)
	}
	v.Scope().Do(func(c *tensor.Scope) {
		v, at := v.Detach().In(c), 0
		for _, p := range params {
			p.Detach().Copy(v.Narrow(0, at, p.Size()).View(p.Shape().Slice()...))
			at += p.Size()
		}
	}, tensor.NoGrad())
}
