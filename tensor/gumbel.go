package tensor

// Softmin returns softmax of -x along dim: the least element has the greatest part.
func (x *Tensor) Softmin(dim int) *Tensor {
	x.use("softmin")
	x.mustFloat("softmin")
	x.axis("softmin", dim)
	return within(x.scope, func(c *Scope) *Tensor { return x.In(c).Neg().Softmax(dim) })
}

// GumbelSoftmax returns samples of the categorical distributions with logits x along dim, made smooth: softmax((x + g) / tau) for noise g
// of the standard Gumbel distribution (E. Jang et al., arXiv:1611.01144; C. Maddison et al., arXiv:1611.00712). With hard they are 1 at
// the greatest and 0 elsewhere, but for rounding, and have the gradient of the smooth ones. tau is positive; the noise comes from the
// generator of x's scope.
func (x *Tensor) GumbelSoftmax(tau float64, hard bool, dim int) *Tensor {
	const op = "gumbel_softmax"
	x.use(op)
	in := []*Tensor{x}
	x.mustFloat(op)
	a := x.axis(op, dim)
	if !(tau > 0) {
		fail(op, ErrValue, in, "the temperature is %v, it must be positive", tau)
	}
	return within(x.scope, func(c *Scope) *Tensor {
		t := x.dtype.Compute()
		x := x.In(c).Cast(t)
		// -log of an exponential number, which is kept away from 0.
		noise := c.On(x.st.dev).Typed(t).Rand(x.layout.Shape.Slice()...).Neg().Log1p().Neg().ClampMin(0x1p-30).Log().Neg()
		y := x.Add(noise).DivScalar(tau).Softmax(dim)
		if hard && x.Rank() > 0 {
			top := y.Argmax(a).OneHot(x.Dim(a)).MoveAxis(-1, a).Cast(t)
			y = top.Sub(y.Detach()).Add(y)
		}
		return y.Cast(in[0].dtype)
	})
}
