package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// IgnoreIndex is the class that [CrossEntropy] and [NLL] ignore by default, as in torch.
const IgnoreIndex = -100

// CrossEntropy returns the reduction of -log softmax(x)[target]. The default reduction is the mean.
// x holds logits, [n, classes, …] or [classes]. target holds int64 classes, [n, …] or a single
// class. As in torch, dimension 1 of x is the dimension of the classes. A target equal to
// [IgnoreIndex] has a loss of 0 and does not count in the mean. A target with x's shape and type
// holds probabilities y, and the loss is -Σ y·log softmax(x). [CrossEntropyLoss] also has class
// weights, another ignored index and label smoothing.
func CrossEntropy(x, target *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return crossEntropy(x, target, tensor.CrossEntropyOptions{}, r)
}

func crossEntropy(x, target *tensor.Tensor, o tensor.CrossEntropyOptions, r []Reduction) *tensor.Tensor {
	requireUsable("cross_entropy", x, target)
	if o.Mean = isMean(r); o.Mean {
		return x.CrossEntropy(target, o)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		return reduceCrossEntropy("cross_entropy", x.In(c).CrossEntropy(target, o), target, o, r)
	}, x, target, o.Weight)
}

// reduceCrossEntropy reduces the losses by the reduction in r, in the scope of the losses.
func reduceCrossEntropy(op string, loss, target *tensor.Tensor, o tensor.CrossEntropyOptions, r []Reduction) *tensor.Tensor {
	if !target.Type().IsFloat() {
		return classMean(op, loss, target.In(loss.Scope()), o.Weight, o.Ignored(), r)
	}
	if len(r) == 1 && r[0] == Sum {
		return loss.Neg().Sum().Neg() // as in torch, the sum of no losses is -0
	}
	return reduce(op, loss, r)
}

// isMean reports whether r selects the mean. The list r has at most one reduction, and an empty
// list means the default.
func isMean(r []Reduction) bool { return len(r) == 0 || len(r) == 1 && r[0] == Mean }

// CrossEntropyLoss is the cross-entropy of logits and a target, with torch's options. The target
// holds classes or probabilities. The zero value has torch's defaults. [tensor.Tensor.CrossEntropy]
// states the formula. If the targets are classes, the mean divides by the sum of the weights of the
// targets' classes. If they are probabilities, it divides by the number of losses.
type CrossEntropyLoss struct {
	// Weight is [classes], a factor for each class, with the logits' type. Nil means that all
	// factors are 1.
	Weight *tensor.Tensor `nn:"weight,buffer"`
	// IgnoreIndex points to the class to ignore. Nil means [IgnoreIndex], and new(0) means class 0.
	// If the target holds probabilities, an index of 0 or more is an error.
	IgnoreIndex    *int
	LabelSmoothing float64 // between 0 and 1
	Reduction      Reduction
}

// Forward returns the loss of logits x [n, classes, …] or [classes]. target has int64 classes,
// [n, …] or a single class, or probabilities in the shape of x.
func (l CrossEntropyLoss) Forward(x, target *tensor.Tensor) *tensor.Tensor {
	o := tensor.CrossEntropyOptions{Weight: l.Weight, IgnoreIndex: l.IgnoreIndex, LabelSmoothing: l.LabelSmoothing}
	return crossEntropy(x, target, o, []Reduction{l.Reduction})
}

// NLL returns the reduction of -logp[i, target[i]]. The default reduction is the mean. logp holds
// logarithms of probabilities, [n, classes, …] or [classes]. target holds int64 classes, [n, …] or
// a single class. As in torch, dimension 1 of logp is the dimension of the classes. A target equal
// to [IgnoreIndex] has a loss of 0 and does not count in the mean.
func NLL(logp, target *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return nll(logp, target, nil, IgnoreIndex, r)
}

