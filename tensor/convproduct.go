package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// convolution is the geometry of a convolution of x, [n, channels, in…], with a weight [outputs, channels/groups, kernel…].
// Three functions of it are each other's gradients: the convolution itself, what carries a gradient back to x (a transposed
// convolution), and what carries it to the weight. All are matrix products with the columns of x: what its windows see. A device that is a
// [device.Convolver] makes no columns; what is written here is its reference.
type convolution struct {
	grid
	channels, outputs, groups int
	op                        string // as the user called it
}

// manyPlaces is the number of windows from which on the product of one sample is large enough by itself; with fewer, samples
// stand side by side in the columns, and the result is put in order by a copy.
const manyPlaces = 512

// The columns that exist at one time take up to a part of what input and output take together, within bounds, unless those of one sample
// are larger: on the CPU what its caches may still hold in part, on a GPU so much that the launches are few. A smaller part saves no memory at a
// model's peak, which is elsewhere, and makes a GPU's step many small launches: of models.CNN with 256 images a sixteenth made four times the
// host's time of a half, at the same peak.
const (
	columnPart     = 2
	columnLeast    = 1 << 20
	columnBytes    = 16 << 20
	columnBytesGPU = 256 << 20
)

func (v *convolution) perGroup() int { return v.channels / v.groups }

func (v *convolution) weight() shape.Dims {
	return shape.Of(v.outputs, v.perGroup()).Append(v.list(v.kernel).Slice()...)
}

// samples is the number of samples whose columns are made at once.
func (v *convolution) samples(d device.Device, n, size int) int {
	most := columnBytesGPU
	if d.Info().Kind == "cpu" {
		most = columnBytes
	}
	one := max(1, v.channels*v.taps()*v.places()*size)
	ends := n * (v.channels*v.list(v.in).Size() + v.outputs*v.places()) * size
	return max(1, min(n, min(max(ends/columnPart, columnLeast), most)/one))
}

// batchFirst reports that columns are matrices of single samples.
func (v *convolution) batchFirst() bool { return v.groups == 1 && v.places() >= manyPlaces }

// multiply sets out to the product of a and b, batches of matrices.
func multiply(op string, c *Scope, out, a, b *Tensor) {
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanDirect, op, c, []*Tensor{a, b}))
	}
	stream := c.streamOf(out.st.dev)
	a.st.read(op, stream)
	b.st.read(op, stream)
	out.st.write(op, stream)
	check(op, out.st.dev.MatMul(stream, out.deviceView(), a.deviceView(), b.deviceView()), a, b)
}

// matrices is the weight as [groups, outputs of a group, elements of a window].
func (v *convolution) matrices(w *Tensor) *Tensor {
	return w.reshape(shape.Of(v.groups, v.outputs/v.groups, v.perGroup()*v.taps()))
}

// chunks calls f with the first sample and number of samples of each part of a batch of n, in a scope of its own.
func (v *convolution) chunks(c *Scope, d device.Device, n, size int, f func(c *Scope, at, n int)) {
	step := v.samples(d, n, size)
	for at := 0; at < n; at += step {
		part := c.child()
		func() {
			defer part.recycle()
			f(part, at, min(step, n-at))
		}()
	}
}

// columns returns what the windows of x, samples [n, channels, in…] without a gradient, see: [n, channels·taps, places], or
// [groups, channels of a group·taps, n·places] unless the batch comes first. It is a view of x where that is possible.
func (v *convolution) columns(c *Scope, x *Tensor, batchFirst bool) *Tensor {
	n := x.Dim(0)
	padded := v.pad(v.op, c, x, 0)
	seen := padded.handle(v.op, c, v.windows(padded.layout, batchFirst))
	if batchFirst {
		return seen.reshape(shape.Of(n, v.channels*v.taps(), v.places()))
	}
	return seen.reshape(shape.Of(v.groups, v.perGroup()*v.taps(), n*v.places()))
}

// rows returns samples [n, outputs, out…] as [groups, outputs of a group, n·places], a view for n = 1.
func (v *convolution) rows(y *Tensor) *Tensor {
	return y.Transpose(0, 1).reshape(shape.Of(v.groups, v.outputs/v.groups, y.Dim(0)*v.places()))
}

// forward returns the convolution of x with w.
func (v *convolution) forward(c *Scope, x, w *Tensor) *Tensor {
	n := x.Dim(0)
	y := alloc(v.op, c, x.st.dev, x.dtype, v.shaped(n, v.outputs, v.out))
	if y.Size() == 0 {
		return y
	}
	if d, ok := v.convolver(c, x); ok {
		return v.forwardByKernel(c, d, y, x, w)
	}
	if v.depthwise() {
		return v.sumTaps(v.op, c, v.pad(v.op, c, x, 0), func(k int) *Tensor { return v.ofTap(w, k) }).Contiguous().Cast(x.dtype)
	}
	a := v.matrices(w)
	v.chunks(c, x.st.dev, n, x.dtype.Size(), func(c *Scope, at, n int) {
		part, to := x.In(c).Narrow(0, at, n), y.In(c).Narrow(0, at, n)
		switch {
		case v.batchFirst():
			multiply(v.op, c, to.reshape(shape.Of(n, v.outputs, v.places())), a.expand(shape.Of(n, a.Dim(1), a.Dim(2))), v.columns(c, part, true))
		case n == 1:
			multiply(v.op, c, v.rows(to), a, v.columns(c, part, false))
		default:
			rows := alloc(v.op, c, x.st.dev, x.dtype, shape.Of(v.groups, v.outputs/v.groups, n*v.places()))
			multiply(v.op, c, rows, a, v.columns(c, part, false))
			to.store(v.op, c, rows.reshape(v.shaped(v.outputs, n, v.out)).Transpose(0, 1))
		}
	})
	return y
}

