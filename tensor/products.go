package tensor

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// addProductOp computes p0·x + p1·y. If p0 is 0, x is ignored.
var addProductOp = &Elementwise{Name: "addmm", Arity: 2, Expr: p0.Eq(expr.C(0)).Select(expr.C(0), p0.Mul(x0)).Add(p1.Mul(x1)),
	NoGrad: true, Params: []float64{1, 1}}

// addProductFunc computes beta·x + alpha·a·b. As in torch, its gradients are first computed as
// products and then multiplied by alpha. So if alpha is 0, a gradient is a zero with the sign of
// its product.
type addProductFunc struct {
	op          string
	beta, alpha float64
}

func (f addProductFunc) Name() string { return f.op }

func (f addProductFunc) Forward(c *Context, in []*Tensor) *Tensor {
	if c.Needs(1) || c.Needs(2) {
		c.Save(in[1], in[2])
	}
	return addProductOp.Apply([]*Tensor{in[0], in[1].MatMul(in[2])}, f.beta, f.alpha)
}

func (f addProductFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, 3)
	if c.Needs(0) {
		grads[0] = g.scaled(f.beta).sumTo(c.n.operands[0].shape)
	}
	if c.Needs(1) {
		grads[1] = g.MatMul(c.Saved(1).T()).scaled(f.alpha)
	}
	if c.Needs(2) {
		grads[2] = c.Saved(0).T().MatMul(g).scaled(f.alpha)
	}
	return grads
}

// scaled returns v·x, or x itself if v is 1.
func (x *Tensor) scaled(v float64) *Tensor {
	if v == 1 {
		return x
	}
	return x.MulScalar(v)
}

func vectors(op string, x, y *Tensor) {
	in := []*Tensor{x, y}
	youngest(op, in)
	if x.Rank() != 1 || y.Rank() != 1 {
		fail(op, ErrShape, in, "needs two vectors; shapes are %s", shapes(in))
	}
}

// Outer returns the matrix x[i]·y[j] for vectors x and y.
func (x *Tensor) Outer(y *Tensor) *Tensor {
	vectors("outer", x, y)
	return x.Unsqueeze(1).Mul(y)
}

// Dot returns Σ x[i]·y[i], a scalar, for vectors of the same size and type.
func (x *Tensor) Dot(y *Tensor) *Tensor {
	vectors("dot", x, y)
	if x.Dim(0) != y.Dim(0) {
		fail("dot", ErrShape, []*Tensor{x, y}, "the vectors have %d and %d elements", x.Dim(0), y.Dim(0))
	}
	return Apply(dotFunc{}, x, y)
}

// dotFunc computes the dot product of two vectors. The gradient of a vector is the other vector
// times a scalar. A matrix product would compute that gradient as a sum that starts with +0. This
// would turn -0 into 0.
type dotFunc struct{}

func (dotFunc) Name() string { return "dot" }

func (dotFunc) Forward(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) || c.Needs(1) {
		c.Save(in...)
	}
	return in[0].MatMul(in[1])
}

func (dotFunc) lean(c *Context, in []*Tensor) *Tensor {
	x, y, s := in[0], in[1], c.Scope()
	if x.dtype != y.dtype || x.dtype == boolType { // Forward raises the error
		return nil
	}
	out := alloc("matmul", s, x.st.dev, x.dtype, shape.Dims{})
	m := matmulOps.reuse(device.MatMul{TF32: s.takesTF32(x.dtype), Out: out.operandAs(shape.Of(1, 1, 1)), A: x.operand(), B: y.operand()})
	m.A.Layout = x.layout.Unsqueeze(0).Unsqueeze(0)
	m.B.Layout = y.layout.Unsqueeze(1).Unsqueeze(0)
	launch("matmul", s, m, out, nil, nil, x, y)
	matmulOps.put(m)
	if c.Needs(0) || c.Needs(1) {
		c.Save(in...)
	}
	return out
}

func (dotFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, 2)
	for k := range grads {
		if c.Needs(k) {
			grads[k] = c.Saved(1 - k).Mul(g)
		}
	}
	return grads
}

// Bmm returns the products of the matrices of two batches, [b, n, m]·[b, m, p]. Unlike
// [Tensor.MatMul] it does not broadcast.
func (x *Tensor) Bmm(y *Tensor) *Tensor {
	checkBmm("bmm", x, y)
	return x.MatMul(y)
}

func checkBmm(op string, x, y *Tensor) {
	in := []*Tensor{x, y}
	youngest(op, in)
	if x.Rank() != 3 || y.Rank() != 3 || x.Dim(0) != y.Dim(0) || x.Dim(2) != y.Dim(1) {
		e := newError(op, ErrShape, in, "needs batches of matrices [b, n, m] and [b, m, p]; shapes are "+shapes(in))
		panic(e.hint("MatMul broadcasts batches"))
	}
}

// Addmm returns beta·x + alpha·a·b for matrices a and b. x broadcasts to the shape of their
// product. As in torch x is not read if beta is 0, so NaN in x does not matter.
func (x *Tensor) Addmm(a, b *Tensor, beta, alpha float64) *Tensor {
	in := []*Tensor{a, b}
	youngest("addmm", []*Tensor{x, a, b})
	if a.Rank() != 2 || b.Rank() != 2 || a.Dim(1) != b.Dim(0) {
		fail("addmm", ErrShape, in, "needs matrices [n, m] and [m, p]; shapes are %s", shapes(in))
	}
	return x.addProduct("addmm", a, b, beta, alpha)
}

