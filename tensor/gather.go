package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// gatherFunc picks elements along an axis by an index tensor of the result's shape.
type gatherFunc struct {
	axis int
	op   string // as the user called it
}

func (f gatherFunc) Name() string { return f.op }

func (f gatherFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, index := in[0], in[1]
	s := c.Scope()
	y := alloc(f.op, s, x.st.dev, x.dtype, index.layout.Shape)
	stream := s.streamOf(x.st.dev)
	x.st.read(f.op, stream)
	index.st.read(f.op, stream)
	y.st.write(f.op, stream)
	check(f.op, y.st.dev.Gather(stream, y.deviceView(), x.deviceView(), index.deviceView(), f.axis, lateTag(f.op, index)), x, index)
	if c.Needs(0) {
		c.Save(index)
	}
	return y
}

func (f gatherFunc) VJP(c *Context, g *Tensor) []*Tensor {
	to := c.n.operands[0]
	return []*Tensor{Apply(scatterFunc{f.axis, to.shape, "scatter_add"}, g, c.Saved(0)), nil}
}

// scatterFunc adds elements into zeros of a shape: the gradient of gather.
type scatterFunc struct {
	axis int
	to   shape.Dims
	op   string // as the user called it
}

func (f scatterFunc) Name() string { return f.op }

func (f scatterFunc) Forward(c *Context, in []*Tensor) *Tensor {
	g, index := in[0], in[1]
	s := c.Scope()
	y := s.On(g.st.dev).Typed(g.dtype).Zeros(f.to.Slice()...)
	stream := s.streamOf(g.st.dev)
	g.st.read(f.op, stream)
	index.st.read(f.op, stream)
	y.st.write(f.op, stream)
	check(f.op, y.st.dev.ScatterAdd(stream, y.deviceView(), g.deviceView(), index.deviceView(), f.axis, lateTag(f.op, index)), g, index)
	if c.Needs(0) {
		c.Save(index)
	}
	return y
}

func (f scatterFunc) VJP(c *Context, g *Tensor) []*Tensor {
	return []*Tensor{Apply(gatherFunc{f.axis, "gather"}, g, c.Saved(0)), nil}
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

// Gather returns y[i…] = x[i… with index[i…] in dimension dim], as torch.gather: index has x's rank, and in the other
// dimensions at most x's sizes. An index outside the dimension is an error, on a GPU reported at the next wait.
func (x *Tensor) Gather(dim int, index *Tensor) *Tensor {
	checkIndex("gather", x, index)
	a := x.axis("gather", dim)
	in := []*Tensor{x, index}
	if index.Rank() != x.Rank() || x.Rank() == 0 {
		fail("gather", ErrShape, in, "the index must have the tensor's rank, at least 1; shapes are %s", shapes(in))
	}
	src := x
	for i := range x.Rank() {
		n, m := index.layout.Shape.At(i), x.layout.Shape.At(i)
		if i == a || n == m {
			continue
		}
		if n > m {
			fail("gather", ErrShape, in, "the index has size %d in dimension %d, the tensor %d", n, i, m)
		}
		src = src.Narrow(i, 0, n)
	}
	return Apply(gatherFunc{a, "gather"}, src, index)
}

// IndexSelect returns the entries of dimension dim that index, a vector, names.
func (x *Tensor) IndexSelect(dim int, index *Tensor) *Tensor {
	checkIndex("index_select", x, index)
	return x.indexSelect("index_select", dim, index)
}

func (x *Tensor) indexSelect(op string, dim int, index *Tensor) *Tensor {
	a := x.axis(op, dim)
	if index.Rank() != 1 || x.Rank() == 0 {
		fail(op, ErrShape, []*Tensor{x, index}, "the index must be a vector and the tensor have a dimension; shapes are %s", shapes([]*Tensor{x, index}))
	}
	sh := shape.Dims{}
	for range x.Rank() {
		sh = sh.Append(1)
	}
	full := x.layout.Shape.With(a, index.Dim(0))
	return Apply(gatherFunc{a, op}, x, index.reshape(sh.With(a, index.Dim(0))).expand(full))
}

// Embedding returns the rows of x, a matrix, that index names: shape index.Shape() + [x.Dim(1)].
func (x *Tensor) Embedding(index *Tensor) *Tensor {
	checkIndex("embedding", x, index)
	if x.Rank() != 2 {
		fail("embedding", ErrShape, []*Tensor{x, index}, "the table must be a matrix, it has shape %v", x.Shape())
	}
	if index.Rank() == shape.MaxRank {
		fail("embedding", ErrShape, []*Tensor{x, index}, "the index has %d dimensions, the result cannot have one more", index.Rank())
	}
	return x.indexSelect("embedding", 0, index.reshape(shape.Of(index.Size()))).reshape(index.layout.Shape.Append(x.Dim(1)))
}

// ScatterAdd returns x with the elements of src added at the places that index names along dim, as torch.scatter_add; index
// and src have one shape, with x's sizes in the other dimensions. The order of additions is fixed.
func (x *Tensor) ScatterAdd(dim int, index, src *Tensor) *Tensor {
	checkIndex("scatter_add", x, index)
	a := x.axis("scatter_add", dim)
	in := []*Tensor{x, index, src}
	src.use("scatter_add")
	if src.layout.Shape != index.layout.Shape || src.Rank() != x.Rank() || x.Rank() == 0 || src.layout.Shape.With(a, 1) != x.layout.Shape.With(a, 1) {
		fail("scatter_add", ErrShape, in, "index and source must have one shape, equal to the tensor's but in dimension %d; shapes are %s", a, shapes(in))
	}
	if src.dtype != x.dtype {
		fail("scatter_add", ErrType, in, "source is %v, the tensor %v", src.dtype, x.dtype)
	}
	return x.Add(Apply(scatterFunc{a, x.layout.Shape, "scatter_add"}, src, index))
}