// NLLLoss is [NLL] with torch's options. Its zero value has torch's defaults. The mean divides by
// the sum of the targets' weights.
type NLLLoss struct {
	// Weight is [classes], a factor for each class, with the type of logp. Nil means that all
	// factors are 1.
	Weight *tensor.Tensor `nn:"weight,buffer"`
	// the class to ignore; nil means [IgnoreIndex], and new(0) means class 0
	IgnoreIndex *int
	Reduction   Reduction
}

// Forward returns the loss of logarithms of probabilities logp, [n, classes, …] or [classes], and
// int64 classes target, [n, …] or a single class.
func (l NLLLoss) Forward(logp, target *tensor.Tensor) *tensor.Tensor {
	o := tensor.CrossEntropyOptions{IgnoreIndex: l.IgnoreIndex}
	return nll(logp, target, l.Weight, o.Ignored(), []Reduction{l.Reduction})
}

func nll(logp, target, weight *tensor.Tensor, ignore int, r []Reduction) *tensor.Tensor {
	const op = "nll_loss"
	requireUsable(op, logp, target)
	if autocastOn(logp, target, weight) {
		return tensor.WithAutocast(op, tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor { return nll(in[0], in[1], in[2], ignore, r) }, logp, target, weight)
	}
	dim := min(1, logp.Rank()-1)
	checkClasses(op, logp, target, weight, dim)
	o := tensor.CrossEntropyOptions{Weight: weight, IgnoreIndex: &ignore, LogProbabilities: true}
	if o.Mean = isMean(r); o.Mean {
		return logp.CrossEntropy(target, o)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		return reduce(op, logp.In(c).CrossEntropy(target, o), r)
	}, logp, target, weight)
}

// checkClasses checks that target fits x, and that weight has a factor for each class. The classes
// are along dimension dim of x.
func checkClasses(op string, x, target, weight *tensor.Tensor, dim int) {
	if !x.Type().IsFloat() {
		misuse(op, tensor.ErrType, fmt.Sprintf("needs floating point operands, not %v", x.Type()), x, target)
	}
	if x.Rank() == 0 || target.Shape() != x.Shape().Remove(dim) {
		hint := ""
		if r := x.Rank(); r > 2 && target.Shape() == x.Shape().Remove(r-1) {
			hint = "classes are dimension 1: use MoveAxis(-1, 1)"
		}
		hinted(op, tensor.ErrShape, fmt.Sprintf("targets have the shape of the other operand, %v, without the classes in dimension 1, not %v", x.Shape(), target.Shape()), hint, x, target)
	}
	if target.Type() != dtype.I64 {
		hinted(op, tensor.ErrType, fmt.Sprintf("targets must be int64 class indices, they are %v", target.Type()), "use Cast(dtype.I64)", x, target)
	}
	if x.Dim(dim) == 0 && target.Size() > 0 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("there are no classes in shape %v", x.Shape()), x, target)
	}
	if weight == nil {
		return
	}
	if weight.Rank() != 1 || weight.Dim(0) != x.Dim(dim) {
		misuse(op, tensor.ErrShape, fmt.Sprintf("%v are the weights of %d classes", weight.Shape(), x.Dim(dim)), x, weight)
	}
	if weight.Type() != x.Type() {
		hinted(op, tensor.ErrType, fmt.Sprintf("weights are %v, the other operand %v", weight.Type(), x.Type()), "Cast one of them", x, weight)
	}
}

// classMean reduces the losses of targets by the reduction in r, in the scope of the losses. The
// mean divides by the sum of the class weights of the targets that are not ignored.
func classMean(op string, loss, target, weight *tensor.Tensor, ignore int, r []Reduction) *tensor.Tensor {
	if !isMean(r) {
		return reduce(op, loss, r)
	}
	t := loss.Type().Compute() // a number of targets may be too large for 16 bits
	sum := loss.Cast(t).Sum()
	if weight == nil {
		return sum.Div(target.NeScalar(float64(ignore)).Sum()).Cast(loss.Type())
	}
	ignored := target.EqScalar(float64(ignore)).Flatten(0, -1)
	safe := target.Flatten(0, -1).MaskedFill(ignored, 0)
	return sum.Div(weight.IndexSelect(0, safe).MaskedFill(ignored, 0).Cast(t).Sum()).Cast(loss.Type())
}

