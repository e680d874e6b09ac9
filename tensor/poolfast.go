package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// planes joins the first two dimensions of x, which is [n, c, …].
func planes(x shape.Dims) shape.Dims {
	return x.Remove(0).With(0, x.At(0)*x.At(1))
}

// sumWindows returns the sums of the windows of x, [n, c, …]. It returns nil if the device has no
// kernel for such sums.
func (g *grid) sumWindows(op string, s *Scope, x *Tensor) *Tensor {
	if x.Size() == 0 {
		return nil
	}
	to := g.shaped(x.Dim(0), x.Dim(1), g.out)
	o := sumWindowsOps.supported(s, x.st.dev, device.SumWindows{Y: resultOf(x.dtype, planes(to)), X: resultOf(x.dtype, planes(x.layout.Shape)), Window: g.window()})
	if o == nil {
		return nil
	}
	x = x.Contiguous()
	y := alloc(op, s, x.st.dev, x.dtype, to)
	o.X = x.operandAs(planes(x.layout.Shape))
	launch(op, s, o, y, x)
	sumWindowsOps.put(o)
	return y
}

// byKernel computes the gradient of max pooling by a kernel of the device. It returns nil if the
// device has no such kernel, or if g is empty. offsets holds the position of each maximum in its
// window.
func (f maxFunc) byKernel(s *Scope, offsets, g *Tensor, to shape.Dims) *Tensor {
	if g.Size() == 0 {
		return nil
	}
	from := planes(g.layout.Shape)
	o := maxPoolGradOps.supported(s, g.st.dev, device.MaxPoolGrad{DX: resultOf(g.dtype, planes(to)), G: resultOf(g.dtype, from), Near: resultOf(offsets.dtype, from), Window: f.g.window()})
	if o == nil {
		return nil
	}
	g, offsets = g.Contiguous(), offsets.Contiguous()
	op := f.op + ".grad"
	dx := alloc(op, s, g.st.dev, g.dtype, to)
	o.G, o.Near = g.operandAs(from), offsets.operandAs(from)
	launch(op, s, o, dx, g, offsets)
	maxPoolGradOps.put(o)
	return dx
}
