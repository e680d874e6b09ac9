package tensor

import "github.com/flambeau-go/flambeau/dtype"

// gluOp computes an element of the result from an element of each half. For types that are computed
// in their own precision, the result has the same bits as separate ops.
var gluOp = &Elementwise{Name: "glu", Arity: 2, Result: Floating, Expr: x0.Mul(x1.Sigmoid()), NoGrad: true}

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
	if y := f.lean(c, in); y != nil {
		return y
	}
	if c.Needs(0) {
		c.Save(in[0])
	}
	a, s := f.halves(in[0])
	return a.Mul(s)
}

func (f gluFunc) lean(c *Context, in []*Tensor) *Tensor {
	x, s := in[0], c.Scope()
	if s.modes.composed || x.dtype != dtype.F32 && x.dtype != dtype.F64 {
		return nil
	}
	n := x.layout.Shape.At(f.dim) / 2
	y := alloc("glu", s, x.st.dev, x.dtype, x.layout.Shape.With(f.dim, n))
	m := mapOps.get()
	m.Program = gluOp.program([]*Tensor{x, x}, x.dtype, x.dtype)
	m.Outs, m.Ins = room(m.Outs, 1), room(m.Ins, 2)
	m.Outs[0] = y.operand()
	for k := range m.Ins {
		m.Ins[k].Type, m.Ins[k].Layout = x.dtype, x.layout.Narrow(f.dim, k*n, n, 1)
	}
	launch("glu", s, m, y, x, x)
	putMap(m)
	if c.Needs(0) {
		c.Save(x)
	}
	return y
}

func (f gluFunc) VJP(c *Context, g *Tensor) []*Tensor {
	a, s := f.halves(c.Saved(0))
	return []*Tensor{Cat(f.dim, g.Mul(s), s.RSubScalar(1).Mul(s).Mul(g).Mul(a))}
}
