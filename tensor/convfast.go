package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// convolver returns the kernels for convolutions of the device of x, if it has them for tensors of its type.
func (v *convolution) convolver(c *Scope, x *Tensor) (device.Convolver, bool) {
	if x.dtype != dtype.F32 {
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
