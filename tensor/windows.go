package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// within runs f in a child of s, for its intermediate tensors. It moves the result, with the graph
// that it needs, to s.
func within(s *Scope, f func(c *Scope) *Tensor) *Tensor {
	c := s.child()
	defer c.recycle()
	y := f(c)
	c.close([]*Tensor{y}, false)
	return y
}

// positions returns offset + Σ iₖ·strides[k] for all indices of shape s, as an int64 vector.
func positions(c *Scope, like *Tensor, s, strides shape.Dims, offset int) *Tensor {
	m := c.On(like.st.dev).Typed(dtype.I64)
	y := m.Full(float64(offset))
	for k := range s.Rank() {
		y = y.Unsqueeze(-1).Add(m.Arange(s.At(k)).MulScalar(float64(strides.At(k))))
	}
	return y.reshape(shape.Of(s.Size()))
}

// Unfold returns windows of the given size along a dimension, as a view. Each window begins step
// elements after the previous one. The dimension's size becomes the number of windows,
// (n-size)/step + 1. A new last dimension holds the elements of the windows. Windows may overlap.
// Then the gradients of an element in several windows are added in a fixed order. A tensor of rank
// 0 counts as a vector of one element. Its result is one window of size 1, or one empty window if
// size is 0.
func (x *Tensor) Unfold(dim, size, step int) *Tensor {
	x.use("unfold")
	a := x.axis("unfold", dim)
	in := []*Tensor{x}
	if x.Rank() == shape.MaxRank {
		fail("unfold", ErrShape, in, "needs a tensor of at most %d dimensions, this has %d", shape.MaxRank-1, x.Rank())
	}
	n := 1
	if x.Rank() > 0 {
		n = x.layout.Shape.At(a)
	}
	if size < 0 || size > n || step < 1 {
		fail("unfold", ErrValue, in, "windows of size %d, %d apart, along a dimension of size %d: the size must lie between 0 and that, the step be at least 1", size, step, n)
	}
	if x.Rank() == 0 {
		return x.reshape(shape.Of(1)).region("unfold", sliced(0, 0, size, 1))
	}
	l, to, count := x.layout, x.layout.Shape, (n-size)/step+1
	along := l.Strides.At(a)
	l.Shape = l.Shape.With(a, count).Append(size)
	l.Strides = l.Strides.With(a, along*step).Append(along)
	return x.view("unfold", l, func(c *Context, g *Tensor) *Tensor {
		rows := g.MoveAxis(-1, a+1)
		flat := rows.layout.Shape.Remove(a+1).With(a, count*size)
		index := positions(c.Scope(), g, shape.Of(count, size), shape.Of(step, 1), 0)
		ones := shape.Dims{}
		for range flat.Rank() {
			ones = ones.Append(1)
		}
		return Apply(scatterFunc{a, to, "unfold.grad", false}, rows.reshape(flat), index.reshape(ones.With(a, count*size)).expand(flat))
	})
}
