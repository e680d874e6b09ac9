package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/shape"
)

// A region maps the layout of a tensor to the layout of a part, such as a slice or a diagonal. No
// element of the tensor is in the part twice.
type region func(l shape.Layout) shape.Layout

// region returns the view of a part of x. Backward writes the view's gradient to the part's
// elements in a tensor of zeros.
func (x *Tensor) region(op string, r region) *Tensor {
	y, grad := x.unrecordedView(op, r(x.layout))
	if grad {
		y.recordRegion(x, r, nil)
	}
	return y
}

// recordRegion adds y to the graph. y is the view of the region r of x. p describes the same view
// as a part of x, or is nil if the view is not a range of one axis.
func (y *Tensor) recordRegion(x *Tensor, r region, p *part) {
	op, to := y.op, x.layout.Shape
	y.attachView(x, func(_ *Context, g *Tensor) *Tensor {
		return Apply(&intoFunc{op: op + ".grad", shape: to, region: r}, g)
	}, p)
}

// intoFunc writes its operand into a region of a new tensor. The other elements of this tensor have
// the value fill.
type intoFunc struct {
	op     string
	shape  shape.Dims
	region region
	fill   float64
}

func (f *intoFunc) Name() string { return f.op }

func (f *intoFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, s := in[0], c.Scope()
	y := alloc("full", s, x.st.dev, x.dtype, f.shape).fill(fitted("full", x.dtype, f.fill))
	part := y.handle(f.op, s, f.region(y.layout))
	defer part.Free()
	part.store(f.op, s, x)
	return y
}

func (f *intoFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

func (f *intoFunc) VJP(_ *Context, g *Tensor) []*Tensor { return []*Tensor{g.region(f.op, f.region)} }

// sliced returns the region that has n indices of an axis: start, start+step, ….
func sliced(axis, start, n, step int) region {
	return func(l shape.Layout) shape.Layout { return l.Narrow(axis, start, n, step) }
}

// End as the stop of [Tensor.Slice] is the position after the last index. -End, for a negative
// step, is the position before the first.
const End = math.MaxInt

// Narrow returns the indices start … start+n-1 of a dimension, as a view.
func (x *Tensor) Narrow(dim, start, n int) *Tensor {
	x.use("narrow")
	a := x.axis("narrow", dim)
	size := 1
	if x.Rank() > 0 {
		size = x.layout.Shape.At(a)
	}
	if start < 0 && start >= -size {
		start += size
	}
	if x.Rank() == 0 || start < 0 || n < 0 || start > size || n > size-start {
		fail("narrow", ErrIndex, []*Tensor{x}, "indices %d to %d are out of range for dimension %d of size %d", start, start+min(n, math.MaxInt-max(start, 0)), dim, size)
	}
	return x.viewPart("narrow", part{axis: a, start: start, n: n})
}

// Slice returns the indices start, start+step, … before stop of a dimension, as Python's
// x[start:stop:step]. Negative start and stop count from the end. Indices outside of the dimension
// are cut off. [End] as stop means up to the end. For a positive step the result is a view. torch
// has no negative steps. Here a negative step selects downwards, and the result is a copy
// ([Tensor.Flip]), because strides are never negative. A step of 0 and a tensor of rank 0 are
// errors.
func (x *Tensor) Slice(dim, start, stop, step int) *Tensor {
	x.use("slice")
	a := x.axis("slice", dim)
	if x.Rank() == 0 {
		fail("slice", ErrShape, []*Tensor{x}, "a tensor of rank 0 has no dimension to slice")
	}
	if step == 0 {
		fail("slice", ErrValue, []*Tensor{x}, "the step is 0")
	}
	first, n, by, down := spanOf(x.layout.Shape.At(a), start, stop, step)
	if by == 1 && !down {
		return x.viewPart("slice", part{axis: a, start: first, n: n})
	}
	y := x.region("slice", sliced(a, first, n, by))
	if down {
		return y.Flip(a)
	}
	return y
}

// spanOf resolves Python's start:stop:step in a dimension of the given size. The result is the n
// indices first, first+stride, …. If step is negative, reversed is true: the indices must be read
// from the last to the first.
func spanOf(size, start, stop, step int) (first, n, stride int, reversed bool) {
	lo, hi := 0, size // limits of start and stop
	if step < 0 {
		lo, hi = -1, size-1
	}
	at := func(i int) int {
		if i < 0 && i >= -size {
			i += size
		}
		return min(max(i, lo), hi)
	}
	start, stop = at(start), at(stop)
	if step > 0 {
		if stop > start {
			n = (stop-start-1)/step + 1
		}
		if n <= 1 {
			step = 1
		}
		return min(start, max(size-1, 0)), n, step, false
	}
	if start > stop {
		n = 1
		if step > stop-start { // compare before dividing: for the least int, -step overflows
			n = (start-stop-1)/-step + 1
		}
	}
	if n <= 1 {
		return max(start, 0), n, 1, true
	}
	return start + (n-1)*step, n, -step, true
}

// Select returns index i of a dimension, as a view without this dimension. A negative i counts from
// the end.
func (x *Tensor) Select(dim, i int) *Tensor {
	x.use("select")
	a := x.axis("select", dim)
	if x.Rank() == 0 || i < -x.layout.Shape.At(a) || i >= x.layout.Shape.At(a) {
		if x.Rank() == 0 {
			fail("select", ErrIndex, []*Tensor{x}, "a tensor of rank 0 has no dimension to select from")
		}
		fail("select", ErrIndex, []*Tensor{x}, "index %d is out of range for dimension %d of size %d", i, dim, x.layout.Shape.At(a))
	}
	if i < 0 {
		i += x.layout.Shape.At(a)
	}
	return x.viewPart("select", part{axis: a, start: i, n: 1, single: true})
}

// Diagonal returns the elements whose index in dim2 is their index in dim1 plus offset, as a view.
// The last dimension of the result replaces dim1 and dim2.
func (x *Tensor) Diagonal(offset, dim1, dim2 int) *Tensor {
	x.use("diagonal")
	a, b := x.twoAxes("diagonal", dim1, dim2)
	return x.region("diagonal", diagonalOf(x.layout.Shape, offset, a, b))
}

// twoAxes resolves two possibly negative dimensions, and panics if they are equal.
func (x *Tensor) twoAxes(op string, dim1, dim2 int) (a, b int) {
	a, b = x.axis(op, dim1), x.axis(op, dim2)
	if a == b {
		fail(op, ErrShape, []*Tensor{x}, "dimensions %d and %d are the same; a diagonal lies in two dimensions", dim1, dim2)
	}
	return a, b
}

func diagonalOf(s shape.Dims, offset, a, b int) region {
	n, row, col := 0, 0, 0
	switch r, c := s.At(a), s.At(b); {
	case offset >= 0 && offset < c:
		n, col = min(r, c-offset), offset
	case offset < 0 && offset > -r:
		n, row = min(r+offset, c), -offset
	}
	return func(l shape.Layout) shape.Layout {
		step := l.Strides.At(a) + l.Strides.At(b)
		if n > 0 {
			l.Offset += row*l.Strides.At(a) + col*l.Strides.At(b)
		}
		for _, i := range []int{max(a, b), min(a, b)} {
			l.Shape, l.Strides = l.Shape.Remove(i), l.Strides.Remove(i)
		}
		l.Shape, l.Strides = l.Shape.Append(n), l.Strides.Append(step)
		return l
	}
}
