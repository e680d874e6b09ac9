package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// The kernels for channels assign each channel to one worker. For fewer than fewChannels channels
// that are long, reductions are faster: they divide a channel among workers.
const fewChannels = 16

func (f *normalizeFunc) suitsChannels(x *Tensor) bool {
	l := x.layout.Shape
	return f.kind == normBatch && !f.rms && x.Size() > 0 && l.At(2) == 1 && (l.At(1) >= fewChannels || l.At(0)*l.At(3) <= longRow)
}

// channelShapes returns the shape of x as [n, channels, inner], and the shape of one value for each
// channel.
func channelShapes(x *Tensor) (whole, channels shape.Dims) {
	l := x.layout.Shape
	return shape.Of(l.At(0), l.At(1), l.At(3)), shape.Of(l.At(1))
}

// channelForward normalises channels by the device's kernel. y is nil if the device has no such
// kernel.
func (f *normalizeFunc) channelForward(s *Scope, o *normOperands) (mean, variance, rstd, y *Tensor) {
	x, w, b := o.x, o.w, o.b
	if !f.suitsChannels(x) {
		return nil, nil, nil, nil
	}
	whole, channels := channelShapes(x)
	all, one := resultOf(x.dtype, whole), resultOf(x.dtype, channels)
	k := channelNormOps.supported(s, x.st.dev, device.ChannelNorm{Out: all, Mean: one, Variance: one, Rstd: one, X: all, Weight: w.flat(), Bias: b.flat(), Eps: f.eps, Zero: f.zero})
	if k == nil {
		return nil, nil, nil, nil
	}
	x, w, b = x.Contiguous(), w.contiguous(), b.contiguous()
	kept := shape.Of(1, x.layout.Shape.At(1), 1, 1)
	mean, variance, rstd = alloc(f.op, s, x.st.dev, x.dtype, kept), alloc(f.op, s, x.st.dev, x.dtype, kept), alloc(f.op, s, x.st.dev, x.dtype, kept)
	y = alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape)
	k.X, k.Weight, k.Bias = x.operandAs(whole), w.flat(), b.flat()
	launch(f.op, s, k, y, mean, variance, rstd, x, w, b)
	channelNormOps.put(k)
	return mean, variance, rstd, y
}

// channelGradients computes the gradients by the device's kernel. It computes the gradient of x
// only if needX is true. ok is false if the device has no such kernel.
func (f *normalizeFunc) channelGradients(s *Scope, needX bool, g, x, w, mean, rstd *Tensor) (dx, dw, db *Tensor, ok bool) {
	if !f.suitsChannels(x) {
		return nil, nil, nil, false
	}
	whole, channels := channelShapes(x)
	all, one := resultOf(x.dtype, whole), resultOf(x.dtype, channels)
	op := device.ChannelNormGrad{Sum: one, Product: one, G: resultOf(g.dtype, whole), X: all, Mean: mean.operandAs(channels), Rstd: rstd.operandAs(channels), Weight: w.flat()}
	if needX {
		op.DX = all
	}
	k := channelNormGradOps.supported(s, x.st.dev, op)
	if k == nil {
		return nil, nil, nil, false
	}
	x, g, w = x.Contiguous(), g.Contiguous(), w.contiguous()
	name := f.op + ".grad"
	dw, db = alloc(name, s, x.st.dev, x.dtype, mean.layout.Shape), alloc(name, s, x.st.dev, x.dtype, mean.layout.Shape)
	if needX {
		dx = alloc(name, s, x.st.dev, x.dtype, x.layout.Shape)
	}
	k.X, k.G, k.Weight = x.operandAs(whole), g.operandAs(whole), w.flat()
	launch(name, s, k, db, dw, dx, g, x, mean, rstd, w)
	channelNormGradOps.put(k)
	return dx, dw, db, true
}
