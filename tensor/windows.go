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
		return Apply(&unfoldGradFunc{a, size, step, to}, g)
	})
}

// unfoldGradFunc computes the gradient of [Tensor.Unfold], for windows of the given size along an
// axis of a tensor of shape to.
type unfoldGradFunc struct {
	axis, size, step int
	to               shape.Dims
}

func (f *unfoldGradFunc) Name() string { return "unfold.grad" }

func (f *unfoldGradFunc) Forward(c *Context, in []*Tensor) *Tensor {
	g, s := in[0], c.Scope()
	y := alloc(f.Name(), s, g.st.dev, g.dtype, f.to)
	if f.size == 0 {
		return y.fill(0)
	}
	// The dimensions before the axis count as samples of a batch. The dimensions after the axis
	// count as a second spatial dimension, in which each window has one element.
	n, count := f.to.At(f.axis), g.Dim(f.axis)
	before, behind := f.to.Head(f.axis).Size(), f.to.Tail(f.axis+1).Size()
	v := grid{rank: 2, in: [3]int{n, behind}, kernel: [3]int{f.size, 1}, stride: [3]int{f.step, 1}, dilation: [3]int{1, 1}, out: [3]int{count, behind}}
	x := g.reshape(shape.Of(before, 1, count, behind, f.size, 1)).Permute(0, 1, 4, 5, 2, 3)
	v.fold(f.Name(), s, y.reshape(shape.Of(before, 1, n, behind)), x, nil, false)
	return y
}

func (f *unfoldGradFunc) VJP(_ *Context, x *Tensor) []*Tensor {
	return []*Tensor{x.Unfold(f.axis, f.size, f.step)}
}
