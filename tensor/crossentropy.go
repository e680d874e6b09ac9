package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// crossEntropyFunc computes -Σ y·log softmax(x) for each row. y is the target distribution:
// smoothing/classes for each class, plus 1-smoothing for the target class.
type crossEntropyFunc struct {
	ignore    int64
	smoothing float64
	wide      bool // true if 16-bit logits give a float32 loss
	mean      bool // true if the result is the mean over the rows whose targets are not ignored
}

func (crossEntropyFunc) Name() string { return "cross_entropy" }

func (f crossEntropyFunc) Forward(c *Context, in []*Tensor) *Tensor {
	const op = "cross_entropy"
	x, target := in[0], in[1]
	if o := f.kernel(c.Scope(), x, target); o != nil {
		return f.launched(c, o, x, target)
	}
	if c.Needs(0) {
		c.Save(x, target)
	}
	logp := f.widened(x).LogSoftmax(-1)
	loss := f.composed(op, logp, target)
	if f.smoothing != 0 {
		loss = f.smooth(loss, logp, target)
	}
	return f.reduced(loss, target)
}

func (f crossEntropyFunc) lean(c *Context, in []*Tensor) *Tensor {
	if !f.unrounded(in[0]) {
		return nil
	}
	o := f.kernel(c.Scope(), in[0], in[1])
	if o == nil {
		return nil
	}
	return f.launched(c, o, in[0], in[1])
}

// unrounded reports whether the losses have the type in which the kernel computes them.
func (f crossEntropyFunc) unrounded(x *Tensor) bool { return f.wide || x.dtype.Compute() == x.dtype }

// kernel returns an op for the device's kernel, or nil if there is no kernel. The op's results have
// no memory yet. The kernel computes the mean from losses that it does not round. So it may compute
// the mean only if the losses themselves would not be rounded either.
func (f crossEntropyFunc) kernel(s *Scope, x, target *Tensor) *device.CrossEntropy {
	if f.smoothing != 0 {
		return nil
	}
	t, one := x.dtype.Compute(), shape.Of(x.layout.Shape.At(0))
	want := device.CrossEntropy{Loss: resultOf(t, one), Top: resultOf(t, one), Rest: resultOf(t, one),
		X: x.operand(), Target: target.operand(), Ignore: f.ignore}
	if f.mean && f.unrounded(x) {
		want.Mean, want.Count = resultOf(t, shape.Of(1)), resultOf(dtype.I64, shape.Of(1))
	}
	return crossEntropyOps.supported(s, x.st.dev, want)
}

// launched launches the kernel o and saves what the gradient's kernel needs. If the losses are
// unrounded, the only tensors that stay in the scope are the result and the saved tensors.
func (f crossEntropyFunc) launched(c *Context, o *device.CrossEntropy, x, target *Tensor) *Tensor {
	const op = "cross_entropy"
	t, one, s := x.dtype.Compute(), shape.Of(x.layout.Shape.At(0)), c.Scope()
	whole := f.mean && f.unrounded(x)
	loss, top, rest := alloc(op, s, x.st.dev, t, one), alloc(op, s, x.st.dev, t, one), alloc(op, s, x.st.dev, t, one)
	var mean, count *Tensor
	if whole {
		mean, count = alloc(op, s, x.st.dev, t, shape.Dims{}), alloc(op, s, x.st.dev, dtype.I64, shape.Dims{})
	}
	done := false
	defer freeUnless(&done, loss, top, rest, mean, count)
	o.Tag = lateTag(op, x, target, target)
	launch(op, s, o, loss, top, rest, mean, count, x, target)
	done = true
	crossEntropyOps.put(o)
	y := mean
	if whole {
		loss.Free()
	} else {
		if y = loss; !f.wide {
			y = loss.Cast(x.dtype)
		}
		if f.mean {
			count = f.count(target)
			y = f.quotient(y, count)
		}
	}
	if c.Needs(0) {
		if c.Save(x, target, top, rest); f.mean {
			c.Save(count)
		}
		return y
	}
	top.Free()
	rest.Free()
	count.Free()
	return y
}

// count returns the number of targets that are not ignored.
func (f crossEntropyFunc) count(target *Tensor) *Tensor {
	return target.NeScalar(float64(f.ignore)).Sum()
}

// quotient returns the sum of the losses divided by count. It computes in float32, because the sum
// or count may be too large for a 16-bit float.
func (crossEntropyFunc) quotient(loss, count *Tensor) *Tensor {
	return loss.Cast(loss.dtype.Compute()).Sum().Div(count).Cast(loss.dtype)
}

