package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
)

// The norms of order 1, 2, ∞ and -∞ have reductions of their own.
var (
	norm1Op   = &Reduction{Name: "norm", Kind: device.Sum, Map: expr.X(0).Abs()}
	norm2Op   = &Reduction{Name: "norm", Kind: device.Sum, Map: expr.X(0).Mul(expr.X(0)), Finish: expr.X(0).Sqrt()}
	normMaxOp = &Reduction{Name: "norm", Kind: device.Max, Map: expr.X(0).Abs()}
	normMinOp = &Reduction{Name: "norm", Kind: device.Min, Map: expr.X(0).Abs()}
)

// norm2GradOp computes the gradient of x from x, its norm of order 2, and the norm's gradient.
var norm2GradOp = &Elementwise{Name: "norm", Arity: 3, Expr: x1.Eq(zeroC).Select(zeroC, x0.Div(x1)).Mul(x2), NoGrad: true}

// normFunc computes the vector norm of order p.
type normFunc struct {
	p        float64
	dims     []int
	unshared bool // true if each of several equal extremes receives the whole gradient
}

func (*normFunc) Name() string { return "norm" }

func (f *normFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	var y *Tensor
	switch f.p {
	case 0:
		y = countNonzeroOp.Apply(x, f.dims...).Cast(x.dtype)
	case 1:
		y = norm1Op.Apply(x, f.dims...)
	case 2:
		y = norm2Op.Apply(x, f.dims...)
	case math.Inf(1):
		y = normMaxOp.Apply(x, f.dims...)
	case math.Inf(-1):
		y = normMinOp.Apply(x, f.dims...)
	default:
		y = x.Cast(x.dtype.Compute()).Abs().powRounded(f.p).Sum(f.dims...).PowScalar(1 / f.p).Cast(x.dtype)
	}
	if c.Needs(0) {
		c.Save(x, y)
	}
	return y
}

func (f *normFunc) lean(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) || f.p != 1 && f.p != 2 && !math.IsInf(f.p, 0) {
		return nil
	}
	return f.Forward(c, in)
}

// sign returns -1, 0 or 1, and 0 for NaN.
func (x *Tensor) sign() *Tensor {
	return x.GtScalar(0).Cast(x.dtype).Sub(x.LtScalar(0).Cast(x.dtype))
}

func (f *normFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x := c.Saved(0)
	mask, _ := x.axes("norm", f.dims)
	kept, _, _ := reducedShapes(x.layout.Shape, mask, true)
	wide := x.Cast(x.dtype.Compute())
	y, g := c.Saved(1).Cast(wide.dtype).reshape(kept), g.Cast(wide.dtype).reshape(kept)
	var d *Tensor
	switch {
	case f.p == 0:
		d = wide.Scope().On(x.st.dev).Typed(wide.dtype).Zeros(x.layout.Shape.Slice()...)
	case f.p == 1:
		d = wide.sign().Mul(g)
	case f.p == 2 && c.scope.modes.noGrad:
		d = norm2GradOp.Apply([]*Tensor{wide, y, g})
	case f.p == 2:
		d = wide.Div(y).MaskedFill(y.EqScalar(0), 0).Mul(g)
	// the extreme elements share the gradient; NaN counts as an extreme element
	case math.IsInf(f.p, 0):
		abs := wide.Abs()
		hit := Where(abs.Eq(y), abs.Scope().On(x.st.dev).Typed(boolType).Ones(), abs.Ne(abs)).Cast(wide.dtype)
		share := g
		if over := axesOf(mask); len(over) > 0 && !f.unshared {
			share = g.Div(hit.Sum(append(over, KeepDim)...))
		}
		d = wide.sign().Mul(hit).Mul(share)
	case f.p < 1: // |x|^(p-1) is infinite at 0, so the gradient there is masked
		d = wide.sign().Mul(wide.Abs().powRounded(f.p-1).MaskedFill(wide.EqScalar(0), 0)).Mul(g.Mul(y.powRounded(1 - f.p)))
	case f.p < 2:
		scale := g.Div(y.powRounded(f.p-1)).MaskedFill(y.EqScalar(0), 0)
		d = wide.sign().Mul(wide.Abs().powRounded(f.p - 1)).Mul(scale)
	default:
		scale := g.Div(y.powRounded(f.p-1)).MaskedFill(y.EqScalar(0), 0)
		d = wide.Mul(wide.Abs().powRounded(f.p - 2)).Mul(scale)
	}
	return []*Tensor{d.Cast(x.dtype)}
}

// Norm returns (Σ|x|ᵖ)^(1/p) over dims, or over all elements if dims is empty, as
// torch.linalg.vector_norm does. For p = 1 it is the sum of the absolute values. For p = Inf it is
// the greatest absolute value, and for p = -Inf the least. For p = 0 it is the number of elements
// that are not 0. If the norm is 0 its gradient is 0. Equal extremes share the gradient. The order
// p must not be NaN. For p < 0 and p = Inf the norm of no elements is an error.
func (x *Tensor) Norm(p float64, dims ...int) *Tensor {
	x.use("norm")
	x.mustFloat("norm")
	if math.IsNaN(p) {
		fail("norm", ErrValue, []*Tensor{x}, "the order is NaN")
	}
	if p < 0 || math.IsInf(p, 1) {
		mask, _ := x.axes("norm", dims)
		if _, _, n := reducedShapes(x.layout.Shape, mask, true); n == 0 {
			fail("norm", ErrShape, []*Tensor{x}, "cannot reduce over no elements: the norm of order %v has no value for an empty set", p)
		}
	}
	return Apply(&normFunc{p: p, dims: dims}, x)
}
