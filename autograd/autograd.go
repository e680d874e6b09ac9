// Package autograd computes the derivatives that loss.Backward() does not give: gradients of
// several results, Jacobians, Hessians, and products with them.
//
// It has functions for four tasks:
//
//   - [Grad] returns gradients of tensors that were computed before. It uses their graph, as
//     torch.autograd.grad does.
//   - [VJP], [JVP], [HVP], [Jacobian] and [Hessian] differentiate a function at a point, as
//     torch.autograd.functional does.
//   - [Func] is a differentiable function that the user defines. [Check] compares its gradients
//     with finite differences.
//   - [Checkpoint], [SaveOnCPU] and [Accumulate] trade time for memory.
//
// [VJP], [JVP], [HVP], [Jacobian] and [Hessian] call the given function with leaves that stand for
// the inputs and share their memory. So the inputs keep their gradients and graphs, and the results
// have no graph. The function's intermediate tensors are freed when it returns. Results belong to
// the youngest scope of the inputs.
//
// Inputs of integer or bool type are passed on and have no derivative. If the result does not
// depend on an input, the derivative with respect to it is zero.
//
// Second derivatives need ops whose gradients can be differentiated. All ops of package tensor have
// such gradients. A [Func] has them unless it is OnceDifferentiable.
//
// Misuse panics with a *[tensor.Error], as tensor expressions do. A panic of the given function
// passes through. [Check] returns an error, because its purpose is to find a wrong gradient.
package autograd

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

func misuse(op string, kind error, format string, a ...any) {
	panic(tensor.NewError(op, kind, fmt.Sprintf(format, a...)))
}

// Grad returns the gradient of the sum of outputs with respect to each of inputs:
// torch.autograd.grad. Inputs are leaves or results. The gradients of leaves do not change.
// gradOutputs holds the gradient of each output. A nil element stands for 1, and its output must be
// a scalar. A nil slice stands for a slice of nil elements. Parts of the graph that several outputs
// share are differentiated once. The options are those of [tensor.Gradients].
func Grad(outputs, inputs, gradOutputs []*tensor.Tensor, opts ...tensor.GradOption) []*tensor.Tensor {
	if len(outputs) == 0 {
		misuse("grad", tensor.ErrValue, "there are no outputs")
	}
	if gradOutputs == nil {
		gradOutputs = make([]*tensor.Tensor, len(outputs))
	}
	if len(gradOutputs) != len(outputs) {
		misuse("grad", tensor.ErrValue, "%d outputs, but %d gradients of outputs", len(outputs), len(gradOutputs))
	}
	all := append([]tensor.GradOption(nil), opts...)
	if g := gradOutputs[0]; g != nil {
		all = append(all, tensor.GradOutput(g))
	}
	for i, y := range outputs[1:] {
		all = append(all, tensor.Also(y, gradOutputs[i+1]))
	}
	return tensor.Gradients(outputs[0], inputs, all...)
}

// withLeaves makes a leaf for each input, and calls f in a scope of its own. wanted holds the
// leaves of floating point type. The results of f are moved to the scope of the inputs.
func withLeaves(op string, inputs []*tensor.Tensor, f func(leaves, wanted []*tensor.Tensor) []*tensor.Tensor) []*tensor.Tensor {
	if len(inputs) == 0 {
		misuse(op, tensor.ErrValue, "there are no inputs")
	}
	var out []*tensor.Tensor
	tensor.Youngest(inputs...).Do(func(s *tensor.Scope) {
		var leaves, wanted []*tensor.Tensor
		for _, x := range inputs {
			leaf := x.In(s).Detach()
			if leaf.Type().IsFloat() {
				wanted = append(wanted, leaf.RequiresGrad())
			}
			leaves = append(leaves, leaf)
		}
		if len(wanted) == 0 {
			misuse(op, tensor.ErrType, "no input is of floating point type, so there is nothing to differentiate by")
		}
		out = f(leaves, wanted)
		var keep []*tensor.Tensor
		for i, t := range out {
			if t != nil {
				out[i] = t.Detach()
				keep = append(keep, out[i])
			}
		}
		s.Close(keep...)
	}, tensor.WithGrad())
	return out
}

// result calls f and checks that it returns a tensor.
func result(op string, f func(x []*tensor.Tensor) *tensor.Tensor, x []*tensor.Tensor) *tensor.Tensor {
	if f == nil {
		misuse(op, tensor.ErrValue, "the function is nil")
	}
	y := f(x)
	if y == nil {
		misuse(op, tensor.ErrValue, "the function returns nil")
	}
	return y
}

// spread returns one gradient for each leaf. It puts the gradients of the differentiable inputs, in
// order, at the indices of these inputs. The entries of all other inputs are nil.
func spread(leaves, grads []*tensor.Tensor) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(leaves))
	k := 0
	for i, x := range leaves {
		if x.Type().IsFloat() {
			out[i] = grads[k]
			k++
		}
	}
	return out
}

// gradients does what tensor.Gradients does, but returns zeros for inputs that y does not depend
// on.
func gradients(y *tensor.Tensor, inputs []*tensor.Tensor, opts ...tensor.GradOption) []*tensor.Tensor {
	g := make([]*tensor.Tensor, len(inputs))
	if y.NeedsGrad() {
		g = tensor.Gradients(y, inputs, append(opts, tensor.AllowUnused())...)
	}
	for i, d := range g {
		if d == nil {
			g[i] = inputs[i].ZerosLike()
		}
	}
	return g
}

