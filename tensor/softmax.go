package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// softmaxFunc is softmax, or its logarithm, over the last dimension of a matrix.
type softmaxFunc struct{ log bool }

func (f softmaxFunc) Name() string {
	if f.log {
		return "log_softmax"
	}
	return "softmax"
}

// fast returns dev as the optional interface T, if it has it and s allows it.
func fast[T any](s *Scope, dev device.Device) (T, bool) {
	t, ok := dev.(T)
	return t, ok && !s.modes.composed
}

func (f softmaxFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	y := f.compute(c, x)
	if c.Needs(0) {
		c.Save(y)
	}
	return y
}

func (f softmaxFunc) compute(c *Context, x *Tensor) *Tensor {
	if d, ok := fast[device.Softmaxer](c.Scope(), x.st.dev); ok {
		s := c.Scope()
		y := alloc(f.Name(), s, x.st.dev, x.dtype, x.layout.Shape)
		stream := s.streamOf(x.st.dev)
		x.st.read(f.Name(), stream)
		y.st.write(f.Name(), stream)
		check(f.Name(), d.Softmax(stream, y.deviceView(), x.deviceView(), f.log), x)
		return y
	}
	if x.Size() == 0 {
		return x.Clone()
	}
	wide := x.Cast(x.dtype.Compute())
	shifted := wide.Sub(wide.Amax(-1, KeepDim))
	if f.log {
		return shifted.Sub(shifted.Exp().Sum(-1, KeepDim).Log()).Cast(x.dtype)
	}
	e := shifted.Exp()
	return e.Div(e.Sum(-1, KeepDim)).Cast(x.dtype)
}

func (f softmaxFunc) VJP(c *Context, g *Tensor) []*Tensor {
	y := c.Saved(0)
	if d, ok := fast[device.Softmaxer](c.Scope(), y.st.dev); ok && c.Scope().modes.noGrad && g.dtype == y.dtype {
		s := c.Scope()
		dx := alloc(f.Name()+".grad", s, y.st.dev, y.dtype, y.layout.Shape)
		stream := s.streamOf(y.st.dev)
		y.st.read(f.Name(), stream)
		g.st.read(f.Name(), stream)
		dx.st.write(f.Name(), stream)
		check(f.Name(), d.SoftmaxGrad(stream, dx.deviceView(), y.deviceView(), g.deviceView(), f.log), y, g)
		return []*Tensor{dx}
	}
	if f.log {
		return []*Tensor{g.Sub(y.Exp().Mul(g.Sum(-1, KeepDim)))}
	}
	return []*Tensor{y.Mul(g.Sub(g.Mul(y).Sum(-1, KeepDim)))}
}

// alongRows applies f to x with dimension dim last and all others merged.
func (x *Tensor) alongRows(op string, dim int, f func(rows *Tensor) *Tensor) *Tensor {
	x.use(op)
	if !x.dtype.IsFloat() {
		e := newError(op, ErrType, []*Tensor{x}, "needs a floating point tensor, not "+x.dtype.String())
		panic(e.hint("use Float"))
	}
	a := x.axis(op, dim)
	if x.Rank() == 0 {
		return f(x.reshape(shape.Of(1, 1))).reshape(shape.Dims{})
	}
	t := x.Transpose(a, -1)
	n := t.Dim(-1)
	rows := 1
	for i := range t.Rank() - 1 {
		rows *= t.layout.Shape.At(i)
	}
	return f(t.reshape(shape.Of(rows, n))).reshape(t.layout.Shape).Transpose(a, -1)
}

// Softmax returns exp(x) / Σ exp(x) along dim, computed without overflow.
func (x *Tensor) Softmax(dim int) *Tensor {
	return x.alongRows("softmax", dim, func(r *Tensor) *Tensor { return Apply(softmaxFunc{}, r) })
}

// LogSoftmax returns the logarithm of softmax along dim.
func (x *Tensor) LogSoftmax(dim int) *Tensor {
	return x.alongRows("log_softmax", dim, func(r *Tensor) *Tensor { return Apply(softmaxFunc{log: true}, r) })
}

// crossEntropyFunc is -log softmax(x)[target] row by row.
type crossEntropyFunc struct{ ignore int64 }

func (crossEntropyFunc) Name() string { return "cross_entropy" }

