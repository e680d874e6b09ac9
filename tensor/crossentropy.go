package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// crossEntropyFunc is -Σ y·log softmax(x) row by row, where y is 1-smoothing at the target plus
// smoothing/classes everywhere.
type crossEntropyFunc struct {
	ignore    int64
	smoothing float64
	wide      bool // the loss of 16-bit logits is in float32
	mean      bool // of the rows whose targets are not ignored
}

func (crossEntropyFunc) Name() string { return "cross_entropy" }

func (f crossEntropyFunc) Forward(c *Context, in []*Tensor) *Tensor {
	const op = "cross_entropy"
	x, target := in[0], in[1]
	t, one, s := x.dtype.Compute(), shape.Of(x.layout.Shape.At(0)), c.Scope()
	// the kernel's own mean is of losses that are not rounded
	whole := f.mean && (f.wide || t == x.dtype)
	var o *device.CrossEntropy
	if f.smoothing == 0 {
		want := device.CrossEntropy{Loss: resultOf(t, one), Top: resultOf(t, one), Rest: resultOf(t, one),
			X: x.operand(), Target: target.operand(), Ignore: f.ignore}
		if whole {
			want.Mean, want.Count = resultOf(t, shape.Of(1)), resultOf(dtype.I64, shape.Of(1))
		}
		o = crossEntropyOps.supported(s, x.st.dev, want)
	}
	if o == nil {
		if c.Needs(0) {
			c.Save(x, target)
		}
		logp := f.widened(x).LogSoftmax(-1)
		loss := f.composed(logp, target)
		if f.smoothing != 0 {
			loss = f.smooth(loss, logp, target)
		}
		return f.reduced(loss, target)
	}
	loss, top, rest := alloc(op, s, x.st.dev, t, one), alloc(op, s, x.st.dev, t, one), alloc(op, s, x.st.dev, t, one)
	var mean, count *Tensor
	if whole {
		mean, count = alloc(op, s, x.st.dev, t, shape.Dims{}), alloc(op, s, x.st.dev, dtype.I64, shape.Dims{})
	}
	o.Tag = lateTag(op, x, target, target)
	launch(op, s, o, loss, top, rest, mean, count, x, target)
	crossEntropyOps.put(o)
	y := mean
	if !whole {
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
	}
	return y
}

// count is the number of targets that are not ignored.
func (f crossEntropyFunc) count(target *Tensor) *Tensor {
	return target.NeScalar(float64(f.ignore)).Sum()
}

// quotient is the sum of losses by a number, which may have no place among 16-bit floats.
func (crossEntropyFunc) quotient(loss, count *Tensor) *Tensor {
	return loss.Cast(loss.dtype.Compute()).Sum().Div(count).Cast(loss.dtype)
}

// reduced is what f makes of the losses of rows.
func (f crossEntropyFunc) reduced(loss, target *Tensor) *Tensor {
	if f.mean {
		return f.quotient(loss, f.count(target))
	}
	return loss
}

// widened is x in the type that the loss has.
func (f crossEntropyFunc) widened(x *Tensor) *Tensor {
	if f.wide {
		return x.Cast(x.dtype.Compute())
	}
	return x
}

var (
	// safeTargetOp replaces an ignored class by 0, so that it can be looked up.
	safeTargetOp = &Elementwise{Name: "cross_entropy", Arity: 1, Expr: x0.Eq(p0).Select(expr.C(0), x0), NoGrad: true}
	ignoredOp    = &Elementwise{Name: "cross_entropy", Arity: 2, Expr: x1.Eq(p0).Select(expr.C(0), x0.Neg()), Fixed: 2, Grad: []*expr.Expr{x1.Eq(p0).Select(expr.C(0), x2.Neg()), nil}}
	oneHotOp     = &Elementwise{Name: "one_hot", Arity: 2, Result: Truth, Expr: x0.Eq(x1), NoGrad: true}
)

// composed picks the classes, in dimension 1, from logarithms of probabilities.
func (f crossEntropyFunc) composed(logp, target *Tensor) *Tensor {
	safe := safeTargetOp.Apply([]*Tensor{target}, float64(f.ignore))
	picked := Apply(gatherFunc{1, "cross_entropy"}, logp, safe.Unsqueeze(1)).Squeeze(1)
	return ignoredOp.Apply([]*Tensor{picked, target}, float64(f.ignore))
}

