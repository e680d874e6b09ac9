package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// IgnoreIndex is the class that [CrossEntropy] and [NLL] ignore unless they are told another, as in torch.
const IgnoreIndex = -100

// CrossEntropy returns the reduction, the mean if none is given, of -log softmax(x)[target] for logits x [n, classes, …] or [classes]
// and int64 classes [n, …] or a single one: the classes are dimension 1, as in torch. Targets that are [IgnoreIndex] give 0 and do not
// count in the mean. A target of x's shape and type holds probabilities, and the loss is -Σ y·log softmax(x). For weights of classes,
// another ignored index and smoothing see [CrossEntropyLoss].
func CrossEntropy(x, target *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return crossEntropy(x, target, tensor.CrossEntropyOptions{}, r)
}

func crossEntropy(x, target *tensor.Tensor, o tensor.CrossEntropyOptions, r []Reduction) *tensor.Tensor {
	given("cross_entropy", x, target)
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		return reduceCrossEntropy("cross_entropy", x.In(c).CrossEntropy(target, o), target, o, r)
	}, x, target, o.Weight)
}

// reduceCrossEntropy reduces the losses of targets, in the scope of the losses.
func reduceCrossEntropy(op string, loss, target *tensor.Tensor, o tensor.CrossEntropyOptions, r []Reduction) *tensor.Tensor {
	if !target.Type().IsFloat() {
		return classMean(op, loss, target.In(loss.Scope()), o.Weight, o.Ignored(), r)
	}
	if len(r) == 1 && r[0] == Sum {
		return loss.Neg().Sum().Neg() // as torch does it: -0 of none
	}
	return reduce(op, loss, r)
}

// CrossEntropyLoss is the loss of logits against classes or probabilities with torch's options; its zero value has torch's defaults. See
// [tensor.Tensor.CrossEntropy] for the formula. With classes as targets the mean is that by the sum of the targets' weights, with
// probabilities that of all losses.
type CrossEntropyLoss struct {
	Weight         *tensor.Tensor `nn:"weight,buffer"` // a factor for each class, [classes], of the logits' type; nil: 1
	IgnoreIndex    *int           // nil: [IgnoreIndex]; new(0) makes it 0. Probabilities name no class, so there 0 or more is an error
	LabelSmoothing float64        // 0 … 1
	Reduction      Reduction
}

// Forward returns the loss of logits x [n, classes, …] or [classes]; see [CrossEntropy].
func (l CrossEntropyLoss) Forward(x, target *tensor.Tensor) *tensor.Tensor {
	o := tensor.CrossEntropyOptions{Weight: l.Weight, IgnoreIndex: l.IgnoreIndex, LabelSmoothing: l.LabelSmoothing}
	return crossEntropy(x, target, o, []Reduction{l.Reduction})
}

// NLL returns the reduction, the mean if none is given, of -logp[i, target[i]] for logarithms of probabilities [n, classes, …] or
// [classes] and int64 targets [n, …] or a single one: the classes are dimension 1, as in torch. Targets that are [IgnoreIndex] give 0
// and do not count in the mean.
func NLL(logp, target *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return nll(logp, target, nil, IgnoreIndex, r)
}

// NLLLoss is [NLL] with torch's options; its zero value has torch's defaults. The mean is that by the sum of the targets' weights.
type NLLLoss struct {
	Weight      *tensor.Tensor `nn:"weight,buffer"` // a factor for each class, [classes], of the logarithms' type; nil: 1
	IgnoreIndex *int           // nil: [IgnoreIndex]; new(0) makes it 0
	Reduction   Reduction
}

// Forward returns the loss; see [NLL].
func (l NLLLoss) Forward(logp, target *tensor.Tensor) *tensor.Tensor {
	o := tensor.CrossEntropyOptions{IgnoreIndex: l.IgnoreIndex}
	return nll(logp, target, l.Weight, o.Ignored(), []Reduction{l.Reduction})
}

func nll(logp, target, weight *tensor.Tensor, ignore int, r []Reduction) *tensor.Tensor {
	const op = "nll_loss"
	given(op, logp, target)
	if on(logp, target, weight) {
		return tensor.WithAutocast(op, tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor { return nll(in[0], in[1], in[2], ignore, r) }, logp, target, weight)
	}
	dim := min(1, logp.Rank()-1)
	checkClasses(op, logp, target, weight, dim)
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		target := target.In(c)
		ignored := target.EqScalar(float64(ignore))
		safe := target.MaskedFill(ignored, 0)
		loss := logp.In(c).Gather(dim, safe.Unsqueeze(dim)).Squeeze(dim).Neg()
		if weight != nil {
			loss = loss.Mul(weight.IndexSelect(0, safe.Flatten(0, -1)).Reshape(target.Shape().Slice()...))
		}
		return classMean(op, loss.MaskedFill(ignored, 0), target, weight, ignore, r)
	}, logp, target, weight)
}

// checkClasses checks that target holds classes of x, whose classes are dimension dim, and weight a factor for each.
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

// classMean reduces the losses of targets, in their scope; their mean is that by the sum of the targets' weights, without those that are ignored.
func classMean(op string, loss, target, weight *tensor.Tensor, ignore int, r []Reduction) *tensor.Tensor {
	if len(r) > 1 || len(r) == 1 && r[0] != Mean {
		return reduce(op, loss, r)
	}
	t := loss.Type().Compute() // a count may have no place among 16-bit floats
	sum := loss.Cast(t).Sum()
	if weight == nil {
		return sum.Div(target.NeScalar(float64(ignore)).Sum().Cast(t)).Cast(loss.Type())
	}
	ignored := target.EqScalar(float64(ignore)).Flatten(0, -1)
	safe := target.Flatten(0, -1).MaskedFill(ignored, 0)
	return sum.Div(weight.IndexSelect(0, safe).MaskedFill(ignored, 0).Cast(t).Sum()).Cast(loss.Type())
}
