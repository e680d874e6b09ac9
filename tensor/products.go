package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
)

// addProductOp is p0·x + p1·y, where x does not count for p0 = 0.
var addProductOp = &Elementwise{Name: "addmm", Arity: 2, Expr: p0.Eq(expr.C(0)).Select(expr.C(0), p0.Mul(x0)).Add(p1.Mul(x1)),
	Grad: []*expr.Expr{p0.Mul(x2), p1.Mul(x2)}, Params: []float64{1, 1}}

// vectors checks that x and y are vectors.
func vectors(op string, x, y *Tensor) {
	in := []*Tensor{x, y}
	youngest(op, in)
	if x.Rank() != 1 || y.Rank() != 1 {
		fail(op, ErrShape, in, "needs two vectors; shapes are %s", shapes(in))
	}
}

// Outer returns the matrix of x[i]·y[j] for vectors x and y.
func (x *Tensor) Outer(y *Tensor) *Tensor {
	vectors("outer", x, y)
	return x.Unsqueeze(1).Mul(y)
}

// Dot returns Σ x[i]·y[i], a scalar, for vectors of one size and type.
func (x *Tensor) Dot(y *Tensor) *Tensor {
	vectors("dot", x, y)
	if x.Dim(0) != y.Dim(0) {
		fail("dot", ErrShape, []*Tensor{x, y}, "the vectors have %d and %d elements", x.Dim(0), y.Dim(0))
	}
	return x.MatMul(y)
}

// Bmm returns the products of the matrices of two batches, [b, n, m]·[b, m, p]; unlike [Tensor.MatMul] it does not broadcast.
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

// Addmm returns beta·x + alpha·a·b for matrices a and b, with x broadcast to their product. As in torch x is not read for
// beta = 0, so that NaN in it does not matter.
func (x *Tensor) Addmm(a, b *Tensor, beta, alpha float64) *Tensor {
	in := []*Tensor{a, b}
	youngest("addmm", []*Tensor{x, a, b})
	if a.Rank() != 2 || b.Rank() != 2 || a.Dim(1) != b.Dim(0) {
		fail("addmm", ErrShape, in, "needs matrices [n, m] and [m, p]; shapes are %s", shapes(in))
	}
	return x.addProduct("addmm", a, b, beta, alpha)
}

// Baddbmm returns beta·x + alpha·a·b for batches of matrices, [b, n, m] and [b, m, p], with x broadcast to their products.
func (x *Tensor) Baddbmm(a, b *Tensor, beta, alpha float64) *Tensor {
	youngest("baddbmm", []*Tensor{x, a, b})
	checkBmm("baddbmm", a, b)
	return x.addProduct("baddbmm", a, b, beta, alpha)
}

func (x *Tensor) addProduct(op string, a, b *Tensor, beta, alpha float64) *Tensor {
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
	return within(youngest(op, in), func(c *Scope) *Tensor {
		return addProductOp.Apply([]*Tensor{x.In(c), a.In(c).MatMul(b)}, beta, alpha)
	})
}