func (f crossEntropyFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, target := c.Saved(0), c.Saved(1)
	s := c.Scope()
	if s.modes.noGrad && c.NumSaved() >= 4 { // what the kernel left for its gradient
		return f.grad(c, x, target, g)
	}
	if f.mean {
		g = g.Div(f.count(target)).expand(target.layout.Shape)
	}
	to := x.dtype
	x = f.widened(x)
	classes := s.On(x.st.dev).Arange(x.Dim(1))
	hot := oneHotOp.Apply([]*Tensor{classes.Unsqueeze(0), target.Unsqueeze(1)}).Cast(x.dtype)
	if f.smoothing != 0 {
		hot = hot.MulScalar(1 - f.smoothing).AddScalar(f.smoothing / float64(x.Dim(1)))
	}
	ignored := target.EqScalar(float64(f.ignore)).Unsqueeze(1)
	return []*Tensor{x.Softmax(-1).Sub(hot).Mul(g.Unsqueeze(1)).AddScalar(0).MaskedFill(ignored, 0).Cast(to), nil}
}

// fromOne spares the launches of a gradient that is 1, and of its part for each row.
func (f crossEntropyFunc) fromOne(c *Context) []*Tensor {
	if !c.scope.modes.noGrad || c.NumSaved() < 4 {
		return nil
	}
	return f.grad(c, c.Saved(0), c.Saved(1), nil)
}

