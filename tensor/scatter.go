package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// scatterFunc adds elements into zeros of a shape: the gradient of gather.
type scatterFunc struct {
	axis int
	to   shape.Dims
	op   string // as the user called it
	// distinct says that no two elements meet.
	distinct bool
}

func (f scatterFunc) Name() string { return f.op }

func (f scatterFunc) Forward(c *Context, in []*Tensor) *Tensor {
	g, index := in[0], in[1]
	y := c.Scope().On(g.st.dev).Typed(g.dtype).Zeros(f.to.Slice()...)
	y.scatterOp(f.op, c.Scope(), device.Scatter{Kind: device.ScatterAdd, Axis: f.axis, Distinct: f.distinct}, g, index)
	if c.Needs(0) {
		c.Save(index)
	}
	return y
}

func (f scatterFunc) VJP(c *Context, g *Tensor) []*Tensor {
	if f.distinct {
		return []*Tensor{Apply(takenFunc{gatherFunc{f.axis, "gather"}}, g, c.Saved(0)), nil}
	}
	return []*Tensor{Apply(gatherFunc{f.axis, "gather"}, g, c.Saved(0)), nil}
}

// scatter combines src into x's own memory at the places that index names along axis.
func (x *Tensor) scatter(op string, s *Scope, kind device.ScatterKind, axis int, src, index *Tensor) {
	x.scatterOp(op, s, device.Scatter{Kind: kind, Axis: axis}, src, index)
}

// scatterOp is scatter as o says.
func (x *Tensor) scatterOp(op string, s *Scope, o device.Scatter, src, index *Tensor) {
	o.Dst, o.Src, o.Index, o.Tag = x.operand(), src.operand(), index.operand(), lateTag(op, x, index, index)
	own := scatterOps.of(o)
	launch(op, s, own, x, src, index)
	scatterOps.put(own)
}

// scatterIntoFunc sets or adds the elements of its second operand into its first.
type scatterIntoFunc struct {
	kind device.ScatterKind // ScatterSet or ScatterAdd
	axis int
	op   string
}

func (f scatterIntoFunc) Name() string { return f.op }

func (f scatterIntoFunc) Forward(c *Context, in []*Tensor) *Tensor {
	y := in[0].Clone()
	y.scatter(f.op, c.Scope(), f.kind, f.axis, in[1], in[2])
	c.Save(in[2])
	return y
}

// VJP gives all elements that were set into one place the gradient of that place, as PyTorch does.
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

// scatterNumber sets v at the places that index names.
func (x *Tensor) scatterNumber(op string, axis int, index *Tensor, v float64) *Tensor {
	return Apply(scatterIntoFunc{device.ScatterSet, axis, op}, x, index.numbers(x, v), index)
}

// numbers is v in the shape of x and in the type of like, without memory of that size.
func (x *Tensor) numbers(like *Tensor, v float64) *Tensor {
	return x.scope.On(like.st.dev).Typed(like.dtype).Full(v).expand(x.layout.Shape)
}

// lifted is x, or a vector of one element where x has rank 0: torch's ops along a dimension take
// both.
func (x *Tensor) lifted() *Tensor {
	if x.Rank() == 0 {
		return x.reshape(shape.Of(1))
	}
	return x
}

// A placement is what a scatter is applied to, checked: where elements go, along which axis, by
// which index.
type placement struct {
	op         string
	axis       int
	index, src *Tensor // of one shape
}

