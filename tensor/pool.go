package tensor

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// MaxPoolOptions say how the windows of a maximum pool move over its input. Each list has either
// one number for all spatial dimensions, or one number for each. Kernel must be given. The zero
// values of the other fields are torch's defaults.
type MaxPoolOptions struct {
	Kernel []int // size of the windows
	// distance between windows; nil means Kernel, so that windows do not overlap
	Stride []int
	// number of positions added on both sides of the input, at most half of the kernel; nil means
	// 0. The maximum of a window is never taken from an added position
	Padding  []int
	Dilation []int // distance between the elements of a window; nil means 1
	// windows may extend beyond the end if they begin in the input or in the padding before it
	CeilMode bool
}

// AvgPoolOptions say how the windows of an average pool move over its input; see [MaxPoolOptions].
// Kernel must be given. The zero values of the other fields are torch's defaults.
type AvgPoolOptions struct {
	Kernel []int // size of the windows
	// distance between windows; nil means Kernel, so that windows do not overlap
	Stride  []int
	Padding []int // zeros on both sides, at most half of the kernel; nil means 0
	// windows may extend beyond the end if they begin in the input or in the padding before it
	CeilMode bool
	// ExcludePadding averages only over elements of the input, as torch's count_include_pad=False
	// does.
	ExcludePadding bool
	// number by which each sum is divided, whatever the window contains; 0 means the number of
	// elements
	Divisor int
}

// MaxPool1d returns the greatest element of each window of x, [n, channels, length] or [channels,
// length], of any type except bool. Let p be the padding on both sides, and w the extent of a
// window, dilation·(kernel-1) + 1. There are (length + 2p - w)/stride + 1 windows, rounded down,
// or up with CeilMode. NaN counts as the greatest number. The gradient goes to one element of a
// window: the last NaN, or the first of several equal maxima. Dilation and padding can make a
// window without an element of x. Such a window is an error here, but not in torch.
func (x *Tensor) MaxPool1d(o MaxPoolOptions) *Tensor {
	return x.maxPoolAlone("max_pool1d", 1, o)
}

// MaxPool2d is [Tensor.MaxPool1d] in two dimensions: x is [n, channels, height, width] or
// [channels, height, width].
func (x *Tensor) MaxPool2d(o MaxPoolOptions) *Tensor {
	return x.maxPoolAlone("max_pool2d", 2, o)
}

// MaxPool3d is [Tensor.MaxPool1d] in three dimensions: x is [n, channels, depth, height, width] or
// the same without n.
func (x *Tensor) MaxPool3d(o MaxPoolOptions) *Tensor {
	return x.maxPoolAlone("max_pool3d", 3, o)
}

// MaxPool1dIndices does what [Tensor.MaxPool1d] does, and also returns the positions of the maxima
// in the input's length, int64.
func (x *Tensor) MaxPool1dIndices(o MaxPoolOptions) (values, indices *Tensor) {
	return x.maxPool("max_pool1d", 1, o)
}

// MaxPool2dIndices does what [Tensor.MaxPool2d] does, and also returns the positions of the maxima,
// int64: row·width + column.
func (x *Tensor) MaxPool2dIndices(o MaxPoolOptions) (values, indices *Tensor) {
	return x.maxPool("max_pool2d", 2, o)
}

// MaxPool3dIndices does what [Tensor.MaxPool3d] does, and also returns the positions of the maxima
// in the flattened spatial dimensions, int64.
func (x *Tensor) MaxPool3dIndices(o MaxPoolOptions) (values, indices *Tensor) {
	return x.maxPool("max_pool3d", 3, o)
}

// AvgPool1d returns the mean of each window of x, [n, channels, length] or [channels, length]. x is
// floating point or int64. For int64 the means lose their fractions. There are (length + 2·padding
// - kernel)/stride + 1 windows, rounded down, or up with CeilMode. Zeros of the padding count as
// elements unless ExcludePadding is set. The part of a window beyond the padding never counts.
// 16-bit floats are added in float32.
func (x *Tensor) AvgPool1d(o AvgPoolOptions) *Tensor { return x.avgPool("avg_pool1d", 1, o) }

