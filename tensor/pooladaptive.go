package tensor

import (
	"github.com/flambeau-go/flambeau/shape"
)

// AdaptiveAvgPool1d returns the means of windows of the floating point tensor x, [n, channels,
// length] or [channels, length]. The parameter size is the number of windows. Window i of m covers
// entries ⌊i·length/m⌋ … ⌈(i+1)·length/m⌉-1. So windows may overlap, and their sizes may differ by
// one. A size of -1 keeps the input's size. 16-bit floats are added in float32.
func (x *Tensor) AdaptiveAvgPool1d(size int) *Tensor {
	return x.adaptiveAvg("adaptive_avg_pool1d", 1, []int{size})
}

// AdaptiveAvgPool2d is [Tensor.AdaptiveAvgPool1d] in two dimensions. size holds one number for both
// dimensions, or one number for each.
func (x *Tensor) AdaptiveAvgPool2d(size ...int) *Tensor {
	return x.adaptiveAvg("adaptive_avg_pool2d", 2, size)
}

// AdaptiveAvgPool3d is [Tensor.AdaptiveAvgPool1d] in three dimensions. size holds one number for
// all dimensions, or one number for each.
func (x *Tensor) AdaptiveAvgPool3d(size ...int) *Tensor {
	return x.adaptiveAvg("adaptive_avg_pool3d", 3, size)
}

// AdaptiveMaxPool1d returns the maxima of windows of x, and their positions in the input's length,
// int64. The parameter size is the number of windows. The windows are those of
// [Tensor.AdaptiveAvgPool1d]. Values and gradients are as for [Tensor.MaxPool1d].
func (x *Tensor) AdaptiveMaxPool1d(size int) (values, indices *Tensor) {
	return x.adaptiveMax("adaptive_max_pool1d", 1, []int{size})
}

// AdaptiveMaxPool2d is [Tensor.AdaptiveMaxPool1d] in two dimensions. indices are row·width +
// column.
func (x *Tensor) AdaptiveMaxPool2d(size ...int) (values, indices *Tensor) {
	return x.adaptiveMax("adaptive_max_pool2d", 2, size)
}

// AdaptiveMaxPool3d is [Tensor.AdaptiveMaxPool1d] in three dimensions. indices are positions in the
// flattened spatial dimensions.
func (x *Tensor) AdaptiveMaxPool3d(size ...int) (values, indices *Tensor) {
	return x.adaptiveMax("adaptive_max_pool3d", 3, size)
}

// adaptiveGrid returns a grid in which every window has the size of the largest window. even
// reports whether the windows of x really have this size and follow each other without overlap.
func (x *Tensor) adaptiveGrid(op string, rank int, size []int) (g grid, even bool) {
	x.checkSpatial(op, rank)
	in := []*Tensor{x}
	if len(size) == 0 {
		fail(op, ErrValue, in, "no size of the result is given")
	}
	g.rank, even = rank, true
	g.out = sizesFor(op, in, "the result", rank, size, 1, -1)
	for i := range rank {
		n := x.Dim(i - rank)
		if g.out[i] < 0 {
			g.out[i] = n
		}
		if n == 0 {
			fail(op, ErrShape, in, "dimension %d has no elements", i-rank)
		}
		g.in[i], g.dilation[i], g.kernel[i] = n, 1, 1
		for k := range g.out[i] {
			start, end := adaptiveWindow(k, n, g.out[i])
			g.kernel[i] = max(g.kernel[i], end-start)
		}
		g.stride[i] = g.kernel[i]
		even = even && (g.out[i] == 0 || n%g.out[i] == 0)
	}
	return g, even
}

// adaptiveWindow returns the range start … end-1 of the entries that window k of m windows covers,
// for n entries in total.
func adaptiveWindow(k, n, m int) (start, end int) {
	return k * n / m, ((k+1)*n + m - 1) / m
}

// adaptiveStarts returns, for each window of dimension i, its first entry and its size, as int64
// vectors.
func (g *grid) adaptiveStarts(c *Scope, x *Tensor, i int) (start, size *Tensor) {
	n, m := float64(g.in[i]), float64(g.out[i])
	start = positioned(c, x, g.out[i], 0, g.in[i]).FloorDivideScalar(m)
	end := positioned(c, x, g.out[i], g.in[i], g.in[i]).AddScalar(m - 1).FloorDivideScalar(m)
	return start, end.Sub(start).ClampMax(n)
}

