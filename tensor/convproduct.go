package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// convolution is the geometry of a convolution of x, [n, channels, in…], with a weight [outputs,
// channels/groups, kernel…]. Three functions use it, and each is the gradient of another. They are
// the convolution, the gradient of x (a transposed convolution), and the gradient of the weight.
// All three are matrix products with the columns of x. A column holds the elements of x that one
// window covers.
type convolution struct {
	grid
	channels, outputs, groups int
	op                        string // name of the op that the user called
}

// With at least manyPlaces windows, each sample has a matrix product of its own. With fewer windows
// the columns of several samples form one matrix, and the result is copied into the order of
// samples.
const manyPlaces = 512

// These constants limit the memory of the columns that exist at one time. The limit is a fraction
// of the memory of all inputs and outputs, between columnLeast and an upper bound. On the CPU the
// upper bound is a size that the caches hold in part. On a GPU it is large, so that there are few
// launches. A smaller fraction would divide a GPU's step into many small launches. It would not
// lower the peak memory of a model, which is not reached in a convolution.
//
// A step of ResNet-18 with 32 images was planned for a GPU. With the fraction 3/4 it has 1327
// launches. With the fraction 1/2 it has 1853, and nearly the same peak of memory. With the
// fraction 1 it has 1089, but a step of LeNet has a peak of 1.15 times PyTorch's
// (models/peak_test.go).
//
// With a few large images, the columns of one sample may need more memory than all inputs and
// outputs. Then a GPU makes the columns for a part of the sample's windows.
const (
	columnPart     = 2. / 4
	columnPartGPU  = 3. / 4
	columnLeast    = 1 << 20
	columnBytes    = 16 << 20
	columnBytesGPU = 256 << 20
)

func (v *convolution) perGroup() int { return v.channels / v.groups }

func (v *convolution) weight() shape.Dims {
	return shape.Of(v.outputs, v.perGroup()).Append(v.kernel[:v.rank]...)
}

// atOnce returns how many of n samples get their columns of type t in one step. It also returns
// rows, the number of windows along the first dimension that the step covers. On a GPU a step
// covers only some of these windows if the columns of one sample are too large.
func (v *convolution) atOnce(d device.Device, t dtype.Type, n int) (samples, rows int) {
	one := max(1, v.channels*v.taps()*v.places()*t.Size())
	ends := n * (v.channels*v.list(v.in).Size() + v.outputs*v.places()) * t.Size()
	part, most := columnPart, columnBytes
	rows = v.out[0]
	if !d.Info().Host {
		part, most = columnPartGPU, columnBytesGPU
		if room := min(max(ends, columnLeast), most); room < one && !v.single() {
			rows = max(1, min(rows, room*rows/one))
		}
	}
	room := min(max(int(part*float64(ends)), columnLeast), most)
	return max(1, min(n, room/one)), rows
}

// bands divides the windows into bands along the first dimension. The parameter rows is the number
// of windows of a band in this dimension. bands calls f for each band, in a scope of its own. b is
// the convolution of the band: its input consists of the elements that the band's windows cover.
// element is the index of the first of these elements along the first dimension, and window is the
// index of the band's first window.
func (v *convolution) bands(c *Scope, rows int, f func(c *Scope, b *convolution, element, window int)) {
	for window := 0; window < v.out[0]; window += rows {
		b := *v
		b.out[0] = min(rows, v.out[0]-window)
		begin := window*v.stride[0] - v.before[0] // less than 0 in the padding
		wide := (b.out[0]-1)*v.stride[0] + v.span(0)
		first := min(max(begin, 0), v.in[0])
		b.in[0] = max(min(begin+wide, v.in[0])-first, 0)
		b.before[0] = min(max(first-begin, 0), wide)
		b.behind[0] = wide - b.before[0] - b.in[0]
		part := c.child()
		func() {
			defer part.recycle()
			f(part, &b, first, window)
		}()
	}
}

// batchFirst reports whether the columns of each sample form a matrix of their own.
func (v *convolution) batchFirst() bool { return v.groups == 1 && v.places() >= manyPlaces }