// AvgPool2d is [Tensor.AvgPool1d] in two dimensions: x is [n, channels, height, width] or
// [channels, height, width].
func (x *Tensor) AvgPool2d(o AvgPoolOptions) *Tensor { return x.avgPool("avg_pool2d", 2, o) }

// AvgPool3d is [Tensor.AvgPool1d] in three dimensions: x is [n, channels, depth, height, width] or
// the same without n.
func (x *Tensor) AvgPool3d(o AvgPoolOptions) *Tensor { return x.avgPool("avg_pool3d", 3, o) }

// LPPool1d returns the p-norm (Σ xᵖ)^(1/p) of each window of x. As in
// torch.nn.functional.lp_pool1d, x itself is raised to the power, not its absolute value. o may
// only have Kernel, Stride and CeilMode. If a window extends beyond the end, its sum is the mean of
// the existing terms times the size of the kernel. The gradient of a window of zeros is NaN, as in
// torch.
func (x *Tensor) LPPool1d(p float64, o AvgPoolOptions) *Tensor { return x.lpPool("lp_pool1d", 1, p, o) }

// LPPool2d is [Tensor.LPPool1d] in two dimensions.
func (x *Tensor) LPPool2d(p float64, o AvgPoolOptions) *Tensor { return x.lpPool("lp_pool2d", 2, p, o) }

// LPPool3d is [Tensor.LPPool1d] in three dimensions.
func (x *Tensor) LPPool3d(p float64, o AvgPoolOptions) *Tensor { return x.lpPool("lp_pool3d", 3, p, o) }

func (x *Tensor) poolGrid(op string, rank int, kernel, stride, padding, dilation []int, ceil bool) (g grid) {
	x.checkSpatial(op, rank)
	in := []*Tensor{x}
	if len(kernel) == 0 {
		fail(op, ErrValue, in, "no size of the kernel is given")
	}
	x.hasChannels(op, rank)
	g.rank = rank
	g.kernel = sizesFor(op, in, "kernel", rank, kernel, 1, 1)
	g.stride = sizesFor(op, in, "stride", rank, stride, 1, 1)
	if len(stride) == 0 {
		g.stride = g.kernel
	}
	g.before = sizesFor(op, in, "padding", rank, padding, 0, 0)
	g.dilation = sizesFor(op, in, "dilation", rank, dilation, 1, 1)
	for i := range rank {
		g.in[i] = x.Dim(i - rank)
		pad := g.before[i]
		if pad > g.kernel[i]/2 {
			fail(op, ErrValue, in, "a padding of %d is more than half of the kernel, %d", pad, g.kernel[i])
		}
		room := g.in[i] + 2*pad - g.span(i)
		if g.in[i] == 0 || room < 0 && !(ceil && room > -g.stride[i]) {
			fail(op, ErrShape, in, "a window of %d (kernel %d, dilation %d) is larger than the input of %d with padding in dimension %d: %d",
				g.span(i), g.kernel[i], g.dilation[i], g.in[i], i-rank, g.in[i]+2*pad)
		}
		if ceil {
			room += g.stride[i] - 1
		}
		g.out[i] = room/g.stride[i] + 1
		if ceil && (g.out[i]-1)*g.stride[i] >= g.in[i]+pad {
			g.out[i]-- // the last window would begin after the end of the input
		}
		g.behind[i] = max(pad, (g.out[i]-1)*g.stride[i]+g.span(i)-g.in[i]-pad)
		if g.out[i] < 1 {
			fail(op, ErrShape, in, "no window begins in dimension %d, of size %d", i-rank, g.in[i])
		}
	}
	return g
}

// hasChannels checks that the number of channels is not 0. rank is the number of spatial dimensions
// after the channels.
func (x *Tensor) hasChannels(op string, rank int) {
	if x.Dim(-1-rank) == 0 {
		fail(op, ErrShape, []*Tensor{x}, "there are no channels in shape %v; only the batch may be empty", x.Shape())
	}
}

