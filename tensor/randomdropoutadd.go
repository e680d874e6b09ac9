package tensor

import "github.com/flambeau-go/flambeau/dtype"

// dropoutAddFunc adds a residual, operand 0, and the dropout of operand 1.
type dropoutAddFunc struct{ dropoutFunc }

func (*dropoutAddFunc) Name() string { return "dropout_add" }

func (f *dropoutAddFunc) Forward(c *Context, in []*Tensor) *Tensor {
	residual, x := in[0], in[1]
	y := alloc(f.Name(), c.Scope(), x.st.dev, residual.dtype, x.layout.Shape)
	return y.draw(y.op, c.Scope(), dropoutAddKind, f.seed, f.offset, []*Tensor{x, residual}, f.limit(), f.scale)
}

func (f *dropoutAddFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := []*Tensor{g, nil}
	t := c.n.operands[1].dtype
	switch {
	case !c.Wants(1):
	case !c.scope.modes.noGrad:
		grads[1] = Apply(&f.dropoutFunc, g.Cast(t))
	default:
		d := alloc(f.Name()+".grad", c.scope, g.st.dev, t, g.layout.Shape)
		grads[1] = d.draw(d.op, c.scope, dropoutKind, f.seed, f.offset, []*Tensor{g}, f.limit(), f.scale)
	}
	return grads
}

// DropoutAdd returns residual + x.Dropout(p) in one launch, with the same random numbers. It is for
// the end of a residual block. The dropout's result is rounded to x's type before it is added, and
// the sum has the promoted type. The gradient of residual is the gradient of the result, and the
// gradient of x takes one launch. In PyTorch the dropout and the sum are two calls.
func (x *Tensor) DropoutAdd(residual *Tensor, p float64) *Tensor {
	const op = "dropout_add"
	none := x.checkDropout(op, p)
	in := []*Tensor{residual, x}
	youngest(op, in)
	sameDevice(op, in)
	switch t := residual.dtype; {
	case none:
		return residual.Add(x)
	case residual.layout.Shape != x.layout.Shape, t != x.dtype && (t != dtype.F32 || !x.dtype.IsHalf()):
		y := x.Dropout(p)
		defer y.Free() // the graph keeps the memory that it needs
		return residual.Add(y)
	}
	seed, offset := x.scope.modes.gen.Draw(x.Size())
	return Apply(&dropoutAddFunc{dropoutFunc{p, dropoutScale(p), seed, offset}}, in...)
}