// matrices returns the weight as [groups, outputs of a group, elements of a window].
func (v *convolution) matrices(w *Tensor) *Tensor {
	return w.reshape(shape.Of(v.groups, v.outputs/v.groups, v.perGroup()*v.taps()))
}

// chunks divides a batch of n samples into parts. The parameter step is the number of samples of a
// part. chunks calls f for each part, in a scope of its own, with the first sample and the size of
// the part.
func (v *convolution) chunks(c *Scope, step, n int, f func(c *Scope, at, n int)) {
	for at := 0; at < n; at += step {
		part := c.child()
		func() {
			defer part.recycle()
			f(part, at, min(step, n-at))
		}()
	}
}

// columns returns the columns of samples x, [n, channels, in…], in type t, without a gradient.
// Their shape is [n, channels·taps, places] if batchFirst is true, otherwise [groups,
// channels/groups·taps, n·places]. Here taps is the number of elements of a window, and places is
// the number of windows. The columns are a view of x if possible.
func (v *convolution) columns(c *Scope, x *Tensor, t dtype.Type, batchFirst bool) *Tensor {
	n := x.Dim(0)
	to := shape.Of(n, v.channels*v.taps(), v.places())
	if !batchFirst {
		to = shape.Of(v.groups, v.perGroup()*v.taps(), n*v.places())
	}
	x = v.inType(c, x, t)
	if v.unpadded() {
		seen := x.handle(v.op, c, v.windows(x.layout))
		if !batchFirst {
			seen = seen.MoveAxis(0, 1+v.rank)
		}
		if _, ok := seen.layout.View(to); ok {
			return seen.reshape(to)
		}
	}
	y := alloc(v.op, c, x.st.dev, t, to)
	v.unfold(v.op, c, v.asWindows(y, n, batchFirst), x)
	return y
}

// asWindows reshapes the columns of n samples, which the method columns made, to [n, channels,
// kernel…, out…].
func (v *convolution) asWindows(columns *Tensor, n int, batchFirst bool) *Tensor {
	if batchFirst {
		return columns.reshape(v.columnShape(n, v.channels))
	}
	kernel := shape.Of(v.channels).Append(v.kernel[:v.rank]...)
	return columns.reshape(kernel.Append(n).Append(v.out[:v.rank]...)).MoveAxis(1+v.rank, 0)
}

// inType returns x in type t: x itself if it has that type, otherwise a dense copy.
func (v *convolution) inType(c *Scope, x *Tensor, t dtype.Type) *Tensor {
	if x.dtype == t {
		return x
	}
	y := alloc(v.op, c, x.st.dev, t, x.layout.Shape)
	y.store(v.op, c, x)
	return y
}

// factorType returns the type in which operands are multiplied if the products have type t. operand
// is the operands' type. 16-bit floats need no copy in float32, because the product of 16-bit
// matrices may have a float32 result.
func factorType(operand, t dtype.Type) dtype.Type {
	if operand.IsHalf() {
		return operand
	}
	return t
}

// rows reshapes samples [n, outputs, out…] to [groups, outputs of a group, n·places]. The result is
// a view if n is 1.
func (v *convolution) rows(y *Tensor) *Tensor {
	return y.Transpose(0, 1).reshape(shape.Of(v.groups, v.outputs/v.groups, y.Dim(0)*v.places()))
}

