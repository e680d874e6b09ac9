package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// softmaxFunc computes softmax, or its logarithm, over the last dimension of a matrix.
type softmaxFunc struct{ log bool }

func (f softmaxFunc) Name() string {
	if f.log {
		return "log_softmax"
	}
	return "softmax"
}

func (f softmaxFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	y := f.lean(c, in)
	if y == nil {
		if y = f.composed(x); c.Needs(0) {
			c.Save(y)
		}
	}
	return y
}

func (f softmaxFunc) lean(c *Context, in []*Tensor) *Tensor {
	x, s := in[0], c.Scope()
	if o := softmaxOps.supported(s, x.st.dev, device.Softmax{Out: resultOf(x.dtype, x.layout.Shape), X: x.operand(), Log: f.log}); o != nil {
		y := alloc(f.Name(), s, x.st.dev, x.dtype, x.layout.Shape)
		launch(f.Name(), s, o, y, x)
		softmaxOps.put(o)
		if c.Needs(0) {
			c.Save(y)
		}
		return y
	}
	return nil
}

// composed computes softmax by other ops.
func (f softmaxFunc) composed(x *Tensor) *Tensor {
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
	return []*Tensor{f.gradient(c.Scope(), c.Saved(0), g)}
}

// gradient returns the gradient of the operand, from the result y and the gradient g of the result.
func (f softmaxFunc) gradient(s *Scope, y, g *Tensor) *Tensor {
	if s.modes.noGrad && g.dtype == y.dtype {
		if o := softmaxGradOps.supported(s, y.st.dev, device.SoftmaxGrad{DX: resultOf(y.dtype, y.layout.Shape), Y: y.operand(), G: g.operand(), Log: f.log}); o != nil {
			dx := alloc(f.Name()+".grad", s, y.st.dev, y.dtype, y.layout.Shape)
			launch(f.Name(), s, o, dx, y, g)
			softmaxGradOps.put(o)
			return dx
		}
	}
	if f.log {
		return g.Sub(y.Exp().Mul(g.Sum(-1, KeepDim)))
	}
	return y.Mul(g.Sub(g.Mul(y).Sum(-1, KeepDim)))
}

// alongRows applies f to x as a matrix, with dimension dim last and all other dimensions joined.
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
	if a == x.Rank()-1 && a == 1 {
		return f(x)
	}
	// if dim is not the last dimension, the matrix is a copy
	return within(x.scope, func(c *Scope) *Tensor {
		t := x.In(c).Transpose(a, -1)
		n := t.Dim(-1)
		rows := 1
		for i := range t.Rank() - 1 {
			rows *= t.layout.Shape.At(i)
		}
		return f(t.reshape(shape.Of(rows, n))).reshape(t.layout.Shape).Transpose(a, -1)
	})
}

// Softmax returns exp(x) / Σ exp(x) along dim, computed without overflow.
func (x *Tensor) Softmax(dim int) *Tensor {
	return x.alongRows("softmax", dim, func(r *Tensor) *Tensor { return Apply(softmaxFunc{}, r) })
}

// LogSoftmax returns the logarithm of softmax along dim.
func (x *Tensor) LogSoftmax(dim int) *Tensor {
	return x.alongRows("log_softmax", dim, func(r *Tensor) *Tensor { return Apply(softmaxFunc{log: true}, r) })
}

// Softmin returns softmax of -x along dim, which is greatest for the least element.
func (x *Tensor) Softmin(dim int) *Tensor {
	x.use("softmin")
	x.mustFloat("softmin")
	x.axis("softmin", dim)
	return within(x.scope, func(c *Scope) *Tensor { return x.In(c).Neg().Softmax(dim) })
}

// GumbelSoftmax returns smoothed samples of the categorical distributions with logits x along dim:
// softmax((x + g) / tau). The noise g has the standard Gumbel distribution (E. Jang et al.,
// arXiv:1611.01144; C. Maddison et al., arXiv:1611.00712). If hard is true, a sample is 1 at its
// greatest element and 0 elsewhere, up to rounding. It still has the gradient of the smooth sample.
// tau must be positive. The noise comes from the generator of x's scope.
func (x *Tensor) GumbelSoftmax(tau float64, hard bool, dim int) *Tensor {
	const op = "gumbel_softmax"
	x.use(op)
	in := []*Tensor{x}
	x.mustFloat(op)
	a := x.axis(op, dim)
	if !(tau > 0) {
		fail(op, ErrValue, in, "the temperature is %v, it must be positive", tau)
	}
	return within(x.scope, func(c *Scope) *Tensor {
		t := x.dtype.Compute()
		x := x.In(c).Cast(t)
		// The noise is -log of an exponential random number that is kept away from 0.
		noise := c.On(x.st.dev).Typed(t).Rand(x.layout.Shape.Slice()...).Neg().Log1p().Neg().ClampMin(0x1p-30).Log().Neg()
		y := x.Add(noise).DivScalar(tau).Softmax(dim)
		if hard && x.Rank() > 0 {
			top := y.Argmax(a).OneHot(x.Dim(a)).MoveAxis(-1, a).Cast(t)
			y = top.Sub(y.Detach()).Add(y)
		}
		return y.Cast(in[0].dtype)
	})
}