// reduced returns the mean of the losses if f.mean is set, otherwise the losses.
func (f crossEntropyFunc) reduced(loss, target *Tensor) *Tensor {
	if f.mean {
		return f.quotient(loss, f.count(target))
	}
	return loss
}

// widened casts x to the type of the loss.
func (f crossEntropyFunc) widened(x *Tensor) *Tensor {
	if f.wide {
		return x.Cast(x.dtype.Compute())
	}
	return x
}

var (
	// safeTargetOp replaces ignored targets by class 0, so that reading the logit of the target
	// class stays within bounds.
	safeTargetOp = &Elementwise{Name: "cross_entropy", Arity: 1, Expr: x0.Eq(p0).Select(expr.C(0), x0), NoGrad: true}
	ignoredOp    = &Elementwise{Name: "cross_entropy", Arity: 2, Expr: x1.Eq(p0).Select(expr.C(0), x0.Neg()), Fixed: 2, Grad: []*expr.Expr{x1.Eq(p0).Select(expr.C(0), x2.Neg()), nil}}
	// smoothedGradOp computes the gradient from softmax(x), the classes, the targets, and the
	// gradients of the losses. Its params are 1-smoothing (for the target class), smoothing/classes
	// (for every class), and the ignored class. Adding 0 changes -0 to +0.
	smoothedGradOp = &Elementwise{Name: "cross_entropy", Arity: 4, Expr: x2.Eq(expr.Param(2)).Select(expr.C(0), x0.Sub(x1.Eq(x2).Select(p0.Add(p1), p1)).Mul(expr.X(3)).Add(expr.C(0))), Fixed: 6, NoGrad: true}
	oneHotOp       = &Elementwise{Name: "one_hot", Arity: 2, Result: Truth, Expr: x0.Eq(x1), NoGrad: true}
)

// composed picks the log-probabilities of the targets from logp, and negates them. The classes are
// dimension 1 of logp.
func (f crossEntropyFunc) composed(op string, logp, target *Tensor) *Tensor {
	safe := safeTargetOp.Apply([]*Tensor{target}, float64(f.ignore))
	picked := Apply(gatherFunc{1, op}, logp, safe.Unsqueeze(1)).Squeeze(1)
	return ignoredOp.Apply([]*Tensor{picked, target}, float64(f.ignore))
}

func (f crossEntropyFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, target := c.Saved(0), c.Saved(1)
	s := c.Scope()
	// the forward kernel saved values for the gradient's kernel
	if s.modes.noGrad && c.NumSaved() >= 4 {
		return f.grad(c, x, target, g)
	}
	if f.mean {
		g = g.Div(f.count(target)).expand(target.layout.Shape)
	}
	to := x.dtype
	x = f.widened(x)
	classes := s.On(x.st.dev).Arange(x.Dim(1))
	if s.modes.noGrad && x.dtype.Compute() == x.dtype { // nothing is rounded in between
		in := []*Tensor{x.Softmax(-1), classes.Unsqueeze(0), target.Unsqueeze(1), g.Unsqueeze(1)}
		return []*Tensor{smoothedGradOp.Apply(in, 1-f.smoothing, f.smoothing/float64(x.Dim(1)), float64(f.ignore)).Cast(to), nil}
	}
	hot := oneHotOp.Apply([]*Tensor{classes.Unsqueeze(0), target.Unsqueeze(1)}).Cast(x.dtype)
	if f.smoothing != 0 {
		hot = hot.MulScalar(1 - f.smoothing).AddScalar(f.smoothing / float64(x.Dim(1)))
	}
	ignored := target.EqScalar(float64(f.ignore)).Unsqueeze(1)
	return []*Tensor{x.Softmax(-1).Sub(hot).Mul(g.Unsqueeze(1)).AddScalar(0).MaskedFill(ignored, 0).Cast(to), nil}
}

// fromOne is the VJP for the gradient 1. It avoids two launches: one that would fill a tensor with
// 1, and one that would divide the 1 among the rows.
func (f crossEntropyFunc) fromOne(c *Context) []*Tensor {
	if !c.scope.modes.noGrad || c.NumSaved() < 4 {
		return nil
	}
	return f.grad(c, c.Saved(0), c.Saved(1), nil)
}

