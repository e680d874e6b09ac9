package tensor

import "github.com/flambeau-go/flambeau/dtype"

// FractionalPoolOptions say which windows a fractional maximum pool uses. Each list has either one
// number for all spatial dimensions, or one number for each. Kernel and either Size or Ratio must
// be given.
type FractionalPoolOptions struct {
	Kernel []int // size of the windows in each dimension
	Size   []int // size of the result
	// ratio of the result's size to the input's, between 0 and 1; the size is rounded down
	Ratio []float64
	// Samples are numbers in [0, 1) of the input's type, one for each spatial dimension: [n,
	// channels, 2] or [n, channels, 3]. n is 1 for an input without a batch. They decide the
	// positions of the windows. In two dimensions the first sample is for the width and the second
	// for the height. In three dimensions the order is depth, height, width. If Samples is nil,
	// they are drawn from the generator of the input's scope.
	Samples *Tensor
}

// FractionalMaxPool2d returns the greatest element of each window of x, [n, channels, height,
// width] or [channels, height, width], and its position, int64: row·width + column. The distances
// between windows are random (B. Graham, arXiv:1412.6071). With a sample u, window i of m begins at
// ⌊(i+u)·α⌋ - ⌊u·α⌋ for α = (size - kernel)/(m - 1), and the last window ends at the input's end.
// NaN and gradients are as for [Tensor.MaxPool1d].
func (x *Tensor) FractionalMaxPool2d(o FractionalPoolOptions) (values, indices *Tensor) {
	return x.fractionalMax("fractional_max_pool2d", 2, o)
}

// FractionalMaxPool3d is [Tensor.FractionalMaxPool2d] in three dimensions: x is [n, channels,
// depth, height, width] or the same without n.
func (x *Tensor) FractionalMaxPool3d(o FractionalPoolOptions) (values, indices *Tensor) {
	return x.fractionalMax("fractional_max_pool3d", 3, o)
}

func (x *Tensor) fractionalMax(op string, rank int, o FractionalPoolOptions) (values, indices *Tensor) {
	x.checkSpatial(op, rank)
	x.needsFloat(op)
	if x.Rank() == rank+1 {
		values, indices = x.Unsqueeze(0).fractionalMax(op, rank, o)
		defer values.Free() // the returned views keep the memory
		defer indices.Free()
		return values.Squeeze(0), indices.Squeeze(0)
	}
	g := x.fractionalGrid(op, rank, o)
	lead := x.layout.Shape.Head(2)
	in := []*Tensor{x}
	if u := o.Samples; u != nil {
		in = append(in, u)
		sameDevice(op, in)
		if u.layout.Shape != lead.Append(rank) || u.dtype != x.dtype {
			fail(op, ErrShape, in, "samples are %v of shape %v, not %v of shape %v", x.dtype, lead.Append(rank), u.dtype, u.Shape())
		}
	}
	c := youngest(op, in).child()
	defer c.recycle()
	c.modes.noGrad = true
	seen := x.detachedIn(c)
	u := o.Samples
	if u == nil {
		u = c.On(x.st.dev).Typed(x.dtype.Compute()).Rand(lead.Append(rank).Slice()...)
	} else {
		u = u.detachedIn(c).Cast(x.dtype.Compute())
	}
	var at *Tensor // positions of the elements that windows cover: [n, c, out…, kernel…]
	strides := g.strides()
	for i := range rank {
		sample := i
		if rank == 2 { // torch's first sample is for the width
			sample = 1 - i
		}
		start := g.fractionalStarts(c, u.Select(2, sample), i) // start has the shape [n, c, out]
		entries := start.Unsqueeze(3).Add(positioned(c, x, g.kernel[i], 0, 1)).MulScalar(float64(strides.At(i)))
		sh := lead.Append(onesOf(2*rank).Slice()...).With(2+i, g.out[i]).With(2+rank+i, g.kernel[i])
		if entries = entries.reshape(sh); at == nil {
			at = entries
		} else {
			at = at.Add(entries)
		}
	}
	to := g.shaped(x.Dim(0), x.Dim(1), g.out)
	at = at.reshape(to.Append(g.taps()))
	var most, place *Tensor
	if to.Size() == 0 {
		most, place = alloc(op, c, x.st.dev, x.dtype, to), alloc(op, c, x.st.dev, dtype.I64, to)
	} else {
		windows := seen.reshape(lead.Append(x.Size()/lead.Size())).Gather(2, at.reshape(lead.Append(at.Size()/lead.Size()))).reshape(at.layout.Shape)
		lost := windows.IsNaN() // a window with a NaN has its last NaN as the maximum
		last := lost.Cast(dtype.I64).Flip(-1).Argmax(-1).RSubScalar(float64(g.taps() - 1))
		tap := Where(lost.Any(-1), last, windows.Argmax(-1)).Unsqueeze(-1)
		most, place = windows.Gather(-1, tap).Squeeze(-1), at.Gather(-1, tap).Squeeze(-1)
	}
	c.close([]*Tensor{most, place}, false)
	if !wantsGrad(op, x.scope, []*Tensor{x}) {
		return most, place
	}
	values = Apply(maxFunc{op: op}, x, most, place)
	most.Free()
	return values, place
}

