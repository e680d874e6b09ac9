package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// cutPrograms holds programs that set elements X(0) to 0 where column - row is on one side of
// Param(0). X(1) is the row, and X(2) is the column.
var cutPrograms cache[cutKey, *expr.Program]

type cutKey struct {
	t     dtype.Type
	upper bool
}

func cutProgram(k cutKey) *expr.Program {
	return cutPrograms.get(k, func() *expr.Program {
		d, p, op := x2.Sub(x1), expr.Param(0, dtype.I64), triangleFunc{upper: k.upper}
		out := d.Gt(p)
		if k.upper {
			out = d.Lt(p)
		}
		e := out.Select(expr.C(0), x0).Named(op.Name())
		return expr.MustLower([]*expr.Expr{e}, []dtype.Type{k.t}, []dtype.Type{k.t, dtype.I64, dtype.I64}, -1)
	})
}

// triangleFunc returns the operand with zeros in one triangle of the last two dimensions.
type triangleFunc struct {
	upper bool // true to keep the upper triangle, false to keep the lower one
	k     int
}

func (f triangleFunc) Name() string {
	if f.upper {
		return "triu"
	}
	return "tril"
}

func (f triangleFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, s, sh := in[0], c.Scope(), in[0].layout.Shape
	y := alloc(f.Name(), s, x.st.dev, x.dtype, sh)
	rows, columns := x.Dim(-2), x.Dim(-1)
	at := s.On(x.st.dev).Typed(dtype.I64).Arange(max(rows, columns))
	defer at.Free()
	m := mapOps.get()
	m.Program = cutProgram(cutKey{x.dtype, f.upper})
	m.Params = encode(m.Program, []float64{float64(f.k)})
	m.Outs, m.Ins = room(m.Outs, 1), room(m.Ins, 3)
	m.Outs[0], m.Ins[0] = y.operand(), x.operand()
	var still shape.Dims
	for range sh.Rank() {
		still = still.Append(0)
	}
	for i := range 2 { // the positions along the last two dimensions
		m.Ins[1+i] = device.View{Type: dtype.I64, Layout: shape.Layout{Shape: sh, Strides: still.With(sh.Rank()-2+i, 1), Offset: at.layout.Offset}}
	}
	launch(f.Name(), s, m, y, x, at, at)
	putMap(m)
	return y
}

func (f triangleFunc) VJP(_ *Context, g *Tensor) []*Tensor { return []*Tensor{Apply(f, g)} }

func (x *Tensor) triangle(f triangleFunc) *Tensor {
	x.use(f.Name())
	if x.Rank() < 2 {
		fail(f.Name(), ErrShape, []*Tensor{x}, "needs a matrix or a batch of them, this has shape %v", x.Shape())
	}
	return Apply(f, x)
}

// Tril returns the lower triangles of the matrices in the last two dimensions. Elements with column
// - row > k become 0.
func (x *Tensor) Tril(k int) *Tensor { return x.triangle(triangleFunc{k: k}) }

// Triu returns the upper triangles of the matrices in the last two dimensions. Elements whose
// column is less than row + k become 0.
func (x *Tensor) Triu(k int) *Tensor { return x.triangle(triangleFunc{upper: true, k: k}) }

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
