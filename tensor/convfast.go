package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// convolver returns the kernels for convolutions of the device of x, if it has them for tensors of its type. 16-bit floats go through
// float32.
func (v *convolution) convolver(c *Scope, x *Tensor) (device.Convolver, bool) {
	if t := x.dtype; !t.IsFloat() || t.Compute() != dtype.F32 {
		return nil, false
	}
	return fast[device.Convolver](c, x.st.dev)
}

// byKernel sets y to what f, a method of a device's Convolver, makes of a and b.
func (v *convolution) byKernel(c *Scope, y, a, b *Tensor, f func(s device.Stream, out, a, b device.View, g device.Convolution) error) *Tensor {
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

// forwardByKernel sets y to the convolution of x with w, of 16-bit floats some samples at a time.
func (v *convolution) forwardByKernel(c *Scope, d device.Convolver, y, x, w *Tensor) *Tensor {
	if x.dtype == dtype.F32 {
		return v.byKernel(c, y, x, w, d.Convolve)
	}
	w = w.In(c).Cast(dtype.F32)
	v.chunks(c, x.st.dev, x.Dim(0), x.dtype.Size(), func(c *Scope, at, n int) {
		wide := alloc(v.op, c, x.st.dev, dtype.F32, v.shaped(n, v.outputs, v.out))
		v.byKernel(c, wide, x.In(c).Narrow(0, at, n).Cast(dtype.F32), w, d.Convolve)
		y.In(c).Narrow(0, at, n).store(v.op, c, wide)
	})
	return y
}