// fractionalGrid returns the geometry of a fractional pool, without the positions of its windows.
func (x *Tensor) fractionalGrid(op string, rank int, o FractionalPoolOptions) grid {
	in := []*Tensor{x}
	switch {
	case len(o.Kernel) == 0:
		fail(op, ErrValue, in, "no size of the kernel is given")
	case (len(o.Size) == 0) == (len(o.Ratio) == 0):
		fail(op, ErrValue, in, "needs the size of the result, or its ratio to that of the input, and not both")
	case len(o.Ratio) > 1 && len(o.Ratio) != rank:
		fail(op, ErrValue, in, "%d ratios for %d dimensions; give one for all, or one for each", len(o.Ratio), rank)
	}
	g := grid{rank: rank, kernel: sizesFor(op, in, "kernel", rank, o.Kernel, 1, 1), out: sizesFor(op, in, "the result", rank, o.Size, 1, 1)}
	for i := range rank {
		g.in[i], g.stride[i], g.dilation[i] = x.Dim(i-rank), 1, 1
		if len(o.Ratio) > 0 {
			r := o.Ratio[min(i, len(o.Ratio)-1)]
			if !(r > 0 && r < 1) {
				fail(op, ErrValue, in, "a ratio is %v, it must be between 0 and 1", r)
			}
			g.out[i] = int(float64(g.in[i]) * r)
		}
		if g.out[i] < 1 || g.out[i]+g.kernel[i]-1 > g.in[i] {
			fail(op, ErrShape, in, "%d windows of %d do not lie in an input of %d, in dimension %d", g.out[i], g.kernel[i], g.in[i], i-rank)
		}
	}
	if x.Dim(1) == 0 {
		fail(op, ErrShape, in, "there are no channels; the shape is %v", x.Shape())
	}
	return g
}

// fractionalStarts returns the first entries of the windows of dimension i, int64 [n, c, out], for
// samples u [n, c]. It rounds after each operation, in the type of the samples, as torch does.
func (g *grid) fractionalStarts(c *Scope, u *Tensor, i int) *Tensor {
	free := g.in[i] - g.kernel[i]
	last := c.On(u.st.dev).Typed(dtype.I64).Full(float64(free), u.Dim(0), u.Dim(1), 1)
	if g.out[i] == 1 {
		return last
	}
	alpha := float64(free) / float64(g.out[i]-1)
	if u.dtype == dtype.F32 {
		alpha = float64(float32(free) / float32(g.out[i]-1))
	}
	u = u.Unsqueeze(2)
	n := c.On(u.st.dev).Typed(u.dtype).Arange(g.out[i] - 1)
	first := u.Add(n).MulScalar(alpha).Cast(dtype.I64).Sub(u.MulScalar(alpha).Cast(dtype.I64))
	return Cat(2, first, last)
}
