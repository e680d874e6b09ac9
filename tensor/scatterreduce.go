package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// scatterReduceFunc returns its first operand, combined with elements of the second operand: the
// product of both, or the greater or lesser of both.
type scatterReduceFunc struct {
	kind device.ScatterKind
	axis int
	// true if the first operand's own element is combined with those of the second operand
	self bool
	op   string
}

func (f scatterReduceFunc) Name() string { return f.op }

func (f scatterReduceFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, src, index := in[0], in[1], in[2]
	y := x.copied(c.Scope())
	if !f.self { // start with the neutral element wherever elements are combined
		first := src
		if f.kind == device.ScatterProd {
			first = index.numbers(x, 1)
		}
		y.scatter(f.op, c.Scope(), device.ScatterSet, f.axis, first, index)
	}
	y.scatter(f.op, c.Scope(), f.kind, f.axis, src, index)
	if c.Needs(0) || c.Needs(1) {
		c.Save(x, src, index, y)
	}
	return y
}

func (f scatterReduceFunc) lean(c *Context, in []*Tensor) *Tensor {
	if !f.self && f.kind == device.ScatterProd {
		return nil
	}
	return f.Forward(c, in)
}

// VJP follows PyTorch's scatter_reduce_backward (FunctionsManual.cpp).
func (f scatterReduceFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, src, index, y := c.Saved(0), c.Saved(1), c.Saved(2), c.Saved(3)
	gather := func(t *Tensor) *Tensor { return Apply(gatherFunc{f.axis, "gather"}, t, index) }
	var gx, gs *Tensor
	if f.kind == device.ScatterProd {
		if c.Needs(0) { // the derivative for x is the product of the other factors
			one := x.MaskedFill(x.EqScalar(0), 1)
			gx = g.Mul(Apply(f, one, src, index)).Div(one)
		}
		// The derivative with respect to a factor is the result divided by the factor. If the
		// factor is the only zero of its product, the derivative is the product of the other
		// factors.
		if c.Needs(1) {
			zero := src.EqScalar(0)
			counts := Apply(scatterFunc{f.axis, x.layout.Shape, f.op, false}, zero.Cast(dtype.I64), index)
			only := zero.LogicalAnd(gather(counts).EqScalar(1))
			others := Apply(f, x, src.MaskedFill(only, 1), index)
			gs = Where(only, gather(g.Mul(others)), gather(g.Mul(y)).Div(src.MaskedFill(zero, 1)))
		}
	} else { // all elements that equal the extreme get equal parts
		mine, theirs := x.Eq(y).Cast(x.dtype), src.Eq(gather(y)).Cast(x.dtype)
		part := g.Div(Apply(scatterIntoFunc{device.ScatterAdd, f.axis, f.op, false}, mine, theirs, index))
		gx, gs = mine.Mul(part), theirs.Mul(gather(part))
	}
	if gx != nil && !f.self {
		gx = gx.scatterNumber(f.op, f.axis, index, 0)
	}
	return []*Tensor{gx, gs, nil}
}

// reduceInto combines the source with elements of x, by the operation that reduce names.
func (x *Tensor) reduceInto(p placement, reduce string, self bool) *Tensor {
	to := x.lifted()
	extreme := func(kind device.ScatterKind) *Tensor {
		return Apply(scatterReduceFunc{kind, p.axis, self, p.op}, to, p.src, p.index).reshape(x.layout.Shape)
	}
	switch reduce {
	case "sum":
		if !self {
			to = to.scatterNumber(p.op, p.axis, p.index, 0)
		}
		return to.scattered(device.ScatterAdd, p).reshape(x.layout.Shape)
	case "mean":
		if x.dtype == boolType {
			panic(newError(p.op, ErrType, []*Tensor{x, p.index, p.src}, "bool has no mean").hint("use Float"))
		}
		return within(youngest(p.op, []*Tensor{to, p.index, p.src}), func(c *Scope) *Tensor { return to.In(c).meanInto(p, self) }).reshape(x.layout.Shape)
	case "prod":
		return extreme(device.ScatterProd)
	case "amax":
		return extreme(device.ScatterMax)
	case "amin":
		return extreme(device.ScatterMin)
	}
	fail(p.op, ErrValue, []*Tensor{x, p.index, p.src}, `no reduction is called %q: there are "sum", "prod", "mean", "amax" and "amin"`, reduce)
	return nil
}

// meanInto combines the source with elements of x by their mean: it divides the sums by the numbers
// of their terms. For integers it rounds down, as PyTorch does.
func (x *Tensor) meanInto(p placement, self bool) *Tensor {
	c, t := x.scope, x.dtype
	count := c.On(x.st.dev).Typed(dtype.I64).Full(indicator(self), x.layout.Shape.Slice()...)
	count.scatter(p.op, c, device.ScatterAdd, p.axis, p.index.numbers(count, 1), p.index)
	count = count.ClampMin(1)
	if t.IsHalf() { // use a wider type, so that the sum is rounded only after the division
		x, p.src = x.Float(), p.src.In(c).Float()
	}
	if !self {
		x = x.scatterNumber(p.op, p.axis, p.index, 0)
	}
	sum := x.scattered(device.ScatterAdd, p)
	if !t.IsFloat() {
		return sum.FloorDivide(count).Cast(t)
	}
	return sum.Div(count).Cast(t)
}

// ScatterReduce returns x with the elements of src combined with the elements that index selects
// along dim, as torch.scatter_reduce does. reduce is "sum", "prod", "mean", "amax" or "amin". If
// includeSelf is false, an element of x counts only if index does not select it. Shapes and types
// are those of [Tensor.Scatter]. A mean of integers is rounded down. NaN counts as the extreme.
// Equal extremes receive equal parts of the gradient. As in PyTorch, an element of x that equals
// the extreme receives a part even if includeSelf is false. Use ScatterReduce for example for means
// by group.
func (x *Tensor) ScatterReduce(dim int, index, src *Tensor, reduce string, includeSelf bool) *Tensor {
	return x.reduceInto(x.checkScatter("scatter_reduce", dim, index, src), reduce, includeSelf)
}

// IndexReduce is [Tensor.ScatterReduce] for whole entries of a dimension, like torch.index_reduce:
// src[j] is combined into entry index[j]. Shapes are those of [Tensor.IndexAdd].
func (x *Tensor) IndexReduce(dim int, index, src *Tensor, reduce string, includeSelf bool) *Tensor {
	return x.reduceInto(x.checkScatterRows("index_reduce", dim, index, src), reduce, includeSelf)
}