// data returns the gradient of x, given g, that of the result: the transposed convolution of g with w.
func (v *convolution) data(c *Scope, g, w *Tensor) *Tensor {
	n := g.Dim(0)
	y := alloc(v.op, c, g.st.dev, g.dtype, v.shaped(n, v.channels, v.in))
	if y.Size() == 0 {
		return y
	}
	d, kernels := v.convolver(c, g)
	a := v.matrices(w).T()
	if g.Size() == 0 || v.bare() && !v.single() && !kernels {
		y.fill(0)
	}
	if g.Size() == 0 {
		return y
	}
	if kernels {
		return v.byKernel(c, y, g, w, d.ConvolveData)
	}
	if v.depthwise() {
		wide := alloc(v.op, c, g.st.dev, g.dtype, v.padded(n, v.channels)).fill(0)
		v.addTaps(v.op, c, wide, g, func(k int) *Tensor { return v.ofTap(w, k) })
		return v.cut(v.op, c, wide).Contiguous()
	}
	v.chunks(c, g.st.dev, n, g.dtype.Size(), func(c *Scope, at, n int) {
		from, to := g.In(c).Narrow(0, at, n), y.In(c).Narrow(0, at, n)
		wide := to
		if !v.bare() {
			wide = alloc(v.op, c, g.st.dev, g.dtype, v.padded(n, v.channels)).fill(0)
		}
		first := v.batchFirst()
		var columns *Tensor
		if first {
			b := from.reshape(shape.Of(n, v.outputs, v.places()))
			a := a.expand(shape.Of(n, a.Dim(1), a.Dim(2)))
			if v.single() {
				multiply(v.op, c, to.reshape(shape.Of(n, v.channels, v.places())), a, b)
				return
			}
			columns = alloc(v.op, c, g.st.dev, g.dtype, shape.Of(n, v.channels*v.taps(), v.places()))
			multiply(v.op, c, columns, a, b)
		} else {
			columns = alloc(v.op, c, g.st.dev, g.dtype, shape.Of(v.groups, v.perGroup()*v.taps(), n*v.places()))
			multiply(v.op, c, columns, a, v.rows(from))
			if v.single() {
				to.store(v.op, c, columns.reshape(v.shaped(v.channels, n, v.in)).Transpose(0, 1))
				return
			}
		}
		v.addWindows(v.op, c, wide, func(k int) *Tensor {
			if first {
				return columns.reshape(shape.Of(n, v.channels, v.taps(), v.places())).Select(2, k).reshape(v.shaped(n, v.channels, v.out))
			}
			t := columns.reshape(shape.Of(v.channels, v.taps(), n, v.places())).Select(1, k).Transpose(0, 1)
			return t.Unflatten(2, v.list(v.out).Slice()...)
		})
		if wide != to {
			to.store(v.op, c, v.cut(v.op, c, wide))
		}
	})
	return y
}

// gradient returns the gradient of the weight, given the operand x and g, the gradient of the result.
func (v *convolution) gradient(c *Scope, x, g *Tensor) *Tensor {
	shaped := shape.Of(v.groups, v.outputs/v.groups, v.perGroup()*v.taps())
	dw := alloc(v.op, c, x.st.dev, x.dtype, shaped)
	if dw.Size() == 0 || x.Dim(0) == 0 || v.places() == 0 {
		return dw.fill(0).reshape(v.weight())
	}
	if d, ok := v.convolver(c, x); ok {
		return v.byKernel(c, dw.reshape(v.weight()), x, g, d.ConvolveWeight)
	}
	if v.depthwise() {
		padded := v.pad(v.op, c, x, 0)
		seen := padded.handle(v.op, c, v.windows(padded.layout, true))
		one := onesOf(v.rank).Slice()
		g := g.reshape(shape.Of(g.Dim(0), v.channels).Append(one...).Append(v.list(v.out).Slice()...))
		to := shape.Of(1, v.channels).Append(v.list(v.kernel).Slice()...).Append(one...)
		return mulOp.applyReduced([]*Tensor{seen, g}, nil, to, x.dtype).reshape(v.weight())
	}
	v.chunks(c, x.st.dev, x.Dim(0), x.dtype.Size(), func(c *Scope, at, n int) {
		part := dw.In(c)
		if at > 0 {
			part = alloc(v.op, c, x.st.dev, x.dtype, shaped)
		}
		columns := v.columns(c, x.In(c).Narrow(0, at, n), false)
		multiply(v.op, c, part, v.rows(g.In(c).Narrow(0, at, n)), columns.T())
		if at > 0 {
			to := dw.In(c)
			run(v.op, c, addProgram(dw.dtype, dw.dtype), to, []*Tensor{to, part}, nil)
		}
	})
	return dw.reshape(v.weight())
}

