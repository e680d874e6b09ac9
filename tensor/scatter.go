package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// scatterFunc adds elements to a tensor of zeros of the given shape. It is the gradient of gather.
type scatterFunc struct {
	axis  int
	shape shape.Dims
	op    string // name of the op that the user called
	// distinct is true if no two elements are added to the same element of the result.
	distinct bool
}

func (f scatterFunc) Name() string { return f.op }

func (f scatterFunc) Forward(c *Context, in []*Tensor) *Tensor {
	g, index := in[0], in[1]
	y := alloc("zeros", c.Scope(), g.st.dev, g.dtype, f.shape).fill(0)
	y.scatterOp(f.op, c.Scope(), device.Scatter{Kind: device.ScatterAdd, Axis: f.axis, Distinct: f.distinct}, g, index)
	if c.Needs(0) {
		c.Save(index)
	}
	return y
}

func (f scatterFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

func (f scatterFunc) VJP(c *Context, g *Tensor) []*Tensor {
	if f.distinct {
		return []*Tensor{Apply(takenFunc{gatherFunc{f.axis, "gather"}}, g, c.Saved(0)), nil}
	}
	return []*Tensor{Apply(gatherFunc{f.axis, "gather"}, g, c.Saved(0)), nil}
}

// scatter combines src with the elements of x that index selects along axis, in x's memory.
func (x *Tensor) scatter(op string, s *Scope, kind device.ScatterKind, axis int, src, index *Tensor) {
	x.scatterOp(op, s, device.Scatter{Kind: kind, Axis: axis}, src, index)
}

// scatterOp does what scatter does, with the options in o.
func (x *Tensor) scatterOp(op string, s *Scope, o device.Scatter, src, index *Tensor) {
	o.Dst, o.Src, o.Index, o.Tag = x.operand(), src.operand(), index.operand(), lateTag(op, x, index, index)
	own := scatterOps.reuse(o)
	launch(op, s, own, x, src, index)
	scatterOps.put(own)
}

// scatterIntoFunc returns its first operand, in which elements of the second operand were set or
// added.
type scatterIntoFunc struct {
	kind device.ScatterKind // ScatterSet or ScatterAdd
	axis int
	op   string
	wrap bool // true if indices below 0 count from the end
}

func (f scatterIntoFunc) Name() string { return f.op }

func (f scatterIntoFunc) Forward(c *Context, in []*Tensor) *Tensor {
	y, done := in[0].copied(c.Scope()), false
	defer freeUnless(&done, y)
	y.scatterOp(f.op, c.Scope(), device.Scatter{Kind: f.kind, Axis: f.axis, Wrap: f.wrap}, in[1], in[2])
	done = true
	c.Save(in[2])
	return y
}

func (f scatterIntoFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

// VJP sends the gradient of an element of the result to all elements that were written to it, as
// PyTorch does.
func (f scatterIntoFunc) VJP(c *Context, g *Tensor) []*Tensor {
	index, grads := c.Saved(0), []*Tensor{g, nil, nil}
	if c.Needs(0) && f.kind == device.ScatterSet {
		grads[0] = g.scatterNumber("scatter", f.axis, index, 0)
	}
	if c.Needs(1) {
		grads[1] = Apply(gatherFunc{f.axis, "gather"}, g, index)
	}
	return grads
}

// scatterNumber returns x with v written to the elements that index selects.
func (x *Tensor) scatterNumber(op string, axis int, index *Tensor, v float64) *Tensor {
	return Apply(scatterIntoFunc{device.ScatterSet, axis, op, false}, x, index.numbers(x, v), index)
}

// numbers returns v expanded to the shape of x, in the type of the tensor like. It allocates only
// one element.
func (x *Tensor) numbers(like *Tensor, v float64) *Tensor {
	return alloc("full", x.scope, like.st.dev, like.dtype, shape.Dims{}).fill(fitted("full", like.dtype, v)).expand(x.layout.Shape)
}

// lifted returns x, or a vector of one element if x has rank 0. torch's ops along a dimension
// accept rank 0 too.
func (x *Tensor) lifted() *Tensor {
	if x.Rank() == 0 {
		return x.reshape(shape.Of(1))
	}
	return x
}

// A placement holds the checked arguments of a scatter: the axis, the index, and the elements to
// write.
type placement struct {
	op         string
	axis       int
	index, src *Tensor // index and src have the same shape
	wrap       bool    // true if indices below 0 count from the end
}

// checkScatter checks the operands of a scatter along dim. index must have x's rank. In dimensions
// other than dim the index's size is at most x's. In all dimensions it is at most src's, and src is
// cut to the shape of index. src may be nil.
func (x *Tensor) checkScatter(op string, dim int, index, src *Tensor) placement {
	in := []*Tensor{x, index}
	if src != nil {
		in = append(in, src)
	}
	youngest(op, in)
	checkIndex(op, x, index)
	sameDevice(op, in)
	a := x.axis(op, dim)
	p := placement{op: op, axis: a, index: index.lifted()}
	to := padTo(x.layout.Shape, 1)
	if p.index.Rank() != to.Rank() {
		fail(op, ErrShape, in, "the index must have the tensor's rank; shapes are %s", shapes(in))
	}
	for i := range to.Rank() {
		if n := p.index.layout.Shape.At(i); i != a && n > to.At(i) {
			fail(op, ErrShape, in, "the index has size %d in dimension %d, the tensor %d", n, i, to.At(i))
		}
	}
	if src == nil {
		return p
	}
	p.src = src.lifted()
	if src.dtype != x.dtype {
		panic(newError(op, ErrType, in, "source is "+src.dtype.String()+", the tensor "+x.dtype.String()).hint("use Cast"))
	}
	if p.src.Rank() != to.Rank() {
		fail(op, ErrShape, in, "the source must have the tensor's rank; shapes are %s", shapes(in))
	}
	for i := range to.Rank() {
		n, m := p.index.layout.Shape.At(i), p.src.layout.Shape.At(i)
		if n > m {
			fail(op, ErrShape, in, "the index has size %d in dimension %d, the source %d", n, i, m)
		}
		if n < m {
			p.src = p.src.Narrow(i, 0, n)
		}
	}
	return p
}

// checkScatterRows does what checkScatter does, for an index that is a vector or has rank 0, and
// that selects whole entries of the dimension.
func (x *Tensor) checkScatterRows(op string, dim int, index, src *Tensor) placement {
	in := []*Tensor{x, index, src}
	youngest(op, in)
	checkIndex(op, x, index)
	sameDevice(op, in)
	a := x.axis(op, dim)
	ix, from := index.lifted(), src.lifted()
	want := padTo(x.layout.Shape, 1).With(a, ix.Dim(0))
	if ix.Rank() != 1 || from.layout.Shape != want {
		fail(op, ErrShape, in, "the index must be a vector and the source have the tensor's shape but one entry for each index in dimension %d; shapes are %s", a, shapes(in))
	}
	if src.dtype != x.dtype {
		panic(newError(op, ErrType, in, "source is "+src.dtype.String()+", the tensor "+x.dtype.String()).hint("use Cast"))
	}
	return placement{op, a, expandVector(ix, a, want), from, false}
}

// expandVector expands the vector index over shape s, whose dimension a has the vector's size.
func expandVector(index *Tensor, a int, s shape.Dims) *Tensor {
	l := shape.Layout{Shape: s, Offset: index.layout.Offset}
	for i := range s.Rank() {
		stride := 0
		if i == a {
			stride = index.layout.Strides.At(0)
		}
		l.Strides = l.Strides.Append(stride)
	}
	return index.view("expand", l, nil) // indices have no gradient
}

// scattered returns x with p's source written or added, as kind says, to the elements that p's
// index selects.
func (x *Tensor) scattered(kind device.ScatterKind, p placement) *Tensor {
	return Apply(scatterIntoFunc{kind, p.axis, p.op, p.wrap}, x.lifted(), p.src, p.index).reshape(x.layout.Shape)
}

func (x *Tensor) scatterInPlace(kind device.ScatterKind, p placement) *Tensor {
	return x.change(p.op, []*Tensor{p.src, p.index}, func() *Tensor { return x.scattered(kind, p) }, func(s *Scope) {
		src, index := p.src, p.index
		if src.st == x.st { // src is read while x is written
			src = src.Clone()
		}
		if index.st == x.st {
			index = index.Clone()
		}
		x.lifted().scatterOp(p.op, s, device.Scatter{Kind: kind, Axis: p.axis, Wrap: p.wrap}, src, index)
	})
}

// change runs an op on x in place. others are the op's other operands. If no gradient is recorded,
// it calls direct, which writes x's memory. Otherwise it calls computed, and x takes over the
// result.
func (x *Tensor) change(op string, others []*Tensor, computed func() *Tensor, direct func(s *Scope)) *Tensor {
	s := x.writable(op, others...)
	if !wantsGrad(op, s, append([]*Tensor{x}, others...)) {
		direct(s)
		x.st.version.Add(1)
		return x
	}
	x.replace(op, s, computed())
	return x
}

// Scatter returns x with the elements of src written to the elements that index selects along dim,
// as torch.scatter does. For rank 2 and dim 0 the result is y[index[i, j], j] = src[i, j]. index
// has x's rank. In every dimension its size is at most src's. In every dimension except dim it is
// at most x's. Elements of src beyond index's shape are ignored. If several elements of src are
// written to the same element of x, the last in row-major order wins. PyTorch does not define which
// one wins. But as in PyTorch, each of them receives the gradient of that element. x and src have
// the same type. Indices are int64 or int32 and not negative. An index out of range is an error,
// which a GPU reports at the next wait.
func (x *Tensor) Scatter(dim int, index, src *Tensor) *Tensor {
	return x.scattered(device.ScatterSet, x.checkScatter("scatter", dim, index, src))
}

// ScatterInPlace is [Tensor.Scatter] in place, torch's scatter_.
func (x *Tensor) ScatterInPlace(dim int, index, src *Tensor) *Tensor {
	return x.scatterInPlace(device.ScatterSet, x.checkScatter("scatter", dim, index, src))
}

// scalarPlacement does what checkScatter does, with the number v as the source.
func (x *Tensor) scalarPlacement(dim int, index *Tensor, v float64) placement {
	p := x.checkScatter("scatter", dim, index, nil)
	v = x.fittedNumber("scatter", v)
	p.src = p.index.numbers(x, v)
	return p
}

// ScatterScalar returns x with v written to the elements that index selects along dim; see
// [Tensor.Scatter].
func (x *Tensor) ScatterScalar(dim int, index *Tensor, v float64) *Tensor {
	return x.scattered(device.ScatterSet, x.scalarPlacement(dim, index, v))
}

// ScatterScalarInPlace is [Tensor.ScatterScalar] in place.
func (x *Tensor) ScatterScalarInPlace(dim int, index *Tensor, v float64) *Tensor {
	return x.scatterInPlace(device.ScatterSet, x.scalarPlacement(dim, index, v))
}

// ScatterAdd returns x with the elements of src added to the elements that index selects along dim,
// as torch.scatter_add does. Shapes and types are those of [Tensor.Scatter]. Elements are added in
// the order of their positions, but a GPU may add up many of them in parts first. The sum of bool
// is "or".
func (x *Tensor) ScatterAdd(dim int, index, src *Tensor) *Tensor {
	if y := underAutocast("scatter_add", AutocastWidest, func(in []*Tensor) *Tensor { return in[0].ScatterAdd(dim, in[1], in[2]) }, x, index, src); y != nil {
		return y
	}
	return x.scattered(device.ScatterAdd, x.checkScatter("scatter_add", dim, index, src))
}

// ScatterAddInPlace is [Tensor.ScatterAdd] in place, torch's scatter_add_.
func (x *Tensor) ScatterAddInPlace(dim int, index, src *Tensor) *Tensor {
	return x.scatterInPlace(device.ScatterAdd, x.checkScatter("scatter_add", dim, index, src))
}

// IndexAdd returns x with alpha·src[j] added to entry index[j] of dimension dim, for each j in
// order, as torch.index_add does. index is a vector. src has x's shape, except that dimension dim
// has one entry for each index. The sum of bool is "or", and alpha counts as true unless it is 0.
func (x *Tensor) IndexAdd(dim int, index, src *Tensor, alpha float64) *Tensor {
	return x.scattered(device.ScatterAdd, x.checkScatterRows("index_add", dim, index, src).scaled(alpha))
}

// IndexAddInPlace is [Tensor.IndexAdd] in place, torch's index_add_.
func (x *Tensor) IndexAddInPlace(dim int, index, src *Tensor, alpha float64) *Tensor {
	return x.scatterInPlace(device.ScatterAdd, x.checkScatterRows("index_add", dim, index, src).scaled(alpha))
}

// scaled returns p with the source multiplied by alpha.
func (p placement) scaled(alpha float64) placement {
	if alpha != 1 {
		switch t := p.src.dtype; {
		case t == boolType && alpha != 0:
			return p
		case t == boolType:
			p.src = p.src.ZerosLike()
			return p
		case !t.IsFloat() && alpha != math.Trunc(alpha):
			fail(p.op, ErrType, []*Tensor{p.src}, "alpha is %v, which is no factor of %v", alpha, t)
		}
		p.src = p.src.MulScalar(alpha)
	}
	return p
}

// IndexCopy returns x with entry index[j] of dimension dim set to src[j], as torch.index_copy does.
// Shapes are those of [Tensor.IndexAdd]. If index selects an entry several times, the last value
// wins, but as in PyTorch each value receives the entry's gradient.
func (x *Tensor) IndexCopy(dim int, index, src *Tensor) *Tensor {
	return x.scattered(device.ScatterSet, x.checkScatterRows("index_copy", dim, index, src))
}

// IndexCopyInPlace is [Tensor.IndexCopy] in place, torch's index_copy_.
func (x *Tensor) IndexCopyInPlace(dim int, index, src *Tensor) *Tensor {
	return x.scatterInPlace(device.ScatterSet, x.checkScatterRows("index_copy", dim, index, src))
}

func (x *Tensor) fillPlacement(dim int, index *Tensor, v float64) placement {
	const op = "index_fill"
	checkIndex(op, x, index)
	a := x.axis(op, dim)
	s, ix := padTo(x.layout.Shape, 1), index.lifted()
	if ix.Rank() != 1 {
		fail(op, ErrShape, []*Tensor{x, index}, "the index must be a vector; shapes are %s", shapes([]*Tensor{x, index}))
	}
	v = x.fittedNumber(op, v)
	places, wrap := ix.fromEnd(op, youngest(op, []*Tensor{x, index}), s.At(a), x)
	p := placement{op: op, axis: a, index: expandVector(places, a, s.With(a, ix.Size())), wrap: wrap}
	p.src = p.index.numbers(x, v)
	return p
}

// IndexFill returns x with the entries of dimension dim that the vector index selects set to v, as
// torch.index_fill does. Negative indices count from the end.
func (x *Tensor) IndexFill(dim int, index *Tensor, v float64) *Tensor {
	return x.scattered(device.ScatterSet, x.fillPlacement(dim, index, v))
}

// IndexFillInPlace is [Tensor.IndexFill] in place, torch's index_fill_.
func (x *Tensor) IndexFillInPlace(dim int, index *Tensor, v float64) *Tensor {
	return x.scatterInPlace(device.ScatterSet, x.fillPlacement(dim, index, v))
}
