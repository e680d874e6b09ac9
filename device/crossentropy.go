package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// CrossEntropy sets Loss[i] = -log softmax(X)[i, Target[i]], or 0 if the target is Ignore. It also
// sets Top[i] to the maximum of the row, and Rest[i] = log Σ exp(X[i] - Top[i]). X has the shape
// [n, classes], and Target is an I64 view of shape [n]. Loss, Top and Rest have the shape [n] and
// the computing type of X. If a target is neither Ignore nor a class, its loss is 0, and Run or
// the next wait returns an [IndexError] with Tag.
//
// If Top and Rest are absent, X holds logarithms of probabilities, and Loss[i] = -X[i, Target[i]].
//
// Mean and Count have one element each. Either both are present or both are absent. Count is an
// I64: the number of targets that are not Ignore. Mean has the type of Loss: it is the sum of Loss,
// divided by Count. The sum has the same bits as a [Reduce] of Loss.
type CrossEntropy struct {
	Loss, Top, Rest, X, Target View
	Mean, Count                View
	Ignore                     int64
	Tag                        uint32
}

// Name returns "cross-entropy".
func (*CrossEntropy) Name() string { return "cross-entropy" }

// Operand returns operand i: the results come first, then the inputs.
func (o *CrossEntropy) Operand(i int) Operand {
	return nth(i, Operand{"loss", &o.Loss, true}, Operand{"top", &o.Top, true},
		Operand{"rest", &o.Rest, true}, Operand{"mean", &o.Mean, true},
		Operand{"count", &o.Count, true}, Operand{"x", &o.X, false},
		Operand{"target", &o.Target, false})
}

// Check checks the shapes and types of the operands.
func (o *CrossEntropy) Check() (arg, reason string) {
	columns := []Operand{o.Operand(0), o.Operand(1), o.Operand(2)}
	if o.Top.Absent() && o.Rest.Absent() {
		columns = columns[:1]
	}
	if arg, reason := checkClasses(o.Operand(5), &o.Target, columns...); reason != "" {
		return arg, reason
	}
	if o.X.Shape.At(0) > 0 && o.X.Shape.At(1) == 0 {
		return "x", "no classes"
	}
	if o.Mean.Absent() {
		return checkCount(&o.Count, false)
	}
	if t := o.Loss.Type; o.Mean.Type != t || o.Mean.Shape != shape.Of(1) {
		return "mean", wrong(&o.Mean, t, shape.Of(1))
	}
	return checkCount(&o.Count, true)
}

// checkCount checks v, the view of the number of targets that are not Ignore. If needed is set, v
// must be present.
func checkCount(v *View, needed bool) (arg, reason string) {
	switch {
	case v.Absent() && !needed:
	case !needed:
		return "count", "there is no mean"
	case v.Type != dtype.I64 || v.Shape != shape.Of(1):
		return "count", wrong(v, dtype.I64, shape.Of(1))
	}
	return "", ""
}

// Work counts, for each element of X, a maximum, a difference, an exponential and a sum. For
// logarithms of probabilities, it counts only a negation for each row. If Mean is present, it
// also counts two sums and a comparison for each row, and a division.
func (o *CrossEntropy) Work() Work {
	w := Work{(3 + expCost) * o.X.Size(), bytesOf(o.Loss, o.Top, o.Rest, o.X, o.Target)}
	if o.Top.Absent() {
		w = Work{o.Loss.Size(), bytesOf(o.Loss, o.Target) + o.Loss.Size()*o.X.Type.Size()}
	}
	if !o.Mean.Absent() {
		w = w.Add(Work{1 + 3*o.Loss.Size(), bytesOf(o.Loss, o.Target, o.Mean, o.Count)})
	}
	return w
}

// Clone copies the op.
func (o *CrossEntropy) Clone() Op { c := *o; return &c }

// CrossEntropyGrad sets DX = (exp(X - Top[i] - Rest[i]) - onehot(Target))·G[i]. If the target of a
// row is Ignore or not a class, DX of the row is 0. Top, Rest and Count are results of
// [CrossEntropy]. G has the shape [n], and its strides may be 0. If G is absent, its elements count
// as 1. If Count is present, G is divided by Count. DX may be the same view as X.
//
// If X, Top and Rest are absent, DX = -onehot(Target)·G[i], the gradient for logarithms of
// probabilities.
type CrossEntropyGrad struct {
	DX, X, Top, Rest, Target, G, Count View
	Ignore                             int64
}

// Name returns "cross-entropy gradient".
func (*CrossEntropyGrad) Name() string { return "cross-entropy gradient" }

// Operand returns operand i: the result comes first, then the inputs.
func (o *CrossEntropyGrad) Operand(i int) Operand {
	return nth(i, Operand{"dx", &o.DX, true}, Operand{"x", &o.X, false},
		Operand{"top", &o.Top, false}, Operand{"rest", &o.Rest, false},
		Operand{"target", &o.Target, false}, Operand{"g", &o.G, false},
		Operand{"count", &o.Count, false})
}

// Check checks the shapes and types of the operands.
func (o *CrossEntropyGrad) Check() (arg, reason string) {
	logs := o.X.Absent() && o.Top.Absent() && o.Rest.Absent()
	columns := []Operand{o.Operand(2), o.Operand(3), o.Operand(5)}
	if o.G.Absent() {
		columns = columns[:2]
	}
	x := o.Operand(1)
	if logs {
		x, columns = o.Operand(0), columns[2:]
	} else if arg, reason := checkRows(o, 2); reason != "" {
		return arg, reason
	}
	if arg, reason := checkClasses(x, &o.Target, columns...); reason != "" || o.Count.Absent() {
		return arg, reason
	}
	return checkCount(&o.Count, true)
}

// Work counts, for each element of X, two differences, an exponential and a product. For logarithms
// of probabilities it counts only a product for each row.
func (o *CrossEntropyGrad) Work() Work {
	switch {
	case o.DX.Size() == 0:
		return Work{}
	case o.X.Absent():
		return Work{o.Target.Size(), bytesOf(o.DX, o.Target, o.G, o.Count)}
	}
	return Work{(3 + expCost) * o.X.Size(), bytesOf(o.DX, o.X, o.Top, o.Rest, o.Target, o.G, o.Count)}
}

// Clone copies the op.
func (o *CrossEntropyGrad) Clone() Op { c := *o; return &c }

// checkClasses checks the logits or their gradient, the targets, and the views in columns. Each
// view in columns must have one element for each row, in the type in which the logits are computed.
func checkClasses(logits Operand, target *View, columns ...Operand) (arg, reason string) {
	x := logits.View
	if x.Shape.Rank() != 2 || !x.Type.IsFloat() {
		return logits.Name, fmt.Sprintf("%v of %v, want [rows, classes] of a float type", x.Shape, x.Type)
	}
	rows := shape.Of(x.Shape.At(0))
	for _, o := range columns {
		if t := x.Type.Compute(); o.View.Shape != rows || o.View.Type != t {
			return o.Name, wrong(o.View, t, rows)
		}
	}
	if target.Shape != rows || target.Type != dtype.I64 {
		return "target", wrong(target, dtype.I64, rows)
	}
	return "", ""
}
