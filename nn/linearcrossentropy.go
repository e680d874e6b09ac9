package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// LinearCrossEntropyOptions are what [LinearCrossEntropy] may be told; the zero value is torch's
// default.
type LinearCrossEntropyOptions struct {
	tensor.CrossEntropyOptions
	// Rows is how many rows' logits there are at a time; 0: as many as make up 2²⁴ logits, and at
	// least 64.
	Rows int
}

// LinearCrossEntropy returns the reduction, the mean if none is given, of the cross-entropy of the
// logits x·weightᵀ + bias, without ever having all logits: torch's linear_cross_entropy with
// options. Some rows at a time are multiplied, their losses are taken and their logits forgotten;
// Backward multiplies each part again, and adds up the gradients. So the memory that a large
// vocabulary takes does not grow with the number of rows, for one more product of each part.
//
// x is [..., features], weight [classes, features], bias [classes] or nil. Targets are classes,
// int64 [...], or probabilities [..., classes]; see [tensor.Tensor.CrossEntropy] for the formula
// and [CrossEntropyLoss] for the mean.
func LinearCrossEntropy(x, weight, bias, target *tensor.Tensor, o LinearCrossEntropyOptions, r ...Reduction) *tensor.Tensor {
	const op = "linear_cross_entropy"
	given(op, x, weight, target)
	if weight.Rank() != 2 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the weight is [classes, features], not %v", weight.Shape()), x, weight)
	}
	features(op, x, weight)
	classes, lead := weight.Dim(0), x.Shape().Head(x.Rank()-1)
	want := lead
	if target.Type().IsFloat() {
		want = lead.Append(classes)
	}
	if target.Shape() != want {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the targets of x %v are %v, or probabilities %v; they are %v", x.Shape(), lead, lead.Append(classes), target.Shape()), x, target)
	}
	if bias != nil && (bias.Rank() != 1 || bias.Dim(0) != classes) {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the bias is [%d], a number for each class, not %v", classes, bias.Shape()), x, weight, bias)
	}
	if o.Rows < 0 {
		misuse(op, tensor.ErrValue, fmt.Sprintf("%d rows at a time", o.Rows), x)
	}
	rows := o.Rows
	if rows == 0 {
		rows = max(64, 1<<24/max(1, classes))
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		n := lead.Size()
		x, to := x.In(c).Reshape(n, weight.Dim(1)), target.In(c)
		if to.Type().IsFloat() {
			to = to.Reshape(n, classes)
		} else {
			to = to.Reshape(n)
		}
		// The gradients of the parts add up in float32, whatever type the products have.
		weight, bias, t := weight, bias, weight.Type()
		if low := c.Autocast(); low != dtype.Invalid && t == dtype.F32 {
			t = low
		} else if t != t.Compute() {
			if weight = weight.In(c).Cast(t.Compute()); bias != nil {
				bias = bias.In(c).Cast(t.Compute())
			}
		}
		part := func(in []*tensor.Tensor) []*tensor.Tensor {
			o, bias := o.CrossEntropyOptions, (*tensor.Tensor)(nil)
			rest := in[3:]
			if o.Weight != nil {
				o.Weight, rest = rest[0], rest[1:]
			}
			if len(rest) > 0 {
				bias = rest[0].Cast(t)
			}
			return []*tensor.Tensor{linear(in[0], in[2].Cast(t), bias).CrossEntropy(in[1], o)}
		}
		var losses []*tensor.Tensor
		for at := 0; at < n || at == 0; at += rows {
			k := min(rows, n-at)
			in := []*tensor.Tensor{x.Narrow(0, at, k), to.Narrow(0, at, k), weight}
			for _, t := range []*tensor.Tensor{o.Weight, bias} {
				if t != nil {
					in = append(in, t)
				}
			}
			losses = append(losses, tensor.Recompute(part, in...)...)
		}
		loss := losses[0]
		if len(losses) > 1 {
			loss = tensor.Cat(0, losses...)
		}
		return reduceCrossEntropy(op, loss.Reshape(lead.Slice()...), target, o.CrossEntropyOptions, r)
	}, x, weight, bias, target, o.Weight)
}

// LinearCrossEntropyLoss is a last layer and its loss in one, which never has all logits: see
// [LinearCrossEntropy], and torch's layer of that name. Its fields beside the layer are those of
// [CrossEntropyLoss].
type LinearCrossEntropyLoss struct {
	Linear         *Linear
	Weight         *tensor.Tensor `nn:"weight,buffer"` // a factor for each class, [classes]; nil: 1
	IgnoreIndex    *int           // nil: [IgnoreIndex]
	LabelSmoothing float64        // 0 … 1
	Reduction      Reduction
	Rows           int // how many rows' logits there are at a time; 0: see [LinearCrossEntropyOptions]
}

// NewLinearCrossEntropyLoss returns the loss of a linear layer from features to classes; as in
// torch it has no bias: for one set the field Linear.
func NewLinearCrossEntropyLoss(features, classes int, opts ...Option) *LinearCrossEntropyLoss {
	o := options("LinearCrossEntropyLoss", opts)
	return &LinearCrossEntropyLoss{Linear: NewLinear(features, classes, append(o.inside(), NoBias())...)}
}

// Forward returns the loss of x [..., features]; see [LinearCrossEntropy] for targets.
func (l *LinearCrossEntropyLoss) Forward(x, target *tensor.Tensor) *tensor.Tensor {
	o := LinearCrossEntropyOptions{tensor.CrossEntropyOptions{Weight: l.Weight, IgnoreIndex: l.IgnoreIndex, LabelSmoothing: l.LabelSmoothing}, l.Rows}
	return LinearCrossEntropy(x, l.Linear.Weight, l.Linear.Bias, target, o, l.Reduction)
}