// adaptiveEntries returns the indices of the entries of dimension i that the windows cover, one
// window after the other. Each window lists as many indices as the largest one. A smaller window is
// padded with the index after the input's last entry.
func (g *grid) adaptiveEntries(c *Scope, x *Tensor, i int) *Tensor {
	start, size := g.adaptiveStarts(c, x, i)
	tap := positioned(c, x, g.kernel[i], 0, 1)
	at := start.Unsqueeze(1).Add(tap)
	return Where(tap.Lt(size.Unsqueeze(1)), at, at.FullLike(float64(g.in[i]))).reshape(shape.Of(g.out[i] * g.kernel[i]))
}

func (x *Tensor) adaptiveAvg(op string, rank int, size []int) *Tensor {
	x.needsFloat(op)
	g, even := x.adaptiveGrid(op, rank, size)
	return batchedConv(x, rank, func(x *Tensor) *Tensor {
		if even {
			return Apply(&avgFunc{averages{grid: g, op: op}}, x)
		}
		return within(x.scope, func(c *Scope) *Tensor {
			y := x.In(c).Cast(x.dtype.Compute())
			for i := range rank {
				d := 2 + i
				// add one zero entry at the end, which smaller windows read in place of missing
				// entries
				pads := make([]int, 2*(x.Rank()-d))
				pads[len(pads)-1] = 1
				y = y.Pad(0, pads...).indexSelect(op, d, g.adaptiveEntries(c, x, i))
				y = y.reshape(y.layout.Shape.Remove(d).Insert(d, g.out[i], g.kernel[i])).Sum(d + 1)
				_, size := g.adaptiveStarts(c, x, i)
				y = y.Div(g.broadcastVector(size.Cast(y.dtype), i))
			}
			return y.Cast(x.dtype)
		})
	})
}

func (x *Tensor) adaptiveMax(op string, rank int, size []int) (values, indices *Tensor) {
	x.needsFloat(op)
	g, even := x.adaptiveGrid(op, rank, size)
	if x.Rank() == rank+2 {
		x.hasChannels(op, rank)
	}
	if x.Rank() == rank+1 {
		values, indices = x.Unsqueeze(0).adaptiveMaxima(op, g, even)
		defer values.Free() // the returned views keep the memory
		defer indices.Free()
		return values.Squeeze(0), indices.Squeeze(0)
	}
	return x.adaptiveMaxima(op, g, even)
}

func (x *Tensor) adaptiveMaxima(op string, g grid, even bool) (values, indices *Tensor) {
	if even {
		return maxima(op, x, g)
	}
	// Copy the entries of all windows side by side, and pool them as windows of equal size. Then
	// map the positions of the maxima back to positions in x.
	c := x.scope.child()
	defer c.recycle()
	c.modes.noGrad = true
	seen := x.detachedIn(c)
	var from *Tensor // maps each position in the tensor seen to its position in x
	strides, wide := g.strides(), g
	for i := range g.rank {
		d := 2 + i
		pads := make([]int, 2*(x.Rank()-d))
		pads[len(pads)-1] = 1
		entries := g.adaptiveEntries(c, x, i)
		seen = seen.Pad(leastNumber(x.dtype), pads...).indexSelect(op, d, entries)
		wide.in[i] = g.out[i] * g.kernel[i]
		at := entries.MulScalar(float64(strides.At(i))).reshape(shape.Of(wide.in[i]).Append(onesOf(g.rank - 1 - i).Slice()...))
		if from == nil {
			from = at
		} else {
			from = from.Add(at)
		}
	}
	most, place := maxima(op, seen, wide)
	place = from.reshape(shape.Of(from.Size())).indexSelect(op, 0, place.reshape(shape.Of(place.Size()))).reshape(place.layout.Shape)
	c.close([]*Tensor{most, place}, false)
	if !wantsGrad(op, x.scope, []*Tensor{x}) {
		return most, place
	}
	values = Apply(maxFunc{op: op}, x, most, place)
	most.Free()
	return values, place
}