// checkSpatial panics unless x has rank spatial dimensions, a dimension of channels before them,
// and perhaps a batch before that.
func (x *Tensor) checkSpatial(op string, rank int) {
	x.use(op)
	if x.Rank() != rank+1 && x.Rank() != rank+2 {
		fail(op, ErrShape, []*Tensor{x}, "needs an input of %d dimensions, or %d without a batch, it has shape %v", rank+2, rank+1, x.Shape())
	}
}

func (x *Tensor) needsFloat(op string) {
	x.use(op)
	if !x.dtype.IsFloat() {
		e := newError(op, ErrType, []*Tensor{x}, "needs a floating point tensor, not "+x.dtype.String())
		panic(e.hint("use Float"))
	}
}

// needsMean checks that x has a type that pools can average: floating point or int64.
func (x *Tensor) needsMean(op string) {
	x.use(op)
	if !x.dtype.IsFloat() && x.dtype != dtype.I64 {
		e := newError(op, ErrType, []*Tensor{x}, "needs a floating point tensor or int64, not "+x.dtype.String())
		panic(e.hint("use Float or Long"))
	}
}

// maxGrid returns the grid of a maximum pool. It checks that each window has an element of x.
func (x *Tensor) maxGrid(op string, rank int, o MaxPoolOptions) grid {
	g := x.poolGrid(op, rank, o.Kernel, o.Stride, o.Padding, o.Dilation, o.CeilMode)
	if x.dtype == boolType {
		fail(op, ErrType, []*Tensor{x}, "is not defined for bool")
	}
	for i := range rank {
		for k := range g.out[i] {
			at := k*g.stride[i] - g.before[i] // position of the first element of the window
			if at < 0 {
				at += (g.dilation[i] - 1 - at) / g.dilation[i] * g.dilation[i]
			}
			if at >= g.in[i] {
				e := newError(op, ErrShape, []*Tensor{x}, fmt.Sprintf("window %d of dimension %d, with a dilation of %d, has no element of the input", k, i-rank, g.dilation[i]))
				panic(e.hint("use less padding"))
			}
		}
	}
	return g
}

func (x *Tensor) maxPoolAlone(op string, rank int, o MaxPoolOptions) *Tensor {
	g := x.maxGrid(op, rank, o)
	return batchedConv(x, rank, func(x *Tensor) *Tensor { return maximaAlone(op, x, g) })
}

func (x *Tensor) maxPool(op string, rank int, o MaxPoolOptions) (values, indices *Tensor) {
	g := x.maxGrid(op, rank, o)
	if x.Rank() == rank+2 {
		return maxima(op, x, g)
	}
	values, indices = maxima(op, x.Unsqueeze(0), g)
	defer values.Free() // the returned views keep the memory
	defer indices.Free()
	return values.Squeeze(0), indices.Squeeze(0)
}

func (x *Tensor) avgPool(op string, rank int, o AvgPoolOptions) *Tensor {
	x.needsMean(op)
	g := x.poolGrid(op, rank, o.Kernel, o.Stride, o.Padding, nil, o.CeilMode)
	f := averages{grid: g, op: op, exclude: o.ExcludePadding, divisor: o.Divisor}
	return batchedConv(x, rank, func(x *Tensor) *Tensor { return Apply(&avgFunc{f}, x) })
}

func (x *Tensor) lpPool(op string, rank int, p float64, o AvgPoolOptions) *Tensor {
	x.needsFloat(op)
	if p == 0 || math.IsNaN(p) {
		fail(op, ErrValue, []*Tensor{x}, "there is no norm of order %v", p)
	}
	if len(o.Padding) > 0 || o.ExcludePadding || o.Divisor != 0 {
		fail(op, ErrValue, []*Tensor{x}, "takes a kernel, a stride and CeilMode only; pad before")
	}
	return within(x.scope, func(c *Scope) *Tensor {
		y := x.In(c).PowScalar(p).avgPool(op, rank, o)
		taps := 1
		for _, k := range sizesFor(op, []*Tensor{x}, "kernel", rank, o.Kernel, 1, 1) {
			taps *= max(1, k)
		}
		return y.Sign().Mul(y.Abs().Relu()).MulScalar(float64(taps)).PowScalar(1 / p)
	})
}