// forward returns the convolution of x with w, plus bias unless bias is nil. With a bias, 16-bit
// results are float32 until the bias is added, so that they are rounded once. If the results come
// from matrix products, only one part of the batch is in float32 at a time.
func (v *convolution) forward(c *Scope, x, w, bias *Tensor) *Tensor {
	n := x.Dim(0)
	t := x.dtype
	if bias != nil {
		t = t.Compute()
	}
	to := v.shaped(n, v.outputs, v.out)
	if v.depthwise() && to.Size() > 0 {
		y := v.sumTaps(v.op, c, v.pad(v.op, c, x, 0), func(k int) *Tensor { return v.ofTap(w, k) }).Contiguous()
		if bias != nil {
			withBias(y, bias)
		}
		return y.Cast(x.dtype)
	}
	y := alloc(v.op, c, x.st.dev, x.dtype, to)
	if y.Size() == 0 {
		return y
	}
	if v.hasKernel(c, device.ConvForward, x) {
		return v.samplesByKernel(c, y, x, w, bias, device.ConvForward)
	}
	a := v.inType(c, v.matrices(w), factorType(x.dtype, t))
	step, rows := v.atOnce(x.st.dev, a.dtype, n)
	v.chunks(c, step, n, func(c *Scope, at, n int) {
		part, to := x.In(c).Narrow(0, at, n), y.In(c).Narrow(0, at, n)
		out := to
		if t != y.dtype {
			out = alloc(v.op, c, x.st.dev, t, v.shaped(n, v.outputs, v.out))
		}
		if rows == v.out[0] {
			v.product(c, part, a, out)
		} else {
			v.bands(c, rows, func(c *Scope, b *convolution, from, at int) {
				b.product(c, part.In(c).Narrow(2, from, b.in[0]), a, out.In(c).Narrow(2, at, b.out[0]))
			})
		}
		if out != to {
			to.store(v.op, c, withBias(out, bias))
		}
	})
	if bias != nil && t == y.dtype {
		withBias(y, bias)
	}
	return y
}

// product writes the products of a with the columns of x to the tensor out. a is the weight in the
// shape that the method matrices returns. All columns of x are in memory at once.
func (v *convolution) product(c *Scope, x, a, out *Tensor) {
	n, t := x.Dim(0), a.dtype
	switch {
	case v.batchFirst():
		multiplyAdd(v.op, c, out.reshape(shape.Of(n, v.outputs, v.places())), a.expand(shape.Of(n, a.Dim(1), a.Dim(2))), v.columns(c, x, t, true), nil)
	case n == 1:
		multiplyAdd(v.op, c, v.rows(out), a, v.columns(c, x, t, false), nil)
	default:
		rows := alloc(v.op, c, x.st.dev, out.dtype, shape.Of(v.groups, v.outputs/v.groups, n*v.places()))
		multiplyAdd(v.op, c, rows, a, v.columns(c, x, t, false), nil)
		out.store(v.op, c, rows.reshape(v.shaped(v.outputs, n, v.out)).Transpose(0, 1))
	}
}

// data returns the gradient of x from g, the gradient of the result. It is the transposed
// convolution of g with w, plus bias unless bias is nil. 16-bit floats stay float32 until all is
// added, so that they are rounded once. data handles one part of the batch at a time.
func (v *convolution) data(c *Scope, g, w, bias *Tensor) *Tensor {
	n := g.Dim(0)
	if g.Size() > 0 && v.shaped(n, v.channels, v.in).Size() > 0 && v.hasKernel(c, device.ConvData, g) {
		return v.samplesByKernel(c, alloc(v.op, c, g.st.dev, g.dtype, v.shaped(n, v.channels, v.in)), g, w, bias, device.ConvData)
	}
	t := g.dtype
	if bias != nil || !v.disjoint() {
		t = t.Compute()
	}
	y := alloc(v.op, c, g.st.dev, g.dtype, v.shaped(n, v.channels, v.in))
	switch {
	case y.Size() == 0:
		return y
	case g.Size() == 0:
		if y.fill(0); bias != nil {
			withBias(y, bias)
		}
		return y
	case v.depthwise():
		out := y
		if bias != nil && t != y.dtype {
			out = alloc(v.op, c, g.st.dev, t, y.layout.Shape)
		}
		v.fold(v.op, c, out, v.repeated(v.op, c, g), w.reshape(shape.Of(v.channels).Append(v.list(v.kernel).Slice()...)), false)
		if bias != nil {
			withBias(out, bias)
		}
		if out != y {
			y.store(v.op, c, out)
		}
		return y
	}
	a := v.inType(c, v.matrices(w), factorType(g.dtype, t)).T()
	step, rows := v.atOnce(g.st.dev, t, n)
	v.chunks(c, step, n, func(c *Scope, at, n int) {
		from, to := v.inType(c, g.In(c).Narrow(0, at, n), a.dtype), y.In(c).Narrow(0, at, n)
		out := to
		if t != y.dtype && (bias != nil || rows < v.out[0]) {
			out = alloc(v.op, c, g.st.dev, t, to.layout.Shape)
		}
		if rows == v.out[0] {
			v.spread(c, from, a, t, out, false)
		} else {
			out.fill(0)
			v.bands(c, rows, func(c *Scope, b *convolution, first, at int) {
				if b.in[0] > 0 {
					b.spread(c, from.In(c).Narrow(2, at, b.out[0]), a, t, out.In(c).Narrow(2, first, b.in[0]), true)
				}
			})
		}
		if out != to {
			if bias != nil {
				withBias(out, bias)
			}
			to.store(v.op, c, out)
		}
	})
	if bias != nil && t == y.dtype {
		withBias(y, bias)
	}
	return y
}