// place checks the operands of a scatter along dim. The index has x's rank, and at most x's size in
// the other dimensions and src's in all; src, nil where there is none, is cut to its shape.
func (x *Tensor) place(op string, dim int, index, src *Tensor) placement {
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

// placeRows is place for an index that is a vector (or of rank 0) and names entries of the
// dimension.
func (x *Tensor) placeRows(op string, dim int, index, src *Tensor) placement {
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
	return placement{op, a, along(ix, a, want), from}
}

// along spreads index, a vector, over shape s, whose dimension a has its size.
func along(index *Tensor, a int, s shape.Dims) *Tensor {
	return index.reshape(onesOf(s.Rank()).With(a, index.Size())).expand(s)
}

// scattered returns x with what p says.
func (x *Tensor) scattered(kind device.ScatterKind, p placement) *Tensor {
	return Apply(scatterIntoFunc{kind, p.axis, p.op}, x.lifted(), p.src, p.index).reshape(x.layout.Shape)
}

// scatterInPlace is scattered in x's own memory.
func (x *Tensor) scatterInPlace(kind device.ScatterKind, p placement) *Tensor {
	return x.change(p.op, []*Tensor{p.src, p.index}, func() *Tensor { return x.scattered(kind, p) }, func(s *Scope) {
		src, index := p.src, p.index
		if src.st == x.st { // what is read must not change meanwhile
			src = src.Clone()
		}
		if index.st == x.st {
			index = index.Clone()
		}
		x.lifted().scatter(p.op, s, kind, p.axis, src, index)
	})
}

// change does an op on x and in, in place: by direct, which writes x's memory, or where a gradient
// is recorded by taking over what computed returns.
func (x *Tensor) change(op string, in []*Tensor, computed func() *Tensor, direct func(s *Scope)) *Tensor {
	s := x.writable(op, in...)
	if !wantsGrad(op, s, append([]*Tensor{x}, in...)) {
		direct(s)
		x.st.version.Add(1)
		return x
	}
	x.replace(op, s, computed())
	return x
}

// Scatter returns x with the elements of src at the places that index names along dim, as
// torch.scatter: y[i… with index[i…] in dimension dim] = src[i…]. The index has x's rank. In every
// dimension its size is at most src's, and, but in dim, at most x's. What lies beyond the index is
// left out. Of several elements for one place the last in row-major order wins (PyTorch leaves that
// open), while as in PyTorch each of them is given the gradient of the place. Types are equal,
// indices int64 or int32 and not negative; one outside the dimension is an error, on a GPU reported
// at the next wait.
func (x *Tensor) Scatter(dim int, index, src *Tensor) *Tensor {
	return x.scattered(device.ScatterSet, x.place("scatter", dim, index, src))
}

// ScatterInPlace is [Tensor.Scatter] in x's own memory, torch's scatter_.
func (x *Tensor) ScatterInPlace(dim int, index, src *Tensor) *Tensor {
	return x.scatterInPlace(device.ScatterSet, x.place("scatter", dim, index, src))
}

// scalarPlacement is place with a number for a source.
func (x *Tensor) scalarPlacement(dim int, index *Tensor, v float64) placement {
	p := x.place("scatter", dim, index, nil)
	v = x.takes("scatter", v)
	p.src = p.index.numbers(x, v)
	return p
}

// ScatterScalar returns x with v at the places that index names along dim; see [Tensor.Scatter].
func (x *Tensor) ScatterScalar(dim int, index *Tensor, v float64) *Tensor {
	return x.scattered(device.ScatterSet, x.scalarPlacement(dim, index, v))
}

// ScatterScalarInPlace is [Tensor.ScatterScalar] in x's own memory.
func (x *Tensor) ScatterScalarInPlace(dim int, index *Tensor, v float64) *Tensor {
	return x.scatterInPlace(device.ScatterSet, x.scalarPlacement(dim, index, v))
}

// ScatterAdd returns x with the elements of src added at the places that index names along dim, as
// torch.scatter_add. Shapes and types are those of [Tensor.Scatter]. The order of additions is that
// of the positions; a GPU may add up parts of many of them first. The sum of bool is "or".
func (x *Tensor) ScatterAdd(dim int, index, src *Tensor) *Tensor {
	if y := underAutocast("scatter_add", AutocastWidest, func(in []*Tensor) *Tensor { return in[0].ScatterAdd(dim, in[1], in[2]) }, x, index, src); y != nil {
		return y
	}
	return x.scattered(device.ScatterAdd, x.place("scatter_add", dim, index, src))
}

// ScatterAddInPlace is [Tensor.ScatterAdd] in x's own memory, torch's scatter_add_.
func (x *Tensor) ScatterAddInPlace(dim int, index, src *Tensor) *Tensor {
	return x.scatterInPlace(device.ScatterAdd, x.place("scatter_add", dim, index, src))
}

// IndexAdd returns x with alpha·src[j] added to entry index[j] of dimension dim, for each j in
// order, as torch.index_add. index is a vector. src has x's shape but in dim one entry for each
// index. The sum of bool is "or"; alpha counts as true unless it is 0.
func (x *Tensor) IndexAdd(dim int, index, src *Tensor, alpha float64) *Tensor {
	return x.scattered(device.ScatterAdd, x.placeRows("index_add", dim, index, src).times(alpha))
}

// IndexAddInPlace is [Tensor.IndexAdd] in x's own memory, torch's index_add_.
func (x *Tensor) IndexAddInPlace(dim int, index, src *Tensor, alpha float64) *Tensor {
	return x.scatterInPlace(device.ScatterAdd, x.placeRows("index_add", dim, index, src).times(alpha))
}

// times scales the source.
func (p placement) times(alpha float64) placement {
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

// IndexCopy returns x with entry index[j] of dimension dim set to src[j], as torch.index_copy;
// shapes are those of [Tensor.IndexAdd]. Of several for one entry the last wins, while as in
// PyTorch each is given its gradient.
func (x *Tensor) IndexCopy(dim int, index, src *Tensor) *Tensor {
	return x.scattered(device.ScatterSet, x.placeRows("index_copy", dim, index, src))
}

// IndexCopyInPlace is [Tensor.IndexCopy] in x's own memory, torch's index_copy_.
func (x *Tensor) IndexCopyInPlace(dim int, index, src *Tensor) *Tensor {
	return x.scatterInPlace(device.ScatterSet, x.placeRows("index_copy", dim, index, src))
}

func (x *Tensor) fillPlacement(dim int, index *Tensor, v float64) placement {
	const op = "index_fill"
	checkIndex(op, x, index)
	a := x.axis(op, dim)
	s, ix := padTo(x.layout.Shape, 1), index.lifted()
	if ix.Rank() != 1 {
		fail(op, ErrShape, []*Tensor{x, index}, "the index must be a vector; shapes are %s", shapes([]*Tensor{x, index}))
	}
	v = x.takes(op, v)
	p := placement{op: op, axis: a, index: along(ix.wrapped(op, s.At(a)), a, s.With(a, ix.Size()))}
	p.src = p.index.numbers(x, v)
	return p
}

// IndexFill returns x with the entries of dimension dim that index, a vector, names set to v, as
// torch.index_fill. Negative indices count from the end.
func (x *Tensor) IndexFill(dim int, index *Tensor, v float64) *Tensor {
	return x.scattered(device.ScatterSet, x.fillPlacement(dim, index, v))
}

// IndexFillInPlace is [Tensor.IndexFill] in x's own memory, torch's index_fill_.
func (x *Tensor) IndexFillInPlace(dim int, index *Tensor, v float64) *Tensor {
	return x.scatterInPlace(device.ScatterSet, x.fillPlacement(dim, index, v))
}
