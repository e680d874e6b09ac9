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
	checks         AnomalyCheck // beside those of the scope
}

// optionsOf returns what the options of op say.
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

// A start is a result that differentiation starts from, with its gradient; nil stands for 1.
type start struct{ y, g *Tensor }

// RetainGraph keeps what the graph saved, so that it can be differentiated again.
func RetainGraph() GradOption { return func(o *gradOptions) { o.retain = true } }

// CreateGraph records the computation of the gradients, so that they can be differentiated. It
// implies [RetainGraph].
func CreateGraph() GradOption { return func(o *gradOptions) { o.retain, o.create = true, true } }

// GradOutput gives the gradient of the result that differentiation starts from, instead of 1 for a
// scalar. It has the result's shape and device and is converted to its type.
func GradOutput(g *Tensor) GradOption { return func(o *gradOptions) { o.seed = g } }

// AllowUnused lets [Gradients] return nil for inputs that the output does not depend on.
func AllowUnused() GradOption { return func(o *gradOptions) { o.unused = true } }

// Also starts from y as well, in one pass over what the results share: torch.autograd.backward of a
// list. g is the gradient of y, nil for the 1 of a scalar.
func Also(y, g *Tensor) GradOption {
	return func(o *gradOptions) { o.more = append(o.more, start{y, g}) }
}

// Into makes Backward add to the gradients of these tensors only, leaves or results, and compute no
// more than these need. It is torch's inputs=. What the result does not depend on is left as it is.
// A result among them retains its gradient from then on ([Tensor.RetainGrad]). Into of nothing is
// refused.
func Into(x ...*Tensor) GradOption {
	return func(o *gradOptions) {
		if o.into = append(slices.Clip(o.into), x...); o.into == nil {
			o.into = []*Tensor{}
		}
	}
}