func scalar(op string, y *tensor.Tensor) {
	if y.Size() != 1 {
		misuse(op, tensor.ErrShape, "the function returns a tensor of shape %v, it must be a scalar", y.Shape())
	}
}

// VJP returns f(inputs) and the product of v with the Jacobian of f at inputs: for each input x the
// sum Σ v·∂f/∂x. Backward computes the same product. v has the shape of f's result. A nil v stands
// for 1, and f's result must then be a scalar. The product for an integer input is nil.
func VJP(f func(x []*tensor.Tensor) *tensor.Tensor, inputs []*tensor.Tensor, v *tensor.Tensor) (y *tensor.Tensor, grads []*tensor.Tensor) {
	out := withLeaves("vjp", inputs, func(leaves, wanted []*tensor.Tensor) []*tensor.Tensor {
		y := result("vjp", f, leaves)
		var opts []tensor.GradOption
		switch {
		case v != nil && v.Shape() != y.Shape():
			misuse("vjp", tensor.ErrShape, "v has shape %v, the function's result %v", v.Shape(), y.Shape())
		case v != nil:
			opts = append(opts, tensor.GradOutput(v))
		default:
			scalar("vjp", y)
		}
		return append([]*tensor.Tensor{y}, spread(leaves, gradients(y, wanted, opts...))...)
	})
	return out[0], out[1:]
}

// directions checks that v has one element for each input. It returns the elements of v for the
// differentiable inputs.
func directions(op string, leaves, v []*tensor.Tensor) []*tensor.Tensor {
	if len(v) != len(leaves) {
		misuse(op, tensor.ErrValue, "%d inputs, but %d directions", len(leaves), len(v))
	}
	var out []*tensor.Tensor
	for i, x := range leaves {
		switch {
		case !x.Type().IsFloat():
			if v[i] != nil {
				misuse(op, tensor.ErrType, "input %d is of type %v and has no derivative; its direction must be nil", i, x.Type())
			}
			continue
		case v[i] == nil:
			misuse(op, tensor.ErrValue, "the direction of input %d is nil", i)
		case v[i].Shape() != x.Shape():
			misuse(op, tensor.ErrShape, "the direction of input %d has shape %v, the input %v", i, v[i].Shape(), x.Shape())
		}
		out = append(out, v[i])
	}
	return out
}

// JVP returns f(inputs) and the derivative d of f at inputs in the direction v. d is the product of
// the Jacobian of f with v, and has the shape of f's result. v holds a tensor for each input, of
// the input's shape, or nil if the input is of integer type. JVP differentiates twice. The product
// of the transposed Jacobian with a vector u is linear in u. Its gradient with respect to u, in the
// direction v, is d (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).
func JVP(f func(x []*tensor.Tensor) *tensor.Tensor, inputs, v []*tensor.Tensor) (y, d *tensor.Tensor) {
	out := withLeaves("jvp", inputs, func(leaves, wanted []*tensor.Tensor) []*tensor.Tensor {
		v := directions("jvp", leaves, v)
		y := result("jvp", f, leaves)
		if !y.NeedsGrad() {
			return []*tensor.Tensor{y, y.ZerosLike()}
		}
		u := y.ZerosLike().RequiresGrad()
		g := tensor.Gradients(y, wanted, tensor.GradOutput(u), tensor.CreateGraph(), tensor.AllowUnused())
		return []*tensor.Tensor{y, directional(g, v, []*tensor.Tensor{u})[0]}
	})
	return out[0], out[1]
}

// directional returns the gradient of Σ gᵢ·vᵢ with respect to x.
func directional(g, v, x []*tensor.Tensor) []*tensor.Tensor {
	var outputs, seeds []*tensor.Tensor
	for i, d := range g {
		if d != nil && d.NeedsGrad() {
			outputs, seeds = append(outputs, d), append(seeds, v[i])
		}
	}
	out := make([]*tensor.Tensor, len(x))
	if len(outputs) > 0 {
		out = Grad(outputs, x, seeds, tensor.AllowUnused())
	}
	for i, d := range out {
		if d == nil {
			out[i] = x[i].ZerosLike()
		}
	}
	return out
}

// HVP returns f(inputs), a scalar, and the product of its Hessian at inputs with v: for each input
// x the sum Σⱼ ∂²f/∂x∂xⱼ·vⱼ over the inputs xⱼ. It computes the gradient of the gradient in the
// direction v, not the whole Hessian. v is as for [JVP]. The product for an integer input is nil.
func HVP(f func(x []*tensor.Tensor) *tensor.Tensor, inputs, v []*tensor.Tensor) (y *tensor.Tensor, hv []*tensor.Tensor) {
	out := withLeaves("hvp", inputs, func(leaves, wanted []*tensor.Tensor) []*tensor.Tensor {
		v := directions("hvp", leaves, v)
		y := result("hvp", f, leaves)
		scalar("hvp", y)
		g := make([]*tensor.Tensor, len(wanted))
		if y.NeedsGrad() {
			g = tensor.Gradients(y, wanted, tensor.CreateGraph(), tensor.AllowUnused())
		}
		return append([]*tensor.Tensor{y}, spread(leaves, directional(g, v, wanted))...)
	})
	return out[0], out[1:]
}