func (f crossEntropyFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, target := in[0], in[1]
	n := x.layout.Shape.At(0)
	s := c.Scope()
	d, ok := fast[device.CrossEntropyer](s, x.st.dev)
	if !ok {
		if c.Needs(0) {
			c.Save(x, target)
		}
		return f.composed(x.LogSoftmax(-1), target)
	}
	loss := alloc("cross_entropy", s, x.st.dev, x.dtype.Compute(), shape.Of(n))
	lse := alloc("cross_entropy", s, x.st.dev, x.dtype.Compute(), shape.Of(n))
	stream := s.streamOf(x.st.dev)
	x.st.read("cross_entropy", stream)
	target.st.read("cross_entropy", stream)
	loss.st.write("cross_entropy", stream)
	lse.st.write("cross_entropy", stream)
	check("cross_entropy", d.CrossEntropy(stream, loss.deviceView(), lse.deviceView(), x.deviceView(), target.deviceView(), f.ignore, lateTag("cross_entropy", target)), x, target)
	if c.Needs(0) {
		c.Save(x, target, lse)
	}
	return loss.Cast(x.dtype)
}

var (
	// safeTargetOp replaces an ignored class by 0, so that it can be looked up.
	safeTargetOp = &Elementwise{Name: "cross_entropy", Arity: 1, Expr: x0.Eq(p0).Select(expr.C(0), x0), NoGrad: true}
	ignoredOp    = &Elementwise{Name: "cross_entropy", Arity: 2, Expr: x1.Eq(p0).Select(expr.C(0), x0.Neg()), Fixed: 2, NoGrad: true}
	oneHotOp     = &Elementwise{Name: "one_hot", Arity: 2, Result: Truth, Expr: x0.Eq(x1), NoGrad: true}
)

// composed picks the classes from logarithms of probabilities.
func (f crossEntropyFunc) composed(logp, target *Tensor) *Tensor {
	safe := safeTargetOp.Apply([]*Tensor{target}, float64(f.ignore))
	picked := logp.Gather(1, safe.Unsqueeze(1)).Squeeze(1)
	return ignoredOp.Apply([]*Tensor{picked, target}, float64(f.ignore))
}

func (f crossEntropyFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, target := c.Saved(0), c.Saved(1)
	s := c.Scope()
	if d, ok := fast[device.CrossEntropyer](s, x.st.dev); ok && s.modes.noGrad && c.NumSaved() == 3 {
		lse := c.Saved(2)
		g := g.Cast(lse.dtype)
		dx := alloc("cross_entropy.grad", s, x.st.dev, x.dtype, x.layout.Shape)
		stream := s.streamOf(x.st.dev)
		for _, t := range []*Tensor{x, target, lse, g} {
			t.st.read("cross_entropy", stream)
		}
		dx.st.write("cross_entropy", stream)
		check("cross_entropy", d.CrossEntropyGrad(stream, dx.deviceView(), x.deviceView(), lse.deviceView(), target.deviceView(), g.deviceView(), f.ignore), x, target)
		return []*Tensor{dx, nil}
	}
	classes := s.On(x.st.dev).Arange(0, float64(x.Dim(1)), 1)
	hot := oneHotOp.Apply([]*Tensor{classes.Unsqueeze(0), target.Unsqueeze(1)}).Cast(x.dtype)
	ignored := target.EqScalar(float64(f.ignore)).Unsqueeze(1)
	return []*Tensor{x.Softmax(-1).Sub(hot).Mul(g.Unsqueeze(1)).MaskedFill(ignored, 0), nil}
}

// CrossEntropy returns, for logits x of shape [n, classes] and class indices target of shape [n] (int64), the negative log
// likelihood of each row's class, shape [n]; rows whose target is ignore give 0. A target outside 0 … classes-1 is an
// index error. Most programs call nn.CrossEntropy, which averages.
func (x *Tensor) CrossEntropy(target *Tensor, ignore int) *Tensor {
	in := []*Tensor{x, target}
	youngest("cross_entropy", in)
	if x.Rank() != 2 || target.Rank() != 1 || x.Dim(0) != target.Dim(0) {
		e := newError("cross_entropy", ErrShape, in, "logits must be [n, classes] and targets [n], they are "+shapes(in))
		if target.Rank() == 2 && target.Dim(1) == 1 {
			e.hint("Squeeze(1) the targets")
		}
		panic(e)
	}
	if !x.dtype.IsFloat() {
		fail("cross_entropy", ErrType, in, "logits must be floating point, they are %v", x.dtype)
	}
	if target.dtype != dtype.I64 {
		e := newError("cross_entropy", ErrType, in, "targets must be int64 class indices, they are "+target.dtype.String())
		panic(e.hint("use Cast(dtype.I64)"))
	}
	return Apply(crossEntropyFunc{int64(ignore)}, x, target)
}
