package tensor

// Glu returns the gated linear unit: the first half of x along dimension dim times the sigmoid of
// the second half (Y. Dauphin et al., arXiv:1612.08083). The dimension's size must be even.
func (x *Tensor) Glu(dim int) *Tensor {
	x.use("glu")
	in := []*Tensor{x}
	rank := x.Rank()
	if dim < -rank || dim >= rank {
		fail("glu", ErrShape, in, "dimension %d of a tensor of rank %d", dim, rank)
	}
	n := x.layout.Shape.At((dim + rank) % rank)
	if n%2 != 0 {
		fail("glu", ErrShape, in, "dimension %d has the odd size %d, it cannot be halved", dim, n)
	}
	return Apply(gluFunc{(dim + rank) % rank}, x)
}

// gluFunc concatenates the gradients of both halves. Adding two zero-padded gradients instead would
// turn -0 into 0.
type gluFunc struct{ dim int }

func (gluFunc) Name() string { return "glu" }

func (f gluFunc) halves(x *Tensor) (a, s *Tensor) {
	n := x.layout.Shape.At(f.dim) / 2
	return x.Narrow(f.dim, 0, n), x.Narrow(f.dim, n, n).Sigmoid()
}

func (f gluFunc) Forward(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) {
		c.Save(in[0])
	}
	a, s := f.halves(in[0])
	return a.Mul(s)
}

func (f gluFunc) VJP(c *Context, g *Tensor) []*Tensor {
	a, s := f.halves(c.Saved(0))
	return []*Tensor{Cat(f.dim, g.Mul(s), s.RSubScalar(1).Mul(s).Mul(g).Mul(a))}
}
