package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdaptiveLogSoftmaxWithLoss is a softmax over many classes whose frequencies differ much (E. Grave
// et al., arXiv:1609.04309). It is torch's layer of the same name. Class 0 is the most frequent
// one. The cutoffs divide the classes into a first range of frequent classes and clusters of rarer
// ones. The head scores the frequent classes, and gives each cluster one score. The classes inside
// a cluster are scored only for rows whose target is in that cluster.
// [NewAdaptiveLogSoftmaxWithLoss] makes such a layer.
type AdaptiveLogSoftmaxWithLoss struct {
	Base
	Head *Linear // scores the classes below the first cutoff, and each cluster
	// Tail has one Sequential for each cluster. Each Sequential reduces the features, and then
	// scores the classes of its cluster.
	Tail []*Sequential

	Cutoffs []int // the first class of each cluster, then the number of classes
}

// NewAdaptiveLogSoftmaxWithLoss returns a layer with the given numbers of features and classes. The
// cutoffs must rise and lie between 1 and classes-1. Other cutoffs panic with an *[Error]. The
// options are [DivValue], [HeadBias], [In], [Typed] and [SkipInit].
func NewAdaptiveLogSoftmaxWithLoss(features, classes int, cutoffs []int, opts ...Option) *AdaptiveLogSoftmaxWithLoss {
	o := options("AdaptiveLogSoftmaxWithLoss", append([]Option{DivValue(4)}, opts...), adaptive...)
	last := 0
	for _, c := range cutoffs {
		if c <= last || c >= classes {
			panic(wrong(o.layer, fmt.Sprintf("cutoffs rise from 1 or more to at most %d, they are %v", classes-1, cutoffs)))
		}
		last = c
	}
	if len(cutoffs) == 0 || !(o.div > 0) {
		panic(wrong(o.layer, fmt.Sprintf("needs a cutoff and a positive DivValue, they are %v and %v", cutoffs, o.div)))
	}
	l := &AdaptiveLogSoftmaxWithLoss{Cutoffs: append(slices.Clone(cutoffs), classes)}
	plain := append(o.forInner(), NoBias())
	head := plain
	if o.headBias {
		head = o.forInner()
	}
	l.Head = NewLinear(features, cutoffs[0]+len(cutoffs), head...)
	for i := range cutoffs {
		size := int(math.Floor(float64(features) / math.Pow(o.div, float64(i+1))))
		l.Tail = append(l.Tail, NewSequential(NewLinear(features, size, plain...), NewLinear(size, l.Cutoffs[i+1]-l.Cutoffs[i], plain...)))
	}
	return l
}

const adaptiveOp = "adaptive_log_softmax"

// Forward returns the logarithm of each target's probability, [n], and the negative mean of these
// logarithms. x is [n, features] and target is int64 [n]. For a single row, x and target omit n.
// For each cluster, Forward reads from the device the number of targets in the cluster. A target
// that is not a class causes an index error.
func (l *AdaptiveLogSoftmaxWithLoss) Forward(x, target *tensor.Tensor) (output, loss *tensor.Tensor) {
	defer l.Enter(&x, &output)()
	requireUsable(adaptiveOp, x, target)
	if target.Type() != dtype.I64 {
		hinted(adaptiveOp, tensor.ErrType, fmt.Sprintf("targets must be int64, they are %v", target.Type()), "use Cast(dtype.I64)", x, target)
	}
	if x.Rank() < 1 || x.Rank() > 2 || target.Shape() != x.Shape().Head(x.Rank()-1) {
		misuse(adaptiveOp, tensor.ErrShape, fmt.Sprintf("needs x [n, features] and targets [n], or without n; shapes are %v and %v", x.Shape(), target.Shape()), x, target)
	}
	output = inChild(func(c *tensor.Scope) *tensor.Tensor {
		x, target := x.In(c), target.In(c)
		if x.Rank() == 1 {
			return l.chosen(x.Unsqueeze(0), target.Unsqueeze(0)).Squeeze(0)
		}
		return l.chosen(x, target)
	}, x, target)
	mean := output.Mean()
	defer mean.Free()
	return output, mean.Neg()
}

// chosen returns the logarithm of the probability of each row's target, [n].
func (l *AdaptiveLogSoftmaxWithLoss) chosen(x, target *tensor.Tensor) *tensor.Tensor {
	// at is the target's index among the head's scores. A target that is no class stays an invalid
	// index.
	at := target
	rows := make([]*tensor.Tensor, len(l.Tail))
	for i := range l.Tail {
		in := target.GeScalar(float64(l.Cutoffs[i])).LogicalAnd(target.LtScalar(float64(l.Cutoffs[i+1])))
		at = at.MaskedFill(in, float64(l.Cutoffs[0]+i))
		rows[i] = in.Nonzero().Squeeze(1)
	}
	y := l.Head.Forward(x).LogSoftmax(1).Gather(1, at.Unsqueeze(1)).Squeeze(1)
	for i, tail := range l.Tail {
		if rows[i].Size() == 0 {
			continue
		}
		class := target.IndexSelect(0, rows[i]).SubScalar(float64(l.Cutoffs[i])).Unsqueeze(1)
		part := tail.Forward(x.IndexSelect(0, rows[i])).LogSoftmax(1).Gather(1, class).Squeeze(1)
		y = y.IndexAdd(0, rows[i], part, 1)
	}
	return y
}

// LogProb returns the logarithms of the probabilities of all classes, [n, classes], for x [n,
// features].
func (l *AdaptiveLogSoftmaxWithLoss) LogProb(x *tensor.Tensor) *tensor.Tensor {
	requireUsable(adaptiveOp, x)
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		x := x.In(c)
		return l.logProb(x, l.Head.Forward(x))
	}, x)
}

func (l *AdaptiveLogSoftmaxWithLoss) logProb(x, head *tensor.Tensor) *tensor.Tensor {
	head = head.LogSoftmax(1)
	parts := []*tensor.Tensor{head.Narrow(1, 0, l.Cutoffs[0])}
	for i, tail := range l.Tail {
		parts = append(parts, tail.Forward(x).LogSoftmax(1).Add(head.Narrow(1, l.Cutoffs[0]+i, 1)))
	}
	return tensor.Cat(1, parts...)
}

// Predict returns the most probable class of each row of x, int64 [n], for x [n, features]. It is
// approximate, as torch's predict is: it scores the classes of a cluster only for rows in which
// that cluster has the head's highest score. In the other rows, a class inside a cluster may be
// more probable than the returned class. Predict reads from the device how many rows need the
// clusters.
func (l *AdaptiveLogSoftmaxWithLoss) Predict(x *tensor.Tensor) *tensor.Tensor {
	requireUsable(adaptiveOp, x)
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		x := x.In(c)
		head := l.Head.Forward(x)
		class := head.Argmax(1)
		rows := class.GeScalar(float64(l.Cutoffs[0])).Nonzero().Squeeze(1)
		if rows.Size() == 0 {
			return class
		}
		return class.IndexCopy(0, rows, l.logProb(x.IndexSelect(0, rows), head.IndexSelect(0, rows)).Argmax(1))
	}, x)
}