// spread multiplies a by g and writes the products, which are columns of type t, to out, [n,
// channels, in…]. It puts the elements of each column at the positions of its window, and adds them
// where windows overlap. If add is true, it adds to the previous contents of out. a is the
// transposed result of the method matrices. All columns are in memory at once.
func (v *convolution) spread(c *Scope, g, a *Tensor, t dtype.Type, out *Tensor, add bool) {
	n, batchFirst := g.Dim(0), v.batchFirst()
	var columns *Tensor
	if batchFirst {
		b := g.reshape(shape.Of(n, v.outputs, v.places()))
		a := a.expand(shape.Of(n, a.Dim(1), a.Dim(2)))
		if v.single() {
			multiplyAdd(v.op, c, out.reshape(shape.Of(n, v.channels, v.places())), a, b, nil)
			return
		}
		columns = alloc(v.op, c, g.st.dev, t, shape.Of(n, v.channels*v.taps(), v.places()))
		multiplyAdd(v.op, c, columns, a, b, nil)
	} else {
		columns = alloc(v.op, c, g.st.dev, t, shape.Of(v.groups, v.perGroup()*v.taps(), n*v.places()))
		multiplyAdd(v.op, c, columns, a, v.rows(g), nil)
		if v.single() {
			out.store(v.op, c, columns.reshape(v.shaped(v.channels, n, v.in)).Transpose(0, 1))
			return
		}
	}
	v.fold(v.op, c, out, v.asWindows(columns, n, batchFirst), nil, add)
}

// gradient returns the gradient of the weight from the operand x and g, the gradient of the result.
// The gradients of the parts of a batch are added in float32 and rounded once, even if the factors
// are 16-bit floats.
func (v *convolution) gradient(c *Scope, x, g *Tensor) *Tensor {
	shaped := shape.Of(v.groups, v.outputs/v.groups, v.perGroup()*v.taps())
	n, t := x.Dim(0), x.dtype
	if v.outputs == 0 || shaped.Size() == 0 || n == 0 || v.places() == 0 {
		return alloc(v.op, c, x.st.dev, t, shaped).fill(0).reshape(v.weight())
	}
	if v.hasKernel(c, device.ConvWeight, x) {
		return v.weightByKernel(c, x, g)
	}
	if v.depthwise() {
		return inComputeType(x, g, nil, func(x, g *Tensor) *Tensor {
			padded := v.pad(v.op, c, x, 0)
			seen := padded.handle(v.op, c, v.windows(padded.layout))
			one := onesOf(v.rank).Slice()
			g = g.reshape(shape.Of(g.Dim(0), v.channels).Append(one...).Append(v.list(v.out).Slice()...))
			to := shape.Of(1, v.channels).Append(v.list(v.kernel).Slice()...).Append(one...)
			return mulOp.applyReduced([]*Tensor{seen, g}, nil, to, x.dtype).reshape(v.weight())
		})
	}
	step, rows := v.atOnce(x.st.dev, t, n)
	sum := t
	if step < n || rows < v.out[0] {
		sum = t.Compute()
		t = factorType(t, sum)
		step, rows = v.atOnce(x.st.dev, t, n)
	}
	dw := alloc(v.op, c, x.st.dev, sum, shaped)
	first := true
	add := func(c *Scope, v *convolution, x, g *Tensor) {
		part := dw.In(c)
		if !first {
			part = alloc(v.op, c, x.st.dev, sum, shaped)
		}
		columns := v.columns(c, x, t, false)
		multiplyAdd(v.op, c, part, v.rows(v.inType(c, g, t)), columns.T(), nil)
		if !first {
			to := dw.In(c)
			run(v.op, c, addProgram(sum, sum), to, []*Tensor{to, part}, nil)
		}
		first = false
	}
	v.chunks(c, step, n, func(c *Scope, at, n int) {
		x, g := x.In(c).Narrow(0, at, n), g.In(c).Narrow(0, at, n)
		if rows == v.out[0] {
			add(c, v, x, g)
			return
		}
		v.bands(c, rows, func(c *Scope, b *convolution, from, at int) {
			add(c, b, x.In(c).Narrow(2, from, b.in[0]), g.In(c).Narrow(2, at, b.out[0]))
		})
	})
	return v.inType(c, dw, x.dtype).reshape(v.weight())
}