// averages is the geometry of an average pool.
type averages struct {
	grid
	op      string
	exclude bool
	divisor int
}

// divide divides the sums of windows, [n, c, out…], by the number of elements of each window.
func (a *averages) divide(c *Scope, y *Tensor) *Tensor {
	by := func(n int) *Tensor {
		if y.dtype.IsFloat() {
			return y.DivScalar(float64(n))
		}
		return y.TruncDivideScalar(float64(n))
	}
	if a.divisor != 0 {
		return by(a.divisor)
	}
	even := true // true if all windows have the same number of elements
	for i := range a.rank {
		even = even && a.wide(i) == a.in[i] || even && !a.exclude && a.behind[i] <= a.before[i]
	}
	if even {
		return by(a.taps())
	}
	var count *Tensor
	for i := range a.rank {
		start := positioned(c, y, a.out[i], -a.before[i], a.stride[i])
		end := start.AddScalar(float64(a.kernel[i])).ClampMax(float64(a.in[i] + a.before[i]))
		if a.exclude {
			start, end = start.ClampMin(0), end.ClampMax(float64(a.in[i]))
		}
		n := end.Sub(start).reshape(shape.Of(a.out[i]).Append(onesOf(a.rank - 1 - i).Slice()...))
		if count == nil {
			count = n
		} else {
			count = count.Mul(n)
		}
	}
	if !y.dtype.IsFloat() {
		return y.TruncDivide(count)
	}
	return y.Div(count.Cast(y.dtype))
}

type avgFunc struct{ averages }

func (f *avgFunc) Name() string { return f.op }

func (f *avgFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, s := in[0], c.Scope()
	if f.taps() > fewTaps {
		if y := f.sumWindows(f.op, s, x); y != nil {
			return f.divide(s, y)
		}
	}
	padded := f.pad(f.op, s, x, 0)
	n := x.Dim(0)
	if f.taps() <= fewTaps {
		return f.divide(s, f.sumTaps(f.op, s, padded, nil)).Cast(x.dtype)
	}
	seen := padded.handle(f.op, s, f.windows(padded.layout))
	over := make([]int, f.rank)
	for i := range over {
		over[i] = 2 + i
	}
	return f.divide(s, sumOf(f.op, s, seen, over)).Cast(x.dtype).reshape(f.shaped(n, x.Dim(1), f.out))
}

// sumOf returns the sums of x over the given dimensions, in the type in which x is computed.
func sumOf(op string, s *Scope, x *Tensor, over []int) *Tensor {
	mask, _ := x.axes(op, over)
	kept, out, _ := reducedShapes(x.layout.Shape, mask, false)
	p, _ := sumOp.program(x)
	y := alloc(op, s, x.st.dev, x.dtype.Compute(), out)
	runReduce(op, s, p, y, kept, []*Tensor{x}, x.layout.Shape, nil)
	return y
}

func (f *avgFunc) VJP(_ *Context, g *Tensor) []*Tensor {
	return []*Tensor{Apply(&avgGradFunc{f.averages}, g)}
}

// avgGradFunc computes the gradient of avgFunc: each element of a window gets its share of the
// gradient of the mean.
type avgGradFunc struct{ averages }

func (f *avgGradFunc) Name() string { return f.op + ".grad" }

func (f *avgGradFunc) Forward(c *Context, in []*Tensor) *Tensor {
	g, s := in[0], c.Scope()
	share := f.divide(s, g.Cast(g.dtype.Compute()))
	y := alloc(f.op, s, g.st.dev, g.dtype, f.shaped(g.Dim(0), g.Dim(1), f.in))
	f.fold(f.op, s, y, f.repeated(f.op, s, share), nil, false)
	return y
}

func (f *avgGradFunc) VJP(_ *Context, x *Tensor) []*Tensor {
	return []*Tensor{Apply(&avgFunc{f.averages}, x)}
}
