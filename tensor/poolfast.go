package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// pooler returns the device's kernels for pools of x's type, if it has some.
func pooler(s *Scope, x *Tensor) (device.Pooler, bool) {
	d, ok := fast[device.Pooler](s, x.st.dev)
	return d, ok && x.dtype == dtype.F32
}

// windowed sets y by f, a method of a device's Pooler, which gets y, the other operands, [n, c, …], as planes, and the windows.
func (g *grid) windowed(op string, s *Scope, y *Tensor, in []*Tensor, f func(s device.Stream, y device.View, in []device.View, w device.Window) error) *Tensor {
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanDirect, op, s, in))
	}
	view := func(t *Tensor) device.View {
		l := t.layout.Shape
		to := shape.Of(l.At(0) * l.At(1)).Append(l.Tail(2).Slice()...)
		v := t.deviceView()
		v.Layout = shape.Layout{Shape: to, Strides: to.Contiguous(), Offset: t.layout.Offset}
		return v
	}
	stream := s.streamOf(y.st.dev)
	var views []device.View
	for _, t := range in {
		t = t.Contiguous()
		t.st.read(op, stream)
		views = append(views, view(t))
	}
	y.st.write(op, stream)
	w := device.Window{Rank: g.rank, Kernel: g.kernel, Stride: g.stride, Dilation: g.dilation, Before: g.before}
	check(op, f(stream, view(y), views, w), in...)
	return y
}

// sumWindows returns the sums of the windows of x, [n, c, …], nil where the device has no kernel for them.
func (g *grid) sumWindows(op string, s *Scope, x *Tensor) *Tensor {
	d, ok := pooler(s, x)
	if !ok || x.Size() == 0 {
		return nil
	}
	y := alloc(op, s, x.st.dev, x.dtype, g.shaped(x.Dim(0), x.Dim(1), g.out))
	return g.windowed(op, s, y, []*Tensor{x}, func(s device.Stream, y device.View, in []device.View, w device.Window) error {
		return d.SumWindows(s, y, in[0], w)
	})
}

// spreadWindows returns the sums of from, [n, c, out…], over the windows that an element is in, nil where the device has no kernel for them.
func (g *grid) spreadWindows(op string, s *Scope, from *Tensor) *Tensor {
	d, ok := pooler(s, from)
	if !ok || from.Size() == 0 {
		return nil
	}
	dx := alloc(op, s, from.st.dev, from.dtype, g.shaped(from.Dim(0), from.Dim(1), g.in))
	return g.windowed(op, s, dx, []*Tensor{from}, func(s device.Stream, dx device.View, in []device.View, w device.Window) error {
		return d.AddWindows(s, dx, in[0], w)
	})
}

// byKernel returns the gradient of maxima by a kernel of the device, nil where it has none: near is where they are in their windows.
func (f maxFunc) byKernel(s *Scope, near, g *Tensor, to shape.Dims) *Tensor {
	d, ok := pooler(s, g)
	if !ok || g.Size() == 0 {
		return nil
	}
	op := f.op + ".grad"
	dx := alloc(op, s, g.st.dev, g.dtype, to)
	return f.g.windowed(op, s, dx, []*Tensor{g, near}, func(s device.Stream, dx device.View, in []device.View, w device.Window) error {
		return d.MaxPoolGrad(s, dx, in[0], in[1], w)
	})
}
