package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// primitive returns the convolution of n samples as a primitive on dense operands of type t.
func (v *convolution) primitive(kind device.ConvKind, n int, t dtype.Type) device.Convolution {
	return device.Convolution{Kind: kind, X: resultOf(t, v.shaped(n, v.channels, v.in)), W: resultOf(t, v.weight()), Y: resultOf(t, v.shaped(n, v.outputs, v.out)),
		Rank: v.rank, Groups: v.groups, Stride: v.stride, Dilation: v.dilation, Before: v.before}
}

// hasKernel reports whether the device has a kernel for this kind of convolution. x holds the
// samples of an input or of a result. Kernels compute 16-bit floats on float32 copies.
func (v *convolution) hasKernel(c *Scope, kind device.ConvKind, x *Tensor) bool {
	o := convolutionOps.supported(c, x.st.dev, v.primitive(kind, x.Dim(0), x.dtype.Compute()))
	if o != nil {
		convolutionOps.put(o)
	}
	return o != nil
}

// samplesByKernel sets y to the samples that a kernel of this kind computes from samples x and the
// weight w. It adds bias unless bias is nil. 16-bit floats are copied to float32 for one part of
// the batch at a time, and the result is rounded once.
func (v *convolution) samplesByKernel(c *Scope, y, x, w, bias *Tensor, kind device.ConvKind) *Tensor {
	if y.dtype == dtype.F32 {
		if v.byKernel(c, kind, y, x, w); bias != nil {
			withBias(y, bias)
		}
		return y
	}
	w = v.inType(c, w, dtype.F32)
	v.chunks(c, copiedAtOnce(x, y), x.Dim(0), func(c *Scope, at, n int) {
		out := alloc(v.op, c, y.st.dev, dtype.F32, y.layout.Shape.With(0, n))
		v.byKernel(c, kind, out, v.inType(c, x.In(c).Narrow(0, at, n), dtype.F32), w)
		if bias != nil {
			withBias(out, bias)
		}
		y.In(c).Narrow(0, at, n).store(v.op, c, out)
	})
	return y
}

// weightByKernel returns the gradient of the weight, from samples x and the gradient g of the
// result. 16-bit floats are copied to float32 for one part of the batch at a time. The gradients of
// the parts are added in float32.
func (v *convolution) weightByKernel(c *Scope, x, g *Tensor) *Tensor {
	y := alloc(v.op, c, x.st.dev, dtype.F32, v.weight())
	if x.dtype == dtype.F32 {
		return v.byKernel(c, device.ConvWeight, y, x, g)
	}
	v.chunks(c, copiedAtOnce(x, g), x.Dim(0), func(c *Scope, at, n int) {
		part := y.In(c)
		if at > 0 {
			part = alloc(v.op, c, y.st.dev, dtype.F32, y.layout.Shape)
		}
		v.byKernel(c, device.ConvWeight, part, v.inType(c, x.In(c).Narrow(0, at, n), dtype.F32), v.inType(c, g.In(c).Narrow(0, at, n), dtype.F32))
		if to := y.In(c); at > 0 {
			run(v.op, c, addProgram(dtype.F32, dtype.F32), to, []*Tensor{to, part}, nil)
		}
	})
	return v.inType(c, y, x.dtype)
}

// copiedAtOnce returns how many samples of a and b are copied to float32 at one time.
func copiedAtOnce(a, b *Tensor) int {
	n := a.Dim(0)
	return max(1, columnBytes*n/max(1, (a.Size()+b.Size())*dtype.F32.Size()))
}

// byKernel runs the device's kernel of this kind on a and b, and writes the result to y. a holds
// samples. b is the weight, or the gradient of the convolution's result.
func (v *convolution) byKernel(c *Scope, kind device.ConvKind, y, a, b *Tensor) *Tensor {
	a, b = a.In(c).Contiguous(), b.In(c).Contiguous()
	o := convolutionOps.reuse(v.primitive(kind, a.Dim(0), dtype.F32))
	for i, t := range []*Tensor{y, a, b} { // an operand may begin at an offset in its memory
		o.Operand(i).View.Offset = t.layout.Offset
	}
	launch(v.op, c, o, y, a, b)
	convolutionOps.put(o)
	return y
}
