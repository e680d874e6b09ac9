package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// convolver returns the kernels for convolutions of the device of x, if it has them for tensors of its type: they take float32, and copies of
// 16-bit floats.
func (v *convolution) convolver(c *Scope, x *Tensor) (device.Convolver, bool) {
	if x.dtype.Compute() != dtype.F32 {
		return nil, false
	}
	return fast[device.Convolver](c, x.st.dev)
}

// A convolving is a method of a device's Convolver.
type convolving = func(s device.Stream, out, a, b device.View, g device.Convolution) error

// samplesByKernel sets y, samples, to what f makes of samples x with the weight w and, unless that is nil, a bias. 16-bit floats are float32
// meanwhile, a part of the batch at a time, and rounded once.
func (v *convolution) samplesByKernel(c *Scope, y, x, w, bias *Tensor, f convolving) *Tensor {
	if y.dtype == dtype.F32 {
		if v.byKernel(c, y, x, w, f); bias != nil {
			withBias(y, bias)
		}
		return y
	}
	w = v.as(c, w, dtype.F32)
	v.chunks(c, copiedAtOnce(x, y), x.Dim(0), func(c *Scope, at, n int) {
		out := alloc(v.op, c, y.st.dev, dtype.F32, y.layout.Shape.With(0, n))
		v.byKernel(c, out, v.as(c, x.In(c).Narrow(0, at, n), dtype.F32), w, f)
		if bias != nil {
			withBias(out, bias)
		}
		y.In(c).Narrow(0, at, n).store(v.op, c, out)
	})
	return y
}

// weightByKernel returns what f makes of samples x and g: the gradient of the weight. 16-bit floats as in samplesByKernel; the parts' are added in
// float32.
func (v *convolution) weightByKernel(c *Scope, x, g *Tensor, f convolving) *Tensor {
	y := alloc(v.op, c, x.st.dev, dtype.F32, v.weight())
	if x.dtype == dtype.F32 {
		return v.byKernel(c, y, x, g, f)
	}
	v.chunks(c, copiedAtOnce(x, g), x.Dim(0), func(c *Scope, at, n int) {
		part := y.In(c)
		if at > 0 {
			part = alloc(v.op, c, y.st.dev, dtype.F32, y.layout.Shape)
		}
		v.byKernel(c, part, v.as(c, x.In(c).Narrow(0, at, n), dtype.F32), v.as(c, g.In(c).Narrow(0, at, n), dtype.F32), f)
		if to := y.In(c); at > 0 {
			run(v.op, c, addProgram(dtype.F32, dtype.F32), to, []*Tensor{to, part}, nil)
		}
	})
	return v.as(c, y, x.dtype)
}

// copiedAtOnce is of how many samples of a and b there are float32 copies at one time.
func copiedAtOnce(a, b *Tensor) int {
	n := a.Dim(0)
	return max(1, columnBytes*n/max(1, (a.Size()+b.Size())*dtype.F32.Size()))
}

// byKernel sets y to what f makes of a and b.
func (v *convolution) byKernel(c *Scope, y, a, b *Tensor, f convolving) *Tensor {
	a, b = a.In(c).Contiguous(), b.In(c).Contiguous()
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanDirect, v.op, c, []*Tensor{a, b}))
	}
	stream := c.streamOf(y.st.dev)
	a.st.read(v.op, stream)
	b.st.read(v.op, stream)
	y.st.write(v.op, stream)
	g := device.Convolution{Rank: v.rank, Groups: v.groups, Stride: v.stride, Dilation: v.dilation, Before: v.before}
	check(v.op, f(stream, y.deviceView(), a.deviceView(), b.deviceView(), g), a, b)
	return y
}
