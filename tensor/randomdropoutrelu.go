package tensor

import "github.com/flambeau-go/flambeau/expr"

// reluDropoutFunc computes relu followed by dropout. Its result is positive exactly where the
// operand is positive and is not dropped. So the gradient needs neither the operand nor the random
// numbers.
type reluDropoutFunc struct{ dropoutFunc }

func (*reluDropoutFunc) Name() string { return "relu_dropout" }

func (f *reluDropoutFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	y := alloc(f.Name(), c.Scope(), x.st.dev, x.dtype, x.layout.Shape)
	y.draw(y.op, c.Scope(), reluDropoutKind, f.seed, f.offset, in, f.limit(), f.scale)
	if c.Needs(0) {
		c.Save(y)
	}
	return y
}

// reluDropoutGrad computes the gradient of the operand from the result X(0) and the result's
// gradient X(1). As with relu an infinite gradient does not become NaN.
var reluDropoutGrad = &Elementwise{Name: "relu_dropout.grad", Arity: 2, Expr: x0.Le(zeroC).Select(zeroC, x1.Mul(p0)),
	Grad: []*expr.Expr{nil, x0.Le(zeroC).Select(zeroC, x2.Mul(p0))}}

func (f *reluDropoutFunc) VJP(c *Context, g *Tensor) []*Tensor {
	in := []*Tensor{c.Saved(0), g}
	if c.mayOverwrite(g) {
		common, result := reluDropoutGrad.resultType(in)
		run(reluDropoutGrad.Name, c.scope, reluDropoutGrad.program(in, common, result), g, in, []float64{f.scale})
		return []*Tensor{g}
	}
	return []*Tensor{reluDropoutGrad.Apply(in, f.scale)}
}

// ReluDropout returns x.Relu().Dropout(p) in one launch, with the same random numbers. The gradient
// takes one launch too, and needs only the result to be saved. In PyTorch these are two calls.
func (x *Tensor) ReluDropout(p float64) *Tensor {
	const op = "relu_dropout"
	if x.checkDropout(op, p) {
		return x.Relu()
	}
	seed, offset := x.scope.modes.gen.Draw(x.Size())
	return Apply(&reluDropoutFunc{dropoutFunc{p, dropoutScale(p), seed, offset}}, x)
}
