package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A grid says how windows move over the spatial dimensions of a tensor, the last ones of [N, C, …]:
// what convolutions and pools have in common. It is a value and may be compared. What a window
// reads at one place is a tap.
type grid struct {
	rank                         int // number of spatial dimensions, 1 to 3
	in, kernel, stride, dilation [3]int
	before, behind               [3]int // padding
	out                          [3]int // number of windows
}

// each reads sizes given once for all spatial dimensions, or one for each; none are the default.
func each(op string, x []*Tensor, what string, rank int, given []int, otherwise, least int) (v [3]int) {
	if len(given) > 1 && len(given) != rank {
		fail(op, ErrValue, x, "%d sizes of %s for %d dimensions; give one for all, or one for each", len(given), what, rank)
	}
	for i := range rank {
		switch {
		case len(given) == 0:
			v[i] = otherwise
		case len(given) == 1:
			v[i] = given[0]
		default:
			v[i] = given[i]
		}
		if v[i] < least || v[i] > math.MaxInt32 {
			fail(op, ErrValue, x, "%s %v: each must be at least %d and less than 2³¹", what, given, least)
		}
	}
	return v
}

// span is the extent of a window in dimension i, with the gaps that dilation leaves.
func (g *grid) span(i int) int { return g.dilation[i]*(g.kernel[i]-1) + 1 }

// wide is the padded size of dimension i.
func (g *grid) wide(i int) int { return g.before[i] + g.in[i] + g.behind[i] }

func (g *grid) list(v [3]int) shape.Dims { return shape.Of(v[:g.rank]...) }

// taps is the number of elements of a window, places that of windows.
func (g *grid) taps() int   { return g.list(g.kernel).Size() }
func (g *grid) places() int { return g.list(g.out).Size() }

// single reports that windows are single elements, all of them in order: the input is its own
// matrix of columns.
func (g *grid) single() bool {
	for i := range g.rank {
		if g.kernel[i] != 1 || g.stride[i] != 1 || g.wide(i) != g.in[i] {
			return false
		}
	}
	return true
}

// disjoint reports that no element belongs to two windows.
func (g *grid) disjoint() bool {
	for i := range g.rank {
		if g.stride[i] < g.span(i) && g.out[i] > 1 {
			return false
		}
	}
	return true
}

// bare reports that there is no padding.
func (g *grid) bare() bool { return g.before == [3]int{} && g.behind == [3]int{} }

// shaped returns [n, c] and the given spatial sizes.
func (g *grid) shaped(n, c int, spatial [3]int) shape.Dims {
	return shape.Of(n, c).Append(spatial[:g.rank]...)
}

// padded is the shape [n, c, …] with its padding.
func (g *grid) padded(n, c int) shape.Dims {
	s := shape.Of(n, c)
	for i := range g.rank {
		s = s.Append(g.wide(i))
	}
	return s
}

// inner is the region of a padded tensor [n, c, …] without its padding.
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

// windows is the layout of what all windows see of a padded tensor [n, c, …]: [c, kernel…, n,
// out…], or [n, c, kernel…, out…] if the batch is to come first. Windows that overlap share places.
func (g *grid) windows(l shape.Layout, batchFirst bool) shape.Layout {
	w := shape.Layout{Offset: l.Offset}
	add := func(n, stride int) { w.Shape, w.Strides = w.Shape.Append(n), w.Strides.Append(stride) }
	if batchFirst {
		add(l.Shape.At(0), l.Strides.At(0))
	}
	add(l.Shape.At(1), l.Strides.At(1))
	for i := range g.rank {
		add(g.kernel[i], g.dilation[i]*l.Strides.At(2+i))
	}
	if !batchFirst {
		add(l.Shape.At(0), l.Strides.At(0))
	}
	for i := range g.rank {
		add(g.out[i], g.stride[i]*l.Strides.At(2+i))
	}
	return w
}

// tap is the layout of element k of every window of a padded tensor [n, c, …]: [n, c, out…].
func (g *grid) tap(l shape.Layout, k int) shape.Layout {
	for i := g.rank - 1; i >= 0; i-- {
		l.Offset += k % g.kernel[i] * g.dilation[i] * l.Strides.At(2+i)
		k /= g.kernel[i]
		l.Shape = l.Shape.With(2+i, g.out[i])
		l.Strides = l.Strides.With(2+i, g.stride[i]*l.Strides.At(2+i))
	}
	return l
}

// pad sets x, [n, c, …], into a new tensor of scope c that is fill around it; x itself where there
// is no padding.
func (g *grid) pad(op string, c *Scope, x *Tensor, fill float64) *Tensor {
	if g.bare() {
		return x
	}
	y := alloc(op, c, x.st.dev, x.dtype, g.padded(x.Dim(0), x.Dim(1))).fill(fill)
	y.handle(op, c, g.inner(y.layout)).store(op, c, x)
	return y
}

// onesOf returns n dimensions of size 1.
func onesOf(n int) (s shape.Dims) {
	for range n {
		s = s.Append(1)
	}
	return s
}

// addWindows adds to every tap k of y, a padded tensor [n, c, …], its part: the adjoint of windows.
// Taps are added one after the other, so that the order of additions is fixed.
func (g *grid) addWindows(op string, c *Scope, y *Tensor, part func(k int) *Tensor) {
	for k := range g.taps() {
		to := y.handle(op, c, g.tap(y.layout, k))
		from := part(k)
		run(op, c, addProgram(y.dtype, from.dtype), to, []*Tensor{to, from}, nil)
		to.Free()
		from.Free()
	}
	y.st.version.Add(1)
}

// cut returns y, a padded tensor, without its padding: y itself where there is none.
func (g *grid) cut(op string, c *Scope, y *Tensor) *Tensor {
	if g.bare() {
		return y
	}
	return y.handle(op, c, g.inner(y.layout))
}

// positioned returns an int64 vector of n numbers start, start+step, … on like's device.
func positioned(c *Scope, like *Tensor, n, start, step int) *Tensor {
	m := c.On(like.st.dev).Typed(dtype.I64)
	return m.Arange(n).MulScalar(float64(step)).AddScalar(float64(start))
}
