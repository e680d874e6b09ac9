package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// nllFunc computes -x[i, target[i]] for each row i of x, which holds logarithms of probabilities.
// It is crossEntropyFunc without the softmax.
type nllFunc struct {
	ignore int64
	wide   bool // true if 16-bit operands give a float32 loss
	mean   bool // true if the result is the mean over the rows whose targets are not ignored
}

const nllName = "nll_loss"

func (nllFunc) Name() string { return nllName }

// asCrossEntropy returns a crossEntropyFunc with f's options. If the device has no kernel, f
// computes the loss with the ops of this crossEntropyFunc.
func (f nllFunc) asCrossEntropy() crossEntropyFunc {
	return crossEntropyFunc{ignore: f.ignore, wide: f.wide, mean: f.mean}
}

func (f nllFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, target := in[0], in[1]
	y := f.loss(c, in)
	switch {
	case y == nil:
		if c.Needs(0) {
			c.Save(target)
		}
		return f.asCrossEntropy().reduced(f.asCrossEntropy().composed(nllName, f.asCrossEntropy().widened(x), target), target)
	case f.wide:
		return y
	}
	return y.Cast(x.dtype)
}

func (f nllFunc) lean(c *Context, in []*Tensor) *Tensor {
	if t := in[0].dtype; !f.wide && t != t.Compute() {
		return nil
	}
	return f.loss(c, in)
}

// loss computes the loss by the device's kernel, in the type in which x is computed. It returns nil
// if the device has no such kernel.
func (f nllFunc) loss(c *Context, in []*Tensor) *Tensor {
	x, target := in[0], in[1]
	t, rows, s := x.dtype.Compute(), shape.Of(x.layout.Shape.At(0)), c.Scope()
	want := device.CrossEntropy{Loss: resultOf(t, rows), X: x.operand(), Target: target.operand(), Ignore: f.ignore}
	if f.mean {
		want.Mean, want.Count = resultOf(t, shape.Of(1)), resultOf(dtype.I64, shape.Of(1))
	}
	o := crossEntropyOps.supported(s, x.st.dev, want)
	if o == nil {
		return nil
	}
	y := alloc(nllName, s, x.st.dev, t, rows)
	var mean, count *Tensor
	if f.mean {
		mean, count = alloc(nllName, s, x.st.dev, t, shape.Dims{}), alloc(nllName, s, x.st.dev, dtype.I64, shape.Dims{})
	}
	done := false
	defer freeUnless(&done, y, mean, count)
	o.Tag = lateTag(nllName, x, target, target)
	launch(nllName, s, o, y, nil, nil, mean, count, x, target)
	done = true
	crossEntropyOps.put(o)
	if f.mean {
		y.Free()
		y = mean
	}
	if c.Needs(0) {
		if c.Save(target); f.mean {
			c.Save(count)
		}
	} else if f.mean {
		count.Free()
	}
	return y
}

func (f nllFunc) VJP(c *Context, g *Tensor) []*Tensor {
	s, target, x := c.Scope(), c.Saved(0), c.n.operands[0]
	if s.modes.noGrad && (!f.mean || c.NumSaved() > 1) {
		if dx := f.grad(c, g); dx != nil {
			return []*Tensor{dx, nil}
		}
	}
	if f.mean {
		g = g.Div(f.asCrossEntropy().count(target)).expand(target.layout.Shape)
	}
	classes := s.On(x.dev).Arange(x.shape.At(1)).Unsqueeze(0)
	hot := oneHotOp.Apply([]*Tensor{classes, target.Unsqueeze(1)}).Cast(g.dtype)
	ignored := target.EqScalar(float64(f.ignore)).Unsqueeze(1)
	return []*Tensor{hot.Mul(g.Neg().Unsqueeze(1)).AddScalar(0).MaskedFill(ignored, 0).Cast(x.dtype), nil}
}

// fromOne is the VJP for the gradient 1. It avoids the launch that would fill a tensor with 1.
func (f nllFunc) fromOne(c *Context) []*Tensor {
	if f.mean && c.scope.modes.noGrad && c.NumSaved() > 1 {
		if dx := f.grad(c, nil); dx != nil {
			return []*Tensor{dx, nil}
		}
	}
	return nil
}

// grad launches the device's kernel for the gradient of x. It returns nil if the device has no such
// kernel. A nil g stands for 1.
func (f nllFunc) grad(c *Context, g *Tensor) *Tensor {
	s, target, x := c.Scope(), c.Saved(0), c.n.operands[0]
	want := device.CrossEntropyGrad{DX: resultOf(x.dtype, x.shape), Target: target.operand(), Ignore: f.ignore}
	if g != nil {
		g = g.Cast(x.dtype.Compute())
		g.expandInto(&want.G, &target.layout.Shape)
	}
	var count *Tensor
	if f.mean {
		count = c.Saved(1)
		want.Count = count.operandAs(shape.Of(1))
	}
	o := crossEntropyGradOps.supported(s, x.dev, want)
	if o == nil {
		return nil
	}
	dx := alloc(nllName+".grad", s, x.dev, x.dtype, x.shape)
	launch(nllName, s, o, dx, nil, nil, nil, target, g, count)
	crossEntropyGradOps.put(o)
	return dx
}