// grad launches the gradient's kernel; nil for g is 1.
func (f crossEntropyFunc) grad(c *Context, x, target, g *Tensor) []*Tensor {
	s, top, rest := c.Scope(), c.Saved(2), c.Saved(3)
	dx, taken := c.take(0, x)
	if !taken {
		dx = alloc("cross_entropy.grad", s, x.st.dev, x.dtype, x.layout.Shape)
	} else {
		x = dx
	}
	o := crossEntropyGradOps.of(device.CrossEntropyGrad{DX: dx.operand(), X: x.operand(), Top: top.operand(), Rest: rest.operand(),
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

// CrossEntropyOptions are what [Tensor.CrossEntropy] may be told beside the targets; the zero value
// is torch's default.
type CrossEntropyOptions struct {
	Weight         *Tensor // a factor for each class, [classes], of the logits' type; nil: 1
	IgnoreIndex    *int    // the target that counts for nothing; nil: -100. new(0) makes it 0
	LabelSmoothing float64 // 0 … 1: the part of each target that is spread evenly over the classes
	// Mean gives the mean in place of the losses, torch's reduction="mean": the sum of those of
	// classes by the sum of the weights of the targets that are not ignored.
	Mean bool
}

// Ignored returns the class that counts for nothing.
func (o CrossEntropyOptions) Ignored() int {
	if o.IgnoreIndex == nil {
		return -100
	}
	return *o.IgnoreIndex
}

// CrossEntropy returns, for logits x of shape [n, classes, …] or [classes], the loss of each
// target: torch's cross_entropy with reduction="none". Targets are class indices, int64 [n, …] or a
// single one, with
//
//	w[t]·(1-s)·(-log softmax(x)[t]) + s/classes·Σ w[c]·(-log softmax(x)[c])
//
// for weights w and a smoothing s; Where the target is the ignored index the loss is 0. Another one
// outside of 0 … classes-1 is an index error, on a GPU reported at the next wait. Or they are
// probabilities of x's shape and type, with the loss Σ w[c]·((1-s)·y[c] + s/classes)·(-log
// softmax(x)[c]); an ignored index of 0 or more is an error with them. Most programs call
// nn.CrossEntropy, which averages.
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

// wideLoss reports that autocast would cast 16-bit logits to float32 for a loss whose kernels read
// them as they are: the cast is exact, so the loss and its gradient are the same without it.
func (x *Tensor) wideLoss(target *Tensor, o CrossEntropyOptions) bool {
	if o.Weight != nil || x == nil || target == nil || target.dtype.IsFloat() || !x.dtype.IsHalf() {
		return false
	}
	s := youngest("cross_entropy", []*Tensor{x, target})
	if s.modes.autocast == dtype.Invalid {
		return false
	}
	s.missNoCast() // the loss would be of 16 bits
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
	return within(s, func(c *Scope) *Tensor {
		c.modes.autocast = dtype.Invalid
		x, target := x.In(c), target.In(c)
		alone := x.Rank() == 1
		if alone {
			x, target = x.Unsqueeze(0), target.Unsqueeze(0)
		}
		var weight *Tensor // of each class, seen along x
		if o.Weight != nil {
			sh := shape.Of(1, x.Dim(1))
			for sh.Rank() < x.Rank() {
				sh = sh.Append(1)
			}
			weight = o.Weight.In(c).reshape(sh)
		}
		var loss *Tensor
		if target.dtype.IsFloat() {
			if loss = x.crossEntropyOfChances(target, weight, o.LabelSmoothing); o.Mean {
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

// crossEntropyOfClasses is for logits [n, classes, …] and indices [n, …].
func (x *Tensor) crossEntropyOfClasses(target, weight *Tensor, o CrossEntropyOptions, wide bool) *Tensor {
	f := crossEntropyFunc{ignore: int64(o.Ignored()), smoothing: o.LabelSmoothing, wide: wide, mean: o.Mean && weight == nil}
	if weight != nil {
		return x.crossEntropyWeighted(target, weight, f, o.Mean)
	}
	loss := Apply(f, x.rowsOfClasses(target), target.reshape(shape.Of(target.Size())))
	if f.mean {
		return loss
	}
	return loss.reshape(target.layout.Shape)
}

// crossEntropyWeighted is crossEntropyOfClasses with weights.
func (x *Tensor) crossEntropyWeighted(target, weight *Tensor, f crossEntropyFunc, mean bool) *Tensor {
	var loss *Tensor
	w := weight.targetWeights(target, f.ignore)
	if f.smoothing != 0 { // each class has a part of its own
		logp := x.LogSoftmax(1)
		loss = f.smooth(f.composed(logp, target).Mul(w), logp.Mul(weight), target)
	} else {
		loss = Apply(f, x.rowsOfClasses(target), target.reshape(shape.Of(target.Size()))).reshape(target.layout.Shape).Mul(w)
	}
	if mean {
		return f.quotient(loss, w.Cast(w.dtype.Compute()).Sum())
	}
	return loss
}

// rowsOfClasses is x, [n, classes, …], with a row for each target.
func (x *Tensor) rowsOfClasses(target *Tensor) *Tensor {
	if x.Rank() > 2 {
		return x.MoveAxis(1, -1).reshape(shape.Of(target.Size(), x.Dim(1)))
	}
	return x
}

// smooth takes a part of the loss from all classes evenly, in dimension 1 of their logarithms.
func (f crossEntropyFunc) smooth(loss, logp, target *Tensor) *Tensor {
	even := logp.Sum(1).MaskedFill(target.EqScalar(float64(f.ignore)), 0)
	return loss.MulScalar(1 - f.smoothing).Sub(even.MulScalar(f.smoothing / float64(logp.Dim(1))))
}

// targetWeights returns the weight of each target, 0 for an ignored one; weights are [1, classes, 1
// …].
func (x *Tensor) targetWeights(target *Tensor, ignore int64) *Tensor {
	safe := safeTargetOp.Apply([]*Tensor{target}, float64(ignore))
	w := x.reshape(shape.Of(x.Size())).indexSelect("cross_entropy", 0, safe.reshape(shape.Of(safe.Size()))).reshape(target.layout.Shape)
	return w.MaskedFill(target.EqScalar(float64(ignore)), 0)
}

// crossEntropyOfChances is for logits and probabilities [n, classes, …].
func (x *Tensor) crossEntropyOfChances(y, weight *Tensor, smoothing float64) *Tensor {
	if smoothing > 0 {
		y = y.MulScalar(1 - smoothing).AddScalar(smoothing / float64(x.Dim(1)))
	}
	terms := x.LogSoftmax(1).Mul(y)
	if weight != nil {
		terms = terms.Mul(weight)
	}
	return terms.Sum(1).Neg()
}