// depthwise reports that each group has one channel and one output: there is no matrix, but sums of products.
func (v *convolution) depthwise() bool {
	return v.perGroup() == 1 && v.outputs == v.groups && v.taps() > 1 && v.taps() <= 2*fewTaps
}

// ofTap returns element k of the weights of a depthwise convolution, [1, channels, 1…].
func (v *convolution) ofTap(w *Tensor, k int) *Tensor {
	return w.reshape(shape.Of(v.channels, v.taps())).Select(1, k).reshape(onesOf(2+v.rank).With(1, v.channels))
}

// exact runs f on operands in the type in which sums of theirs are computed, and rounds its result once.
func exact(a, b *Tensor, f func(a, b *Tensor) *Tensor) *Tensor {
	t := a.dtype
	return f(a.Cast(t.Compute()), b.Cast(t.Compute())).Cast(t)
}

// convFunc is the convolution of x with w.
type convFunc struct{ convolution }

func (f *convFunc) Name() string { return f.op }

func (f *convFunc) Forward(c *Context, in []*Tensor) *Tensor {
	saveBoth(c, in)
	if len(in) == 2 {
		return f.forward(c.Scope(), in[0], in[1])
	}
	return exact(in[0], in[1], func(x, w *Tensor) *Tensor { return withBias(f.forward(c.Scope(), x, w), in[2]) })
}

func (f *convFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, w := saved2(c)
	grads := gradsWithBias(c, g)
	if c.Needs(1) { // first: x makes room for its own
		if c.Wants(1) {
			grads[1] = Apply(&convWeightFunc{f.convolution}, x, g)
		}
		c.release(0, x)
	}
	if c.Wants(0) {
		grads[0] = Apply(&convDataFunc{f.convolution}, g, w)
	}
	return grads
}

// convDataFunc is the transposed convolution of g with w.
type convDataFunc struct{ convolution }

func (f *convDataFunc) Name() string { return f.op }

func (f *convDataFunc) Forward(c *Context, in []*Tensor) *Tensor {
	saveBoth(c, in)
	return exact(in[0], in[1], func(g, w *Tensor) *Tensor {
		y := f.data(c.Scope(), g, w)
		if len(in) == 3 {
			y = withBias(y, in[2])
		}
		return y
	})
}

func (f *convDataFunc) VJP(c *Context, x *Tensor) []*Tensor {
	g, w := saved2(c)
	grads := gradsWithBias(c, x)
	if c.Needs(0) {
		grads[0] = Apply(&convFunc{f.convolution}, x, w)
	}
	if c.Needs(1) {
		grads[1] = Apply(&convWeightFunc{f.convolution}, x, g)
	}
	return grads
}

// convWeightFunc is the gradient of the weight, given x and g.
type convWeightFunc struct{ convolution }

func (f *convWeightFunc) Name() string { return f.op }

func (f *convWeightFunc) Forward(c *Context, in []*Tensor) *Tensor {
	saveBoth(c, in)
	return exact(in[0], in[1], func(x, g *Tensor) *Tensor { return f.gradient(c.Scope(), x, g) })
}

func (f *convWeightFunc) VJP(c *Context, w *Tensor) []*Tensor {
	x, g := saved2(c)
	grads := make([]*Tensor, 2)
	if c.Needs(0) {
		grads[0] = Apply(&convDataFunc{f.convolution}, g, w)
	}
	if c.Needs(1) {
		grads[1] = Apply(&convFunc{f.convolution}, x, w)
	}
	return grads
}

// withBias adds the bias to y, a result [n, outputs, out…] that nobody has seen yet.
func withBias(y, bias *Tensor) *Tensor {
	return y.AddInPlace(bias.Cast(y.dtype).reshape(shape.Of(bias.Dim(0)).Append(onesOf(y.Rank() - 2).Slice()...)))
}

// gradsWithBias makes room for the gradients of an input and a weight, and gives that of a bias.
func gradsWithBias(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, len(c.needs))
	if len(grads) == 3 && c.Needs(2) {
		over := []int{0}
		for i := 2; i < g.Rank(); i++ {
			over = append(over, i)
		}
		grads[2] = g.Sum(over...)
	}
	return grads
}

// saveBoth keeps of two operands what the gradient of a product mentions: each for the other's.
func saveBoth(c *Context, in []*Tensor) {
	if c.Needs(1) {
		c.Save(in[0])
	}
	if c.Needs(0) {
		c.Save(in[1])
	}
}

// saved2 returns what saveBoth saved, nil for what is not needed.
func saved2(c *Context) (a, b *Tensor) {
	k := 0
	if c.Needs(1) {
		a = c.Saved(k)
		k++
	}
	if c.Needs(0) {
		b = c.Saved(k)
	}
	return a, b
}
