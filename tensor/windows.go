package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// within runs f in a scope for its intermediates and hands its result, with the graph that it needs, to s.
func within(s *Scope, f func(c *Scope) *Tensor) *Tensor {
	c := s.child()
	defer c.recycle()
	y := f(c)
	c.close([]*Tensor{y}, false)
	return y
}

// positions returns offset + Σ iₖ·strides[k] for all indices of shape s, int64, flat.
func positions(c *Scope, like *Tensor, s, strides shape.Dims, offset int) *Tensor {
	m := c.On(like.st.dev).Typed(dtype.I64)
	y := m.Full(float64(offset))
	for k := range s.Rank() {
		y = y.Unsqueeze(-1).Add(m.Arange(s.At(k)).MulScalar(float64(strides.At(k))))
	}
	return y.reshape(shape.Of(s.Size()))
}

// Unfold returns the windows of the given size along a dimension, each step behind the one before,
// as a view: the dimension becomes their number, (n-size)/step + 1, and the last dimension of the
// result holds their elements. Windows may overlap; gradients of an element that lies in several
// are added in a fixed order. A tensor of rank 0 counts as a vector of one; its single window of
// size 1 is that vector, and one of size 0 an empty one.
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
		return Apply(scatterFunc{a, to, "unfold.grad"}, rows.reshape(flat), index.reshape(ones.With(a, count*size)).expand(flat))
	})
}

// AsStrided returns the view of x's storage with the given sizes, strides and offset, counted in elements; without an
// offset it is x's own. The view may go beyond x, but not beyond the storage, and strides are not negative. Gradients reach the
// elements of x, which may not be an expanded tensor then; where elements of the view share a place they are added.
func (x *Tensor) AsStrided(dims, strides []int, offset ...int) *Tensor {
	const op = "as_strided"
	x.use(op)
	in := []*Tensor{x}
	if len(dims) != len(strides) || len(dims) > shape.MaxRank || len(offset) > 1 {
		fail(op, ErrShape, in, "%d sizes, %d strides and %d offsets; there must be as many strides as sizes, at most %d, and one offset or none", len(dims), len(strides), len(offset), shape.MaxRank)
	}
	l := shape.Layout{Shape: shape.Of(dims...), Strides: shape.Of(strides...), Offset: x.layout.Offset}
	if len(offset) == 1 {
		l.Offset = offset[0]
	}
	held := x.st.buf.Size() / x.dtype.Size()
	last, empty := l.Offset, false
	for i, d := range dims {
		if d < 0 || strides[i] < 0 {
			fail(op, ErrValue, in, "sizes %v and strides %v must not be negative", l.Shape, l.Strides)
		}
		empty = empty || d == 0
		if d > 1 && strides[i] > 0 {
			if d-1 > held/strides[i] || last > held {
				last = held
			} else {
				last += (d - 1) * strides[i]
			}
		}
	}
	if l.Offset < 0 || !empty && last >= held {
		e := newError(op, ErrIndex, in, "sizes "+l.Shape.String()+" and strides "+l.Strides.String()+" from an offset of "+itoa(l.Offset)+" on leave the storage, which holds "+itoa(held)+" elements")
		panic(e)
	}
	if !empty {
		x.fits(op, l.Shape)
	}
	if x.needsGrad && !x.scope.modes.noGrad && x.layout.Overlaps() {
		e := newError(op, ErrGrad, in, "several elements of the tensor share one place, so that a gradient cannot be given back to them")
		panic(e.hint("use Contiguous or Detach first"))
	}
	return x.asStrided(l)
}