// grad launches the gradient's kernel. A nil g stands for 1.
func (f crossEntropyFunc) grad(c *Context, x, target, g *Tensor) []*Tensor {
	s, top, rest := c.Scope(), c.Saved(2), c.Saved(3)
	dx, taken := c.takeSaved(0, x)
	if !taken {
		dx = alloc("cross_entropy.grad", s, x.st.dev, x.dtype, x.layout.Shape)
	} else {
		x = dx
	}
	o := crossEntropyGradOps.reuse(device.CrossEntropyGrad{DX: dx.operand(), X: x.operand(), Top: top.operand(), Rest: rest.operand(),
		Target: target.operand(), Ignore: f.ignore})
	if g != nil {
		g = g.Cast(top.dtype)
		g.expandInto(&o.G, &top.layout.Shape)
	}
	var count *Tensor
	if f.mean {
		count = c.Saved(4)
		o.Count = count.operandAs(shape.Of(1))
	}
	launch("cross_entropy", s, o, dx, x, top, rest, target, g, count)
	crossEntropyGradOps.put(o)
	return []*Tensor{dx, nil}
}

// CrossEntropyOptions are the options of [Tensor.CrossEntropy]. The zero value has torch's
// defaults.
type CrossEntropyOptions struct {
	Weight *Tensor // a factor for each class, [classes], of the logits' type; nil means 1
	// a target with this index has loss 0 and does not count in the mean; nil means -100, new(0)
	// means 0
	IgnoreIndex    *int
	LabelSmoothing float64 // 0 … 1: the part of each target that is spread evenly over all classes
	// With LogProbabilities the logits are logarithms of probabilities already, as in torch's
	// nll_loss: no softmax is applied to them.
	LogProbabilities bool
	// Mean returns the mean instead of the losses, torch's reduction="mean". For class indices it
	// is the sum of the losses divided by the sum of the weights of targets that are not ignored.
	Mean bool
}

// Ignored returns the class that is ignored: IgnoreIndex, or -100 if IgnoreIndex is nil.
func (o CrossEntropyOptions) Ignored() int {
	if o.IgnoreIndex == nil {
		return -100
	}
	return *o.IgnoreIndex
}

// CrossEntropy returns the loss of each target for logits x of shape [n, classes, …] or [classes].
// It is torch's cross_entropy with reduction="none". Targets are either class indices or
// probabilities. Class indices are int64, [n, …] or a single index. With weights w and a smoothing
// s, the loss of the class index t is
//
//	w[t]·(1-s)·(-log softmax(x)[t]) + s/classes·Σ w[c]·(-log softmax(x)[c])
//
// The sum is over all classes c. If a target is the ignored index, its loss is 0. Any other target
// outside of 0 … classes-1 is an index error, which a GPU reports at the next wait. With
// LogProbabilities x takes the place of log softmax(x) in the formulas. Probabilities y
// have x's shape and type. Their loss is Σ w[c]·((1-s)·y[c] + s/classes)·(-log softmax(x)[c]), and
// an ignored index of 0 or more is an error. Most programs call nn.CrossEntropy, which averages.
func (x *Tensor) CrossEntropy(target *Tensor, o CrossEntropyOptions) *Tensor {
	const op = "cross_entropy"
	if x.wideLoss(target, o) {
		return x.crossEntropy(target, o, true)
	}
	return WithAutocast(op, AutocastHigh, func(in []*Tensor) *Tensor {
		o := o
		o.Weight = in[2]
		return in[0].crossEntropy(in[1], o, false)
	}, x, target, o.Weight)
}

// wideLoss reports whether autocast would cast 16-bit logits to float32 for a loss whose kernels
// can read them directly. That cast is exact, so loss and gradient are the same without it.
func (x *Tensor) wideLoss(target *Tensor, o CrossEntropyOptions) bool {
	if o.Weight != nil || x == nil || target == nil || target.dtype.IsFloat() || !x.dtype.IsHalf() {
		return false
	}
	s := youngest("cross_entropy", []*Tensor{x, target})
	if s.modes.autocast == dtype.Invalid {
		return false
	}
	s.missNoCast() // this counts as a use of autocast: without autocast the loss would have 16 bits
	return true
}