// depthwise reports whether each group has one channel and one output. The convolution is then
// computed as sums of products instead of a matrix product.
func (v *convolution) depthwise() bool {
	return v.perGroup() == 1 && v.outputs == v.groups && v.taps() > 1 && v.taps() <= 2*fewTaps
}

// ofTap returns element k of each channel's kernel in a depthwise convolution, as [1, channels,
// 1…].
func (v *convolution) ofTap(w *Tensor, k int) *Tensor {
	return w.reshape(shape.Of(v.channels, v.taps())).Select(1, k).reshape(onesOf(2+v.rank).With(1, v.channels))
}

// inComputeType runs f on a and b, cast to the type in which sums of their elements are computed.
// It adds bias unless bias is nil, and rounds once.
func inComputeType(a, b, bias *Tensor, f func(a, b *Tensor) *Tensor) *Tensor {
	t := a.dtype
	y := f(a.Cast(t.Compute()), b.Cast(t.Compute()))
	if bias != nil {
		withBias(y, bias)
	}
	return y.Cast(t)
}

// convFunc computes the convolution of x with w.
type convFunc struct{ convolution }

func (f *convFunc) Name() string { return f.op }

func (f *convFunc) Forward(c *Context, in []*Tensor) *Tensor {
	saveBoth(c, in)
	return f.forward(c.Scope(), in[0], in[1], biasOf(in))
}

func (f *convFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, w := saved2(c)
	grads := gradsWithBias(c, g)
	// Compute the weight's gradient first, because x can then be freed before the gradient of x is
	// allocated.
	if c.Needs(1) {
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

// convDataFunc computes the transposed convolution of g with w.
type convDataFunc struct{ convolution }

func (f *convDataFunc) Name() string { return f.op }

func (f *convDataFunc) Forward(c *Context, in []*Tensor) *Tensor {
	saveBoth(c, in)
	return f.data(c.Scope(), in[0], in[1], biasOf(in))
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

// convWeightFunc computes the gradient of the weight, given x and g.
type convWeightFunc struct{ convolution }

func (f *convWeightFunc) Name() string { return f.op }

func (f *convWeightFunc) Forward(c *Context, in []*Tensor) *Tensor {
	saveBoth(c, in)
	return f.gradient(c.Scope(), in[0], in[1])
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

// biasOf returns the third operand, or nil if there are only two.
func biasOf(in []*Tensor) *Tensor {
	if len(in) == 3 {
		return in[2]
	}
	return nil
}

// withBias adds the bias to y, [n, outputs, out…], in place. y is new and not yet part of a graph.
func withBias(y, bias *Tensor) *Tensor {
	return y.AddInPlace(bias.Cast(y.dtype).reshape(shape.Of(bias.Dim(0)).Append(onesOf(y.Rank() - 2).Slice()...)))
}

// gradsWithBias returns a list for the gradients of all operands. It fills in only the gradient of
// the bias.
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

// saveBoth saves the two operands of a product if gradients need them. Each operand is needed for
// the gradient of the other.
func saveBoth(c *Context, in []*Tensor) {
	if c.Needs(1) {
		c.Save(in[0])
	}
	if c.Needs(0) {
		c.Save(in[1])
	}
}

// saved2 returns the operands that saveBoth saved. An operand that it did not save is nil.
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