// LinearCrossEntropyOptions are the options of [LinearCrossEntropy]. The zero value is torch's
// default.
type LinearCrossEntropyOptions struct {
	tensor.CrossEntropyOptions
	// Rows is the number of rows whose logits are in memory at the same time. With 0, it is the
	// number of rows that have 2²⁴ logits together, but at least 64.
	Rows int
}

// LinearCrossEntropy returns the reduction of the cross-entropy of the logits x·weightᵀ + bias. The
// default reduction is the mean. LinearCrossEntropy is torch's linear_cross_entropy with options.
// It never holds the logits of all rows in memory at once.
//
// The rows are divided into blocks. For each block, the forward pass computes the logits, reduces
// them to losses, and frees them. Backward computes each block's logits again, and adds up the
// gradients. So the memory for logits does not grow with the number of rows. The cost is one more
// matrix product for each block.
//
// x is [..., features], weight [classes, features], bias [classes] or nil. Targets are classes,
// int64 [...], or probabilities [..., classes]. [tensor.Tensor.CrossEntropy] states the formula,
// and [CrossEntropyLoss] describes the mean.
func LinearCrossEntropy(x, weight, bias, target *tensor.Tensor, o LinearCrossEntropyOptions, r ...Reduction) *tensor.Tensor {
	const op = "linear_cross_entropy"
	requireUsable(op, x, weight, target)
	if weight.Rank() != 2 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the weight is [classes, features], not %v", weight.Shape()), x, weight)
	}
	features(op, x, weight, false)
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
	if o.Mean {
		misuse(op, tensor.ErrValue, "the option Mean is not for the losses of parts; the mean is a Reduction", x)
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
		// The gradients of the blocks of rows are summed in float32, even if the matrix products
		// are in 16 bits.
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
				if bias = rest[0]; bias.Type() != dtype.F32 {
					bias = bias.Cast(t)
				}
			}
			return []*tensor.Tensor{in[0].Linear(in[2].Cast(t), bias).CrossEntropy(in[1], o)}
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

// LinearCrossEntropyLoss is a model's last linear layer together with the loss, torch's layer of
// the same name. The logits of all rows are never in memory at once: see [LinearCrossEntropy].
// Weight, IgnoreIndex, LabelSmoothing and Reduction are as in [CrossEntropyLoss].
type LinearCrossEntropyLoss struct {
	Linear *Linear
	// Weight is [classes], a factor for each class. Nil means that all factors are 1.
	Weight         *tensor.Tensor `nn:"weight,buffer"`
	IgnoreIndex    *int           // the class to ignore; nil means [IgnoreIndex]
	LabelSmoothing float64        // between 0 and 1
	Reduction      Reduction
	// Rows is the number of rows whose logits are in memory at the same time.
	// [LinearCrossEntropyOptions] says what 0 means.
	Rows int
}

// NewLinearCrossEntropyLoss returns the loss of a linear layer with the given numbers of features
// and classes. As in torch the linear layer has no bias. For a bias, set the field Linear.
func NewLinearCrossEntropyLoss(features, classes int, opts ...Option) *LinearCrossEntropyLoss {
	o := options("LinearCrossEntropyLoss", opts)
	return &LinearCrossEntropyLoss{Linear: NewLinear(features, classes, append(o.forInner(), NoBias())...)}
}

// Forward returns the loss of x [..., features]. target holds classes, int64 [...], or
// probabilities [..., classes].
func (l *LinearCrossEntropyLoss) Forward(x, target *tensor.Tensor) *tensor.Tensor {
	o := LinearCrossEntropyOptions{tensor.CrossEntropyOptions{Weight: l.Weight, IgnoreIndex: l.IgnoreIndex, LabelSmoothing: l.LabelSmoothing}, l.Rows}
	return LinearCrossEntropy(x, l.Linear.Weight, l.Linear.Bias, target, o, l.Reduction)
}