// Baddbmm returns beta·x + alpha·a·b for batches of matrices, [b, n, m] and [b, m, p]. x broadcasts
// to the shape of their products.
func (x *Tensor) Baddbmm(a, b *Tensor, beta, alpha float64) *Tensor {
	youngest("baddbmm", []*Tensor{x, a, b})
	checkBmm("baddbmm", a, b)
	return x.addProduct("baddbmm", a, b, beta, alpha)
}

func (x *Tensor) addProduct(op string, a, b *Tensor, beta, alpha float64) *Tensor {
	if y := underAutocast(op, AutocastLow, func(in []*Tensor) *Tensor { return in[0].addProduct(op, in[1], in[2], beta, alpha) }, x, a, b); y != nil {
		return y
	}
	in := []*Tensor{x, a, b}
	to := a.layout.Shape.With(a.Rank()-1, b.Dim(-1))
	if _, ok := x.layout.Expand(to); !ok {
		fail(op, ErrShape, in, "shape %v does not expand to %v, that of the product", x.Shape(), to)
	}
	if x.dtype != a.dtype || a.dtype != b.dtype {
		e := newError(op, ErrType, in, "operands are "+x.dtype.String()+", "+a.dtype.String()+" and "+b.dtype.String())
		panic(e.hint("Cast to one type"))
	}
	if !x.dtype.IsFloat() && (beta != math.Trunc(beta) || alpha != math.Trunc(alpha)) {
		fail(op, ErrType, in, "%v tensors cannot be scaled by %v and %v, which are not whole", x.dtype, beta, alpha)
	}
	sameDevice(op, in)
	return Apply(addProductFunc{op, beta, alpha}, x, a, b)
}

// Kron returns the Kronecker product: a block matrix with one block for each element of x, which is
// this element times y. If the ranks differ, the tensor of lower rank is extended by dimensions of
// size 1 in front.
func (x *Tensor) Kron(y *Tensor) *Tensor {
	const op = "kron"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	rank := max(x.Rank(), y.Rank())
	a, b := padTo(x.layout.Shape, rank), padTo(y.layout.Shape, rank)
	var out, wide, tall shape.Dims
	for i := range rank {
		out = out.Append(a.At(i) * b.At(i))
	}
	// A product of the two operands with interleaved dimensions would have more than MaxRank
	// dimensions. So repeat both operands instead.
	if 2*rank > shape.MaxRank {
		return within(s, func(c *Scope) *Tensor {
			p, times := x.In(c).reshape(a), make([]int, rank)
			for i := range rank {
				p = p.RepeatInterleave(b.At(i), i)
				times[i] = a.At(i)
			}
			return p.Mul(y.In(c).reshape(b).Repeat(times...))
		})
	}
	for i := range rank {
		wide, tall = wide.Append(a.At(i), 1), tall.Append(1, b.At(i))
	}
	return within(s, func(c *Scope) *Tensor { return x.In(c).reshape(wide).Mul(y.In(c).reshape(tall)).reshape(out) })
}

// traceOp is a sum. It is declared separately because autocast must not change it: torch's trace is
// a kernel of its own.
var traceOp = &Reduction{Name: "sum", Kind: device.Sum, Map: expr.X(0), Grad: expr.X(1)}

// Trace returns the sum of the diagonal of a matrix. For integers it is int64, as in torch.trace.
func (x *Tensor) Trace() *Tensor {
	x.use("trace")
	if x.Rank() != 2 {
		e := newError("trace", ErrShape, []*Tensor{x}, fmt.Sprintf("needs a matrix, this has shape %v", x.Shape()))
		panic(e.hint("x.Diagonal(0, -2, -1).Sum(-1) is that of each matrix of a batch"))
	}
	if x.dtype == boolType {
		fail("trace", ErrType, []*Tensor{x}, "is not defined for bool")
	}
	d := x.Diagonal(0, 0, 1)
	defer d.Free()
	return traceOp.Apply(d)
}

// Cross returns the cross products of vectors of three elements along dim, as torch.linalg.cross
// does. x and y have the same rank and the same type, and are broadcast. torch's dim is -1.
func (x *Tensor) Cross(y *Tensor, dim int) *Tensor {
	if y := underAutocast("cross", AutocastWidest, func(in []*Tensor) *Tensor { return in[0].Cross(in[1], dim) }, x, y); y != nil {
		return y
	}
	const op = "cross"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	if x.Rank() != y.Rank() {
		fail(op, ErrShape, in, "operands have %d and %d dimensions", x.Rank(), y.Rank())
	}
	if x.dtype != y.dtype || x.dtype == boolType {
		fail(op, ErrType, in, "operands are %v and %v; both must have one type, not bool", x.dtype, y.dtype)
	}
	a := x.axis(op, dim)
	if x.Rank() == 0 || x.Dim(a) != 3 || y.Dim(a) != 3 {
		fail(op, ErrShape, in, "the vectors lie along dimension %d, which must have size 3; shapes are %s", dim, shapes(in))
	}
	full := broadcast(op, in)
	return within(s, func(c *Scope) *Tensor {
		p, q := x.In(c).expand(full), y.In(c).expand(full)
		turn := func(t *Tensor, by int) *Tensor { return t.Roll([]int{-by}, []int{a}) }
		return turn(p, 1).Mul(turn(q, 2)).Sub(turn(p, 2).Mul(turn(q, 1)))
	})
}
