package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A grid says how windows move over the spatial dimensions of a tensor, which are the last
// dimensions of [n, c, …]. Convolutions and pools use grids. Two grids may be compared with ==. A
// tap is one position in a window: for example, tap 0 is the first element of every window.
type grid struct {
	rank                         int // number of spatial dimensions, 1 to 3
	in, kernel, stride, dilation [3]int
	before, behind               [3]int // sizes of the padding on both sides
	out                          [3]int // number of windows
}

// sizesFor reads sizes: one size for all spatial dimensions, or one size for each dimension. If no
// size is given, fallback is the size for all dimensions.
func sizesFor(op string, x []*Tensor, what string, rank int, given []int, fallback, minimum int) (v [3]int) {
	if len(given) > 1 && len(given) != rank {
		fail(op, ErrValue, x, "%d sizes of %s for %d dimensions; give one for all, or one for each", len(given), what, rank)
	}
	for i := range rank {
		switch {
		case len(given) == 0:
			v[i] = fallback
		case len(given) == 1:
			v[i] = given[0]
		default:
			v[i] = given[i]
		}
		if v[i] < minimum || v[i] > math.MaxInt32 {
			fail(op, ErrValue, x, "%s %v: each must be at least %d and less than 2³¹", what, given, minimum)
		}
	}
	return v
}

// span returns the extent of a window in dimension i, including the gaps of dilation.
func (g *grid) span(i int) int { return g.dilation[i]*(g.kernel[i]-1) + 1 }

// wide returns the padded size of dimension i.
func (g *grid) wide(i int) int { return g.before[i] + g.in[i] + g.behind[i] }

func (g *grid) list(v [3]int) shape.Dims { return shape.Of(v[:g.rank]...) }

// taps returns the number of elements of a window. places returns the number of windows.
func (g *grid) taps() int   { return g.list(g.kernel).Size() }
func (g *grid) places() int { return g.list(g.out).Size() }

// single reports whether the windows are single elements: window i is element i of the input, for
// all i. Then the input itself is the matrix of columns.
func (g *grid) single() bool {
	for i := range g.rank {
		if g.kernel[i] != 1 || g.stride[i] != 1 || g.wide(i) != g.in[i] {
			return false
		}
	}
	return true
}

// disjoint reports whether no element belongs to two windows.
func (g *grid) disjoint() bool {
	for i := range g.rank {
		if g.stride[i] < g.span(i) && g.out[i] > 1 {
			return false
		}
	}
	return true
}

func (g *grid) unpadded() bool { return g.before == [3]int{} && g.behind == [3]int{} }

// shaped returns the shape [n, c, …] with the given spatial sizes.
func (g *grid) shaped(n, c int, spatial [3]int) shape.Dims {
	return shape.Of(n, c).Append(spatial[:g.rank]...)
}

// padded returns the shape [n, c, …] of the padded input.
func (g *grid) padded(n, c int) shape.Dims {
	s := shape.Of(n, c)
	for i := range g.rank {
		s = s.Append(g.wide(i))
	}
	return s
}

// inner returns the layout of a padded tensor [n, c, …] without its padding.
func (g *grid) inner(l shape.Layout) shape.Layout {
	if l.Size() == 0 || g.list(g.in).Size() == 0 {
		for i := range g.rank {
			l.Shape = l.Shape.With(2+i, g.in[i])
		}
		return l
	}
	for i := range g.rank {
		l = l.Narrow(2+i, g.before[i], g.in[i], 1)
	}
	return l
}

// windows returns the layout of the elements of all windows in a padded tensor [n, c, …]: [n, c,
// kernel…, out…]. Windows that overlap share elements.
func (g *grid) windows(l shape.Layout) shape.Layout {
	w := shape.Layout{Offset: l.Offset, Shape: g.columnShape(l.Shape.At(0), l.Shape.At(1)), Strides: l.Strides.Head(2)}
	for i := range g.rank {
		w.Strides = w.Strides.Append(g.dilation[i] * l.Strides.At(2+i))
	}
	for i := range g.rank {
		w.Strides = w.Strides.Append(g.stride[i] * l.Strides.At(2+i))
	}
	return w
}

// tap returns the layout of element k of every window in a padded tensor [n, c, …]: [n, c, out…].
func (g *grid) tap(l shape.Layout, k int) shape.Layout {
	for i := g.rank - 1; i >= 0; i-- {
		l.Offset += k % g.kernel[i] * g.dilation[i] * l.Strides.At(2+i)
		k /= g.kernel[i]
		l.Shape = l.Shape.With(2+i, g.out[i])
		l.Strides = l.Strides.With(2+i, g.stride[i]*l.Strides.At(2+i))
	}
	return l
}

// pad copies x, [n, c, …], into a new tensor of scope c whose padding is fill. Without padding it
// returns x itself.
func (g *grid) pad(op string, c *Scope, x *Tensor, fill float64) *Tensor {
	if g.unpadded() {
		return x
	}
	y := alloc(op, c, x.st.dev, x.dtype, g.padded(x.Dim(0), x.Dim(1))).fill(fill)
	y.handle(op, c, g.inner(y.layout)).store(op, c, x)
	return y
}

func onesOf(n int) (s shape.Dims) {
	for range n {
		s = s.Append(1)
	}
	return s
}

// cut returns the padded tensor y without its padding, or y itself if there is no padding.
func (g *grid) cut(op string, c *Scope, y *Tensor) *Tensor {
	if g.unpadded() {
		return y
	}
	return y.handle(op, c, g.inner(y.layout))
}

// positioned returns an int64 vector of the n numbers start, start+step, … on like's device.
func positioned(c *Scope, like *Tensor, n, start, step int) *Tensor {
	m := c.On(like.st.dev).Typed(dtype.I64)
	return m.Arange(n).MulScalar(float64(step)).AddScalar(float64(start))
}
