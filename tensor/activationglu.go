package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

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
	y := alloc("glu", s, x.st.dev, x.dtype, x.layout.Shape.With(f.dim, x.layout.Shape.At(f.dim)/2))
	m := mapOps.get()
	m.Program = gluOp.program([]*Tensor{x, x}, x.dtype, x.dtype)
	m.Outs = append(m.Outs[:0], y.operand())
	m.Ins = append(m.Ins[:0], f.half(x, 0), f.half(x, 1))
	launch("glu", s, m, y, x, x)
	putMap(m)
	if c.Needs(0) {
		c.Save(x)
	}
	return y
}

// half returns one half of x as an operand.
func (f gluFunc) half(x *Tensor, k int) device.View {
	n := x.layout.Shape.At(f.dim) / 2
	return device.View{Type: x.dtype, Layout: x.layout.Narrow(f.dim, k*n, n, 1)}
}

var gluGradPrograms cache[dtype.Type, *expr.Program]

// gluGradProgram returns a program that computes the gradients of both halves from the halves and
// g. The gradients have the same bits as those of separate ops.
func gluGradProgram(t dtype.Type) *expr.Program {
	return gluGradPrograms.get(t, func() *expr.Program {
		s, g := x1.Sigmoid(), expr.X(2)
		outs := []*expr.Expr{g.Mul(s), unit.Sub(s).Mul(s).Mul(g).Mul(x0)}
		return expr.MustLower(outs, []dtype.Type{t, t}, []dtype.Type{t, t, t}, -1)
	})
}

func (f gluFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, scope := c.Saved(0), c.Scope()
	if scope.modes.noGrad && !scope.modes.composed && x.dtype == x.dtype.Compute() {
		d := alloc("glu.grad", scope, x.st.dev, x.dtype, x.layout.Shape)
		m := mapOps.get()
		m.Program = gluGradProgram(x.dtype)
		m.Outs = append(m.Outs[:0], f.half(d, 0), f.half(d, 1))
		m.Ins = append(m.Ins[:0], f.half(x, 0), f.half(x, 1), g.operand())
		launch("glu.grad", scope, m, d, d, x, x, g)
		putMap(m)
		return []*Tensor{d}
	}
	a, s := f.halves(x)
	return []*Tensor{Cat(f.dim, g.Mul(s), s.RSubScalar(1).Mul(s).Mul(g).Mul(a))}
}