func (x *Tensor) crossEntropy(target *Tensor, o CrossEntropyOptions, wide bool) *Tensor {
	const op = "cross_entropy"
	in := []*Tensor{x, target}
	if o.Weight != nil {
		in = append(in, o.Weight)
	}
	s := youngest(op, in)
	sameDevice(op, in)
	x.checkCrossEntropy(target, o, in)
	// Without weights, and with one class index for each row, one function does all the work.
	if o.Weight == nil && x.Rank() == 2 && !target.dtype.IsFloat() && (!o.LogProbabilities || o.LabelSmoothing == 0) && s.modes.autocast == dtype.Invalid {
		return x.crossEntropyOfClasses(target, nil, o, wide)
	}
	return within(s, func(c *Scope) *Tensor {
		c.modes.autocast = dtype.Invalid
		x, target := x.In(c), target.In(c)
		alone := x.Rank() == 1
		if alone {
			x, target = x.Unsqueeze(0), target.Unsqueeze(0)
		}
		var weight *Tensor // the weight of each class, with a shape that broadcasts to x
		if o.Weight != nil {
			sh := shape.Of(1, x.Dim(1))
			for sh.Rank() < x.Rank() {
				sh = sh.Append(1)
			}
			weight = o.Weight.In(c).reshape(sh)
		}
		var loss *Tensor
		if target.dtype.IsFloat() {
			if loss = x.crossEntropyOfProbabilities(target, weight, o); o.Mean {
				loss = loss.Mean()
			}
		} else {
			loss = x.crossEntropyOfClasses(target, weight, o, wide)
		}
		if alone && !o.Mean {
			loss = loss.Squeeze(0)
		}
		return loss
	})
}

func (x *Tensor) checkCrossEntropy(target *Tensor, o CrossEntropyOptions, in []*Tensor) {
	const op = "cross_entropy"
	x.mustFloat(op)
	if x.Rank() == 0 {
		fail(op, ErrShape, in, "logits must be [n, classes, …] or [classes], not a scalar")
	}
	dim := min(1, x.Rank()-1)
	classes := x.Dim(dim)
	switch {
	case target.dtype.IsFloat():
		if target.layout.Shape != x.layout.Shape {
			e := newError(op, ErrShape, in, "probabilities have the shape of the logits; shapes are "+shapes([]*Tensor{x, target}))
			if target.layout.Shape == x.layout.Shape.Remove(dim) {
				e.hint("class indices are int64: use Cast(dtype.I64)")
			}
			panic(e)
		}
		if target.dtype != x.dtype {
			e := newError(op, ErrType, in, "probabilities are "+target.dtype.String()+", the logits "+x.dtype.String())
			panic(e.hint("Cast one of them"))
		}
		if o.IgnoreIndex != nil && *o.IgnoreIndex >= 0 {
			e := newError(op, ErrValue, in, fmt.Sprintf("class %d is to be ignored, but the targets are probabilities, which name no class", *o.IgnoreIndex))
			panic(e.hint("leave IgnoreIndex out, or set the rows to be ignored to 0"))
		}
	case target.layout.Shape != x.layout.Shape.Remove(dim):
		e := newError(op, ErrShape, in, "class indices have the logits' shape [n, classes, …] without the classes; shapes are "+shapes([]*Tensor{x, target}))
		if r := x.Rank(); r > 2 && target.layout.Shape == x.layout.Shape.Remove(r-1) {
			e.hint("classes are dimension 1: use MoveAxis(-1, 1)")
		} else if target.layout.Shape == x.layout.Shape {
			e.hint("probabilities are of floating point: use Cast")
		} else if r := target.Rank(); r > 1 && target.Dim(1) == 1 && target.layout.Shape.Remove(1) == x.layout.Shape.Remove(dim) {
			e.hint("Squeeze(1) the targets")
		}
		panic(e)
	case target.dtype != dtype.I64:
		e := newError(op, ErrType, in, "targets must be int64 class indices or probabilities, they are "+target.dtype.String())
		panic(e.hint("use Cast(dtype.I64)"))
	}
	if o.Weight != nil {
		if o.Weight.layout.Shape != shape.Of(classes) {
			fail(op, ErrShape, in, "%v are the weights of %d classes", o.Weight.Shape(), classes)
		}
		if o.Weight.dtype != x.dtype {
			e := newError(op, ErrType, in, "weights are "+o.Weight.dtype.String()+", the logits "+x.dtype.String())
			panic(e.hint("Cast one of them"))
		}
	}
	if !(o.LabelSmoothing >= 0 && o.LabelSmoothing <= 1) {
		fail(op, ErrValue, in, "label smoothing is %v, it must lie between 0 and 1", o.LabelSmoothing)
	}
	if classes == 0 && x.layout.Shape.Remove(dim).Size() > 0 {
		fail(op, ErrShape, in, "there are no classes; the logits' shape is %v", x.Shape())
	}
}

