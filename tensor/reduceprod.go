package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var prodOp = declareReduction(&Reduction{Name: "prod", Autocast: AutocastHigh, Kind: device.Prod, Map: expr.X(0), Domain: [2]float64{-1.4, 1.4},
	Ref: func(x []float64) float64 {
		p := 1.0
		for _, v := range x {
			p *= v
		}
		return p
	}})

// Prod returns the product over dims, or over all elements if dims is empty. Integers and bool are
// multiplied as int64. The product of no elements is 1. Floats are multiplied in float64. The
// gradient of each element is the product of the other elements, even where elements are 0.
func (x *Tensor) Prod(dims ...int) *Tensor { return Apply(&prodFunc{dims}, x) }

// If a product has at most fewFactors factors, the gradient of a factor is computed as the product
// of the other factors. This is right for infinite factors and extreme products too. With more
// factors, the gradient is the whole product divided by the factor, unless the gradient is
// differentiated again.
const fewFactors = 16

// prodFunc computes the product over dims, and its gradient.
type prodFunc struct{ dims []int }

func (*prodFunc) Name() string { return "prod" }

func (f *prodFunc) Forward(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) {
		c.Save(in[0])
	}
	return prodOp.Apply(in[0], f.dims...)
}

func (f *prodFunc) lean(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) {
		return nil
	}
	return prodOp.Apply(in[0], f.dims...)
}

func (f *prodFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x := c.Saved(0)
	mask, _ := x.axes("prod", f.dims)
	kept, _, n := reducedShapes(x.layout.Shape, mask, true)
	over := append(axesOf(mask), KeepDim)
	g = g.reshape(kept)
	switch {
	case x.Rank() == 0:
		return []*Tensor{g}
	case x.Size() == 0:
		return []*Tensor{g.expand(x.layout.Shape)}
	case c.Scope().GradEnabled() || n <= fewFactors:
		d := g.Mul(x.othersProduct(mask, n))
		// Without dims, torch's gradient is +0 everywhere if several elements are 0.
		if len(f.dims) == 0 {
			d = Where(x.EqScalar(0).Sum().GtScalar(1), d.AddScalar(0), d)
		}
		return []*Tensor{d}
	}
	// Without zeros the product of the other elements is the whole product divided by the element.
	// With exactly one zero, the product of the other elements is 0 for all elements except the
	// zero.
	wide := x.Cast(x.dtype.Compute())
	zero := wide.EqScalar(0)
	zeros := zero.Sum(over...)
	p := wide.MaskedFill(zero, 1).Prod(over...).Mul(g)
	one := Where(zero, p, p.Scope().On(p.st.dev).Typed(p.dtype).Zeros())
	each := Where(zeros.EqScalar(0), p.Div(wide), one)
	return []*Tensor{each.MaskedFill(zeros.GtScalar(1), 0).Cast(x.dtype)}
}

// othersProduct returns, for each element, the product of the n-1 other elements of its group. A
// group consists of the elements along the dimensions in mask. The computation needs n times x's
// memory. It uses Prod itself, so that the result can be differentiated any number of times.
func (x *Tensor) othersProduct(mask uint, n int) *Tensor {
	// Move the reduced dimensions to the end and join them.
	var p []int
	for i := range x.Rank() {
		if mask>>i&1 == 0 {
			p = append(p, i)
		}
	}
	rows := 1
	for _, i := range p {
		rows *= x.layout.Shape.At(i)
	}
	p = append(p, axesOf(mask)...)
	moved := x.Permute(p...)
	self := x.Scope().On(x.st.dev).Typed(boolType).Eye(n)
	others := moved.reshape(shape.Of(rows, 1, n)).expand(shape.Of(rows, n, n)).MaskedFill(self, 1).Prod(-1)
	back := make([]int, len(p))
	for k, i := range p {
		back[i] = k
	}
	return others.reshape(moved.layout.Shape).Permute(back...)
}

// axesOf lists the dimensions in mask.
func axesOf(mask uint) []int {
	var over []int
	for i := range shape.MaxRank {
		if mask>>i&1 != 0 {
			over = append(over, i)
		}
	}
	return over
}
