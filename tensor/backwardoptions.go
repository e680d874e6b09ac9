package tensor

import "slices"

// A GradOption changes how gradients are computed.
type GradOption func(*gradOptions)

type gradOptions struct {
	retain, create bool
	seed           *Tensor
	unused         bool
	more           []start
	into           []*Tensor
	checks         AnomalyCheck // checks in addition to those of the scope
}

func optionsOf(op string, opts []GradOption) gradOptions {
	var o gradOptions
	for i, f := range opts {
		if f == nil {
			fail(op, ErrValue, nil, "option %d is nil", i)
		}
		f(&o)
	}
	return o
}

// A start is a result y that differentiation starts from, with its gradient g. A nil g stands for
// 1.
type start struct{ y, g *Tensor }

// RetainGraph keeps what the graph saved, so that Backward or [Gradients] can use it again.
func RetainGraph() GradOption { return func(o *gradOptions) { o.retain = true } }

// CreateGraph records the computation of the gradients, so that they can be differentiated. It
// implies [RetainGraph].
func CreateGraph() GradOption { return func(o *gradOptions) { o.retain, o.create = true, true } }

// GradOutput sets the gradient of the result that differentiation starts from, in place of 1. g
// must have the result's shape and device. It is converted to the result's type.
func GradOutput(g *Tensor) GradOption { return func(o *gradOptions) { o.seed = g } }

// AllowUnused lets [Gradients] return nil for inputs that the output does not depend on.
func AllowUnused() GradOption { return func(o *gradOptions) { o.unused = true } }

// Also makes differentiation start from y too. Ops on which several results depend are
// differentiated only once. This corresponds to torch.autograd.backward with a list of tensors. g
// is the gradient of y. A nil g stands for 1, and y must then be a scalar.
func Also(y, g *Tensor) GradOption {
	return func(o *gradOptions) { o.more = append(o.more, start{y, g}) }
}

// Into makes Backward add only to the gradients of these tensors, which may be leaves or results.
// Backward computes only the gradients that are needed for this. Into is torch's inputs=. If the
// result does not depend on a tensor, the tensor's gradient does not change. A result among the
// tensors retains its gradient from then on ([Tensor.RetainGrad]). Into without tensors is refused.
func Into(x ...*Tensor) GradOption {
	return func(o *gradOptions) {
		if o.into = append(slices.Clip(o.into), x...); o.into == nil {
			o.into = []*Tensor{}
		}
	}
}
