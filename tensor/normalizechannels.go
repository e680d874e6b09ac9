package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// The kernels for channels give a channel to one worker. Fewer than fewChannels are better shared by reductions where they are long.
const fewChannels = 16

// channelKernels returns the device's kernels for channels, if it has some and the operands suit them: weight and bias may be nil.
func (f *normalizeFunc) channelKernels(s *Scope, x *Tensor, affine ...*Tensor) (device.ChannelNormer, bool) {
	d, ok := fast[device.ChannelNormer](s, x.st.dev)
	l := x.layout.Shape
	if !ok || f.kind != normBatch || f.rms || x.Size() == 0 || x.dtype != dtype.F32 || l.At(2) != 1 {
		return nil, false
	}
	for _, t := range affine {
		if t != nil && t.dtype != dtype.F32 {
			return nil, false
		}
	}
	return d, l.At(1) >= fewChannels || l.At(0)*l.At(3) <= longRow
}

// channelView is t as [n, channels, inner] or [channels], contiguous; no view for nil.
func channelView(x, t *Tensor, whole bool) device.View {
	if t == nil {
		return device.View{}
	}
	l := x.layout.Shape
	to := shape.Of(l.At(1))
	if whole {
		to = shape.Of(l.At(0), l.At(1), l.At(3))
	}
	v := t.deviceView()
	v.Layout = shape.Layout{Shape: to, Strides: to.Contiguous(), Offset: t.layout.Offset}
	return v
}

// channelForward runs the device's kernel for channels, if it has one.
func (f *normalizeFunc) channelForward(s *Scope, o *normOperands) (mean, variance, rstd, y *Tensor) {
	x := o.x
	d, ok := f.channelKernels(s, x, o.w, o.b)
	if !ok {
		return nil, nil, nil, nil
	}
	x = x.Contiguous()
	kept := shape.Of(1, x.layout.Shape.At(1), 1, 1)
	list := [3]*Tensor{}
	for i := range list {
		list[i] = alloc(f.op, s, x.st.dev, dtype.F32, kept)
	}
	mean, variance, rstd = list[0], list[1], list[2]
	y = alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape)
	w, b := o.w, o.b
	if w != nil {
		w = w.Contiguous()
	}
	if b != nil {
		b = b.Contiguous()
	}
	stream := s.streamOf(x.st.dev)
	for _, t := range present(x, w, b) {
		t.st.read(f.op, stream)
	}
	for _, t := range present(y, mean, variance, rstd) {
		t.st.write(f.op, stream)
	}
	n := device.ChannelNorm{Eps: f.eps, Zero: f.zero}
	of := func(t *Tensor) device.View { return channelView(x, t, false) }
	check(f.op, d.ChannelNorm(stream, channelView(x, y, true), of(mean), of(variance), of(rstd), channelView(x, x, true), of(w), of(b), n), present(x, w, b)...)
	return mean, variance, rstd, y
}

// channelGradients runs the device's kernel for the gradients of channels, if it has one.
func (f *normalizeFunc) channelGradients(s *Scope, needX bool, g, x, w, mean, rstd *Tensor) (dx, dw, db *Tensor, ok bool) {
	d, ok := f.channelKernels(s, x, g, w)
	if !ok {
		return nil, nil, nil, false
	}
	x, g = x.Contiguous(), g.Contiguous()
	if w != nil {
		w = w.Contiguous()
	}
	op := f.op + ".grad"
	dw, db = alloc(op, s, x.st.dev, dtype.F32, mean.layout.Shape), alloc(op, s, x.st.dev, dtype.F32, mean.layout.Shape)
	if needX {
		dx = alloc(op, s, x.st.dev, x.dtype, x.layout.Shape)
	}
	stream := s.streamOf(x.st.dev)
	for _, t := range present(g, x, mean, rstd, w) {
		t.st.read(op, stream)
	}
	for _, t := range present(dx, dw, db) {
		t.st.write(op, stream)
	}
	of := func(t *Tensor) device.View { return channelView(x, t, false) }
	whole := func(t *Tensor) device.View { return channelView(x, t, true) }
	check(op, d.ChannelNormGrad(stream, whole(dx), of(db), of(dw), whole(g), whole(x), of(mean), of(rstd), of(w)), present(g, x, w)...)
	return dx, dw, db, true
}
