package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// MaxUnpool1d puts the elements of x back to the positions from which a maximum pool selected them.
// All other elements are 0. It is torch.nn.functional.max_unpool1d. x and indices are the values
// and positions that [Tensor.MaxPool1dIndices] returned, [n, channels, length] or [channels,
// length]. o are the options of that call. size is the length of the result. By default it is
// (length-1)·stride - 2·padding + the extent of a window. size may differ from this default by
// less than one stride. If several elements have the same position, the last one wins, and each
// receives the position's gradient. An index out of range is an error, which a GPU reports at the
// next wait.
func (x *Tensor) MaxUnpool1d(indices *Tensor, o MaxPoolOptions, size ...int) *Tensor {
	return x.maxUnpool("max_unpool1d", 1, indices, o, size)
}

// MaxUnpool2d is [Tensor.MaxUnpool1d] in two dimensions. size is height and width: one number for
// both, or one number for each.
func (x *Tensor) MaxUnpool2d(indices *Tensor, o MaxPoolOptions, size ...int) *Tensor {
	return x.maxUnpool("max_unpool2d", 2, indices, o, size)
}

// MaxUnpool3d is [Tensor.MaxUnpool1d] in three dimensions. size is depth, height and width: one
// number for all, or one number for each.
func (x *Tensor) MaxUnpool3d(indices *Tensor, o MaxPoolOptions, size ...int) *Tensor {
	return x.maxUnpool("max_unpool3d", 3, indices, o, size)
}

func (x *Tensor) maxUnpool(op string, rank int, indices *Tensor, o MaxPoolOptions, size []int) *Tensor {
	x.checkSpatial(op, rank)
	x.needsFloat(op)
	in := []*Tensor{x, indices}
	s := youngest(op, in)
	sameDevice(op, in)
	if indices.dtype != dtype.I64 {
		e := newError(op, ErrType, in, "indices are int64, these are "+indices.dtype.String())
		panic(e.hint("MaxPool2dIndices and its like return them"))
	}
	if indices.layout.Shape != x.layout.Shape {
		fail(op, ErrShape, in, "values and indices have one shape; shapes are %s", shapes(in))
	}
	if len(o.Kernel) == 0 {
		fail(op, ErrValue, in, "no size of the kernel is given")
	}
	g := grid{rank: rank, kernel: sizesFor(op, in, "kernel", rank, o.Kernel, 1, 1), stride: sizesFor(op, in, "stride", rank, o.Stride, 1, 1),
		before: sizesFor(op, in, "padding", rank, o.Padding, 0, 0), dilation: sizesFor(op, in, "dilation", rank, o.Dilation, 1, 1)}
	if len(o.Stride) == 0 {
		g.stride = g.kernel
	}
	to := sizesFor(op, in, "the result", rank, size, 0, 0)
	for i := range rank {
		n := x.Dim(i - rank)
		if n == 0 {
			fail(op, ErrShape, in, "dimension %d has no elements", i-rank)
		}
		whole := (n-1)*g.stride[i] - 2*g.before[i] + g.span(i)
		if len(size) == 0 {
			to[i] = whole
		}
		if d := to[i] - whole; to[i] < 1 || d <= -g.stride[i] || d >= g.stride[i] {
			e := newError(op, ErrValue, in, fmt.Sprintf("dimension %d cannot have a size of %d: %d windows come from %d to %d elements",
				i-rank, to[i], n, max(1, whole-g.stride[i]+1), whole+g.stride[i]-1))
			panic(e.hint("give the size of what was pooled"))
		}
	}
	return within(s, func(c *Scope) *Tensor {
		lead := x.layout.Shape.Head(x.Rank() - rank)
		windows, places := 1, 1
		for i := range rank {
			windows, places = windows*x.Dim(i-rank), places*to[i]
		}
		flat := func(t *Tensor) *Tensor { return t.In(c).reshape(lead.Append(windows)) }
		y := c.On(x.st.dev).Typed(x.dtype).Zeros(lead.Append(places).Slice()...)
		return y.Scatter(lead.Rank(), flat(indices), flat(x)).reshape(lead.Append(to[:rank]...))
	})
}