// crossEntropyOfClasses computes the loss for logits [n, classes, …] and class indices [n, …].
func (x *Tensor) crossEntropyOfClasses(target, weight *Tensor, o CrossEntropyOptions, wide bool) *Tensor {
	f := crossEntropyFunc{ignore: int64(o.Ignored()), smoothing: o.LabelSmoothing, wide: wide, mean: o.Mean && weight == nil}
	if weight != nil {
		return x.crossEntropyWeighted(target, weight, f, o)
	}
	if o.LogProbabilities {
		return x.pickedOfClasses(target, f)
	}
	loss := Apply(f, x.rowsOfClasses(target), target.reshape(shape.Of(target.Size())))
	if f.mean {
		return loss
	}
	return loss.reshape(target.layout.Shape)
}

// pickedOfClasses computes the loss of class indices [n, …] from logarithms of probabilities x, [n,
// classes, …].
func (x *Tensor) pickedOfClasses(target *Tensor, f crossEntropyFunc) *Tensor {
	if x.Rank() == 2 && f.smoothing == 0 {
		return Apply(nllFunc{f.ignore, f.wide, f.mean}, x, target)
	}
	logp := f.widened(x)
	loss := f.composed(nllName, logp, target)
	if f.smoothing != 0 {
		loss = f.smooth(loss, logp, target)
	}
	return f.reduced(loss, target)
}

// logProbabilities returns log softmax of the classes, or x if it holds logarithms already.
func (x *Tensor) logProbabilities(o CrossEntropyOptions) *Tensor {
	if o.LogProbabilities {
		return x
	}
	return x.LogSoftmax(1)
}

// crossEntropyWeighted computes the loss of class indices if each class has a weight.
func (x *Tensor) crossEntropyWeighted(target, weight *Tensor, f crossEntropyFunc, o CrossEntropyOptions) *Tensor {
	var loss *Tensor
	w := weight.targetWeights(target, f.ignore)
	switch {
	case f.smoothing != 0: // with smoothing every class contributes with its own weight
		logp := x.logProbabilities(o)
		loss = f.smooth(f.composed(f.Name(), logp, target).Mul(w), logp.Mul(weight), target)
	case o.LogProbabilities:
		loss = x.pickedOfClasses(target, f).Mul(w)
	default:
		loss = Apply(f, x.rowsOfClasses(target), target.reshape(shape.Of(target.Size()))).reshape(target.layout.Shape).Mul(w)
	}
	if o.Mean {
		return f.quotient(loss, w.Cast(w.dtype.Compute()).Sum())
	}
	return loss
}

// rowsOfClasses returns x, [n, classes, …], as a matrix with one row for each target.
func (x *Tensor) rowsOfClasses(target *Tensor) *Tensor {
	if x.Rank() > 2 {
		return x.MoveAxis(1, -1).reshape(shape.Of(target.Size(), x.Dim(1)))
	}
	return x
}

// smooth mixes loss with the mean of -logp over all classes, which are dimension 1 of logp. The
// mean has the weight f.smoothing, and loss has the weight 1 - f.smoothing.
func (f crossEntropyFunc) smooth(loss, logp, target *Tensor) *Tensor {
	even := logp.Sum(1).MaskedFill(target.EqScalar(float64(f.ignore)), 0)
	return loss.MulScalar(1 - f.smoothing).Sub(even.MulScalar(f.smoothing / float64(logp.Dim(1))))
}

// targetWeights returns the weight of each target, 0 for an ignored target. x holds the weights of
// the classes, [1, classes, 1 …].
func (x *Tensor) targetWeights(target *Tensor, ignore int64) *Tensor {
	safe := safeTargetOp.Apply([]*Tensor{target}, float64(ignore))
	w := x.reshape(shape.Of(x.Size())).indexSelect("cross_entropy", 0, safe.reshape(shape.Of(safe.Size()))).reshape(target.layout.Shape)
	return w.MaskedFill(target.EqScalar(float64(ignore)), 0)
}

// crossEntropyOfProbabilities computes the loss for logits and probabilities, both [n, classes, …].
func (x *Tensor) crossEntropyOfProbabilities(y, weight *Tensor, o CrossEntropyOptions) *Tensor {
	if part := o.LabelSmoothing; part > 0 {
		y = y.MulScalar(1 - part).AddScalar(part / float64(x.Dim(1)))
	}
	terms := x.logProbabilities(o).Mul(y)
	if weight != nil {
		terms = terms.Mul(weight)
	}
	return terms.Sum(1).Neg()
}
