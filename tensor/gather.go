package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// gatherFunc selects elements along an axis by an index tensor that has the result's shape.
type gatherFunc struct {
	axis int
	op   string // name of the op that the user called
}

func (f gatherFunc) Name() string { return f.op }

func (f gatherFunc) Forward(c *Context, in []*Tensor) *Tensor { return f.gather(c, in, in[1], false) }

func (f gatherFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

// gather selects elements by the index in[1]. An error shows callerIndex, the index that the caller
// passed. If wrap is true, indices below 0 count from the end.
func (f gatherFunc) gather(c *Context, in []*Tensor, callerIndex *Tensor, wrap bool) *Tensor {
	y := gathered(f.op, c.Scope(), device.Gather{Axis: f.axis, Wrap: wrap}, in[0], in[1], callerIndex)
	if c.Needs(0) {
		c.Save(in[1])
	}
	return y
}

// gathered selects elements of x by index in one launch, with the options in o. An error shows
// callerIndex, the index that the caller passed.
func gathered(op string, s *Scope, o device.Gather, x, index, callerIndex *Tensor) *Tensor {
	y := alloc(op, s, x.st.dev, x.dtype, index.layout.Shape)
	// If index is a copy of callerIndex, the launch reads the copy's memory.
	if callerIndex.st != index.st {
		callerIndex = index
	}
	o.Out, o.Src, o.Index, o.Tag = y.operand(), x.operand(), index.operand(), lateTag(op, x, index, callerIndex)
	done := false
	defer freeUnless(&done, y)
	g := gatherOps.reuse(o)
	launch(op, s, g, y, x, callerIndex)
	done = true
	gatherOps.put(g)
	return y
}

func (f gatherFunc) VJP(c *Context, g *Tensor) []*Tensor {
	to := c.n.operands[0]
	return []*Tensor{Apply(scatterFunc{f.axis, to.shape, "scatter_add", false}, g, c.Saved(0)), nil}
}

// namedFunc is a gatherFunc that reports errors in terms of callerIndex, the index that the caller
// passed. The index operand is a view of callerIndex. If wrap is true, indices below 0 count from
// the end.
type namedFunc struct {
	gatherFunc
	callerIndex *Tensor
	wrap        bool
}

func (f namedFunc) Forward(c *Context, in []*Tensor) *Tensor {
	return f.gather(c, in, f.callerIndex, f.wrap)
}

func (f namedFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

// takenFunc selects elements as gatherFunc does, by an index that selects no element twice, such as
// a sorting order.
type takenFunc struct{ gatherFunc }

func (f takenFunc) VJP(c *Context, g *Tensor) []*Tensor {
	to := c.n.operands[0]
	return []*Tensor{Apply(scatterFunc{f.axis, to.shape, "scatter_add", true}, g, c.Saved(0)), nil}
}

func checkIndex(op string, x, index *Tensor) {
	youngest(op, []*Tensor{x, index})
	if index.dtype != dtype.I64 && index.dtype != dtype.I32 {
		in := []*Tensor{x, index}
		if x == index {
			in = in[:1]
		}
		e := newError(op, ErrType, in, "indices must be int64 or int32, they are "+index.dtype.String())
		panic(e.hint("use Cast(dtype.I64)"))
	}
	sameDevice(op, []*Tensor{x, index})
}

// wrap adds the parameter n to indices -n … -1. Other indices stay unchanged, so that an error can
// show them.
var wrap = &Elementwise{Name: "index", Arity: 1, Result: Integral, NoGrad: true, Expr: wrapExpr(expr.Param(0, dtype.I64))}

func wrapExpr(n *expr.Expr) *expr.Expr {
	below := x0.Lt(expr.C(0)).And(x0.Ge(n.Neg()))
	return below.Select(x0.Add(n), x0)
}

// wrapped returns x as int64 indices. It counts negative indices from the end of a dimension of
// size n.
func (x *Tensor) wrapped(op string, n int) *Tensor {
	y := wrap.Apply([]*Tensor{x.Cast(dtype.I64)}, float64(n))
	y.op = op
	return y
}

// wrapping holds the primitives with the option Wrap: indices below 0 count from the end.
var wrapping = [2]device.Op{&device.Gather{Wrap: true}, &device.Scatter{Wrap: true}}

// fromEnd returns x as indices of a dimension of size n, in which negative indices count from the
// end. The indices are for an op in scope s on the given operands. If wrap is true, index is x
// itself, and the op must have the option Wrap. If the op records a graph, index is a copy, because
// the caller may change x before the gradient is computed.
func (x *Tensor) fromEnd(op string, s *Scope, n int, operands ...*Tensor) (index *Tensor, wrap bool) {
	dev := x.st.dev
	if !x.layout.Contiguous() || s.modes.composed || !dev.Supports(wrapping[0]) || !dev.Supports(wrapping[1]) || wantsGrad(op, s, operands) {
		return x.wrapped(op, n), false
	}
	return x, true
}

// Gather selects elements of x along dimension dim, as torch.gather does. The result has index's
// shape. For matrices and dim 1 its element [i, j] is x[i, index[i, j]]. For dim 0 the element is
// x[index[i, j], j]. index has x's rank. In dimensions other than dim its sizes are at most x's
// sizes. Indices are int64 or int32 and not negative. An index out of range is an error, which a
// GPU reports at the next wait.
func (x *Tensor) Gather(dim int, index *Tensor) *Tensor {
	p := x.checkScatter("gather", dim, index, nil)
	return Apply(gatherFunc{p.axis, "gather"}, x.lifted(), p.index).reshape(index.layout.Shape)
}

// TakeAlong does what [Tensor.Gather] does, but first broadcasts x and index in all dimensions
// except dim, as torch.take_along_dim does. Use it to select elements by the result of Argsort, or
// of Argmax with KeepDim. Negative indices count from the end.
func (x *Tensor) TakeAlong(index *Tensor, dim int) *Tensor {
	const op = "take_along_dim"
	checkIndex(op, x, index)
	in := []*Tensor{x, index}
	if x.Rank() != index.Rank() || x.Rank() == 0 {
		fail(op, ErrShape, in, "the index must have the tensor's rank, at least 1; shapes are %s", shapes(in))
	}
	a := x.axis(op, dim)
	n, m := x.layout.Shape.At(a), index.layout.Shape.At(a)
	s, d, ok := shape.Broadcast(x.layout.Shape.With(a, 1), index.layout.Shape.With(a, 1))
	if !ok {
		fail(op, ErrShape, in, "shapes %s do not broadcast: dimension -%d differs and neither is 1", shapes(in), d)
	}
	places, wrap := index.fromEnd(op, youngest(op, in), n, x)
	return Apply(namedFunc{gatherFunc{a, op}, places, wrap}, x.expand(s.With(a, n)), places.expand(s.With(a, m)))
}

// Take treats x as a vector and returns the elements that index selects, as torch.take does. The
// result has index's shape. Negative indices count from the end.
func (x *Tensor) Take(index *Tensor) *Tensor {
	const op = "take"
	checkIndex(op, x, index)
	flat := x.reshape(shape.Of(x.Size()))
	defer freeView(nil, flat, x)
	places, wrap := index.fromEnd(op, youngest(op, []*Tensor{x, index}), x.Size(), x)
	defer freeView(nil, places, index)
	vector := places.reshape(shape.Of(index.Size()))
	defer freeView(nil, vector, places)
	return flat.indexSelectBy(op, 0, vector, places, wrap).reshaped(index.layout.Shape)
}

// IndexSelect returns the entries of dimension dim that the vector index selects. Indices are int64
// or int32 and not negative.
func (x *Tensor) IndexSelect(dim int, index *Tensor) *Tensor {
	const op = "index_select"
	checkIndex(op, x, index)
	if x.Rank() == 0 && index.Size() == 1 {
		x.axis(op, dim)
		return x.lifted().indexSelect(op, 0, index.lifted()).reshape(shape.Dims{})
	}
	return x.indexSelectBy(op, dim, index.lifted(), index, false)
}

// indexSelect does what IndexSelect does, for an index that is known to be a vector. Errors name
// the op.
func (x *Tensor) indexSelect(op string, dim int, index *Tensor) *Tensor {
	return x.indexSelectBy(op, dim, index, index, false)
}

// indexSelectBy does what indexSelect does, for an index that is a view of callerIndex, the index
// that the caller passed. If wrap is true, indices below 0 count from the end.
func (x *Tensor) indexSelectBy(op string, dim int, index, callerIndex *Tensor, wrap bool) *Tensor {
	a := x.axis(op, dim)
	if index.Rank() != 1 || x.Rank() == 0 {
		fail(op, ErrShape, []*Tensor{x, index}, "the index must be a vector and the tensor have a dimension; shapes are %s", shapes([]*Tensor{x, index}))
	}
	wide := expandVector(index, a, x.layout.Shape.With(a, index.Dim(0)))
	defer wide.Free()
	return Apply(namedFunc{gatherFunc{a, op}, callerIndex, wrap}, x, wide)
}
