package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// cutOp declares an op that sets elements to 0 where column - row is on one side of p0. Operand 1
// is the row, and operand 2 is the column.
func cutOp(name string, side func(d, k *expr.Expr) *expr.Expr) *Elementwise {
	out := side(x2.Sub(x1), expr.Param(0, dtype.I64))
	zero := expr.C(0)
	return &Elementwise{Name: name, Arity: 3, Expr: out.Select(zero, x0), Fixed: 6, Grad: []*expr.Expr{out.Select(zero, expr.X(3)), nil, nil}}
}

var (
	trilOp = cutOp("tril", (*expr.Expr).Gt)
	triuOp = cutOp("triu", (*expr.Expr).Lt)
)

// triangle returns x with zeros in one triangle of the last two dimensions, by trilOp or triuOp.
func (x *Tensor) triangle(op *Elementwise, k int) *Tensor {
	x.use(op.Name)
	if x.Rank() < 2 {
		fail(op.Name, ErrShape, []*Tensor{x}, "needs a matrix or a batch of them, this has shape %v", x.Shape())
	}
	return within(x.scope, func(c *Scope) *Tensor {
		rows, columns := x.Dim(-2), x.Dim(-1)
		at := c.On(x.st.dev).Typed(dtype.I64).Arange(max(rows, columns))
		return op.Apply([]*Tensor{x.In(c), at.Narrow(0, 0, rows).Unsqueeze(1), at.Narrow(0, 0, columns)}, float64(k))
	})
}

// Tril returns the lower triangles of the matrices in the last two dimensions. Elements with column
// - row > k become 0.
func (x *Tensor) Tril(k int) *Tensor { return x.triangle(trilOp, k) }

// Triu returns the upper triangles of the matrices in the last two dimensions. Elements with column
// - row < k become 0.
func (x *Tensor) Triu(k int) *Tensor { return x.triangle(triuOp, k) }

// DiagEmbed returns zeros with x's last dimension on a diagonal of the result's dimensions dim1 and
// dim2. On the diagonal the index in dim2 is the index in dim1 plus offset.
func (x *Tensor) DiagEmbed(offset, dim1, dim2 int) *Tensor {
	const op = "diag_embed"
	x.use(op)
	in := []*Tensor{x}
	if x.Rank() == 0 || x.Rank() == shape.MaxRank {
		fail(op, ErrShape, in, "needs a tensor of 1 to %d dimensions, this has %d", shape.MaxRank-1, x.Rank())
	}
	rank := x.Rank() + 1
	a, ok := shape.Axis(dim1, rank)
	b, ok2 := shape.Axis(dim2, rank)
	if !ok || !ok2 || a == b {
		fail(op, ErrShape, in, "dimensions %d and %d of a result of rank %d: they must exist and differ", dim1, dim2, rank)
	}
	n := x.Dim(-1) + max(offset, -offset)
	to := x.layout.Shape.Head(x.Rank() - 1)
	for _, i := range []int{min(a, b), max(a, b)} {
		to = to.Insert(i, n)
	}
	return Apply(&intoFunc{op: op, shape: to, region: diagonalOf(to, offset, a, b)}, x)
}

// Diag returns the matrix that has the vector x on its k-th diagonal. For a matrix x it returns a
// copy of the k-th diagonal.
func (x *Tensor) Diag(k int) *Tensor {
	x.use("diag")
	switch x.Rank() {
	case 1:
		return x.DiagEmbed(k, 0, 1)
	case 2:
		return within(x.scope, func(c *Scope) *Tensor { return x.In(c).Diagonal(k, 0, 1).Clone() })
	}
	fail("diag", ErrShape, []*Tensor{x}, "needs a vector or a matrix, this has shape %v", x.Shape())
	return nil
}
