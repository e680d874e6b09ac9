package tensor

import (
	"github.com/flambeau-go/flambeau/cpu/linalg"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// solveFunc solves A·X = B for batches of the same shape. If the field loose is true, a singular
// matrix is not an error: its solution consists of infinities and NaN.
type solveFunc struct{ loose bool }

func (solveFunc) Name() string { return "solve" }

func (f solveFunc) Forward(c *Context, in []*Tensor) *Tensor {
	a, b := in[0], in[1]
	n, k := b.Dim(-2), b.Dim(-1)
	y := onMatrices("solve", c.Scope(), a.batchOf(), in, []shape.Dims{b.layout.Shape}, solveRoutine[float32](n, k, f.loose), solveRoutine[float64](n, k, f.loose))[0]
	c.Save(a, y)
	return y
}

func solveRoutine[T linalg.Float](n, k int, loose bool) routine[T] {
	return func(par linalg.Parallel, in []linalg.Matrix[T], out [][]T) string {
		lu := linalg.Factor(par, n, in[0])
		defer lu.Release()
		if lu.ZeroPivot() != 0 && !loose {
			return singular(lu)
		}
		lu.Solve(par, k, in[1], out[0])
		return ""
	}
}

// VJP computes Z = A⁻ᵀ·G from the gradient G of X. It returns -Z·Xᵀ as the gradient of A, and Z as
// the gradient of B (M. Giles, Collected Matrix Derivative Results for Forward and Reverse Mode
// Algorithmic Differentiation, 2008, 2.3.1).
func (f solveFunc) VJP(c *Context, g *Tensor) []*Tensor {
	z := Apply(f, c.Saved(0).T(), g)
	if !c.Needs(0) {
		return []*Tensor{nil, z}
	}
	return []*Tensor{z.MatMul(c.Saved(1).T()).Neg(), z}
}

// rightHand checks the operands of an equation a·x = b, and returns the broadcast batch. b holds
// matrices. If allowVectors is true, it may hold vectors instead, and isVector reports whether it
// does. If square is true, the matrices of a must be square.
func rightHand(op string, a, b *Tensor, square, allowVectors bool) (batch shape.Dims, isVector bool) {
	in := []*Tensor{a, b}
	youngest(op, in)
	_, m, n := a.mustMatrix(op)
	if square {
		a.mustSquare(op)
	}
	b.mustWide(op)
	sameDevice(op, in)
	if a.dtype != b.dtype {
		e := newError(op, ErrType, in, "operands are "+a.dtype.String()+" and "+b.dtype.String())
		panic(e.hint("Cast one of them"))
	}
	isVector = allowVectors && (b.Rank() == 1 || b.Rank() == a.Rank()-1 && b.layout.Shape == a.layout.Shape.Head(a.Rank()-1))
	rows, bb := 0, shape.Dims{}
	switch {
	case isVector:
		rows, bb = b.Dim(-1), b.layout.Shape.Head(b.Rank()-1)
	case b.Rank() < 2:
		e := newError(op, ErrShape, in, "the right-hand side must be a matrix or a batch of them, it has shape "+b.Shape().String())
		panic(e.hint("Unsqueeze(-1) makes a column of a vector"))
	default:
		rows, bb = b.Dim(-2), b.batchOf()
	}
	if rows != m {
		fail(op, ErrShape, in, "%d by %d matrices do not go with a right-hand side of %d rows; shapes are %s", m, n, rows, shapes(in))
	}
	batch, _, ok := shape.Broadcast(a.batchOf(), bb)
	if !ok {
		fail(op, ErrShape, in, "batch dimensions %v and %v do not broadcast", a.batchOf(), bb)
	}
	return batch, isVector
}

// expandBatch broadcasts the leading dimensions, which are the dimensions of the batch.
func (x *Tensor) expandBatch(batch shape.Dims) *Tensor {
	if x.batchOf() == batch {
		return x
	}
	return x.expand(batch.Append(x.Dim(-2), x.Dim(-1)))
}

// Solve returns the X for which x·X = b, for square matrices x, float32 or float64, as
// torch.linalg.solve does. b is a vector, a batch of vectors (x's shape without its last dimension)
// or matrices [..., n, k]. Batches broadcast. A singular matrix is an error that wraps [ErrLinAlg]
// and names its place in the batch. Solve works on the host ([HostOps]).
func (x *Tensor) Solve(b *Tensor) *Tensor {
	batch, vector := rightHand("solve", x, b, true, true)
	return inOwnType("solve", []*Tensor{x, b}, func(_ *Scope, in []*Tensor) []*Tensor {
		a, b := in[0], in[1]
		if vector {
			b = b.Unsqueeze(-1)
		}
		var y *Tensor
		// If all equations have the same matrix, one factorisation serves all right-hand sides.
		if n := a.Dim(-1); a.Rank() == 2 && b.Rank() > 2 {
			columns := b.MoveAxis(-2, 0)
			y = Apply(solveFunc{}, a, columns.Reshape(n, b.Size()/max(n, 1))).reshape(columns.layout.Shape).MoveAxis(0, -2)
		} else {
			y = Apply(solveFunc{}, a.expandBatch(batch), b.expandBatch(batch))
		}
		if vector {
			y = y.Squeeze(-1)
		}
		return []*Tensor{y}
	})[0]
}

// TriangularOptions say which triangle [Tensor.SolveTriangular] reads and on which side of X the
// matrix is.
type TriangularOptions struct {
	Upper bool // read the upper triangle, not the lower
	Right bool // solve X·x = b, not x·X = b
	Unit  bool // take the diagonal as 1 and do not read it
}

// triangularFunc solves A·X = B with a triangle of A.
type triangularFunc struct{ upper, unit bool }

func (triangularFunc) Name() string { return "solve_triangular" }

func (f triangularFunc) Forward(c *Context, in []*Tensor) *Tensor {
	a, b := in[0], in[1]
	n, k := b.Dim(-2), b.Dim(-1)
	y := onMatrices(f.Name(), c.Scope(), a.batchOf(), in, []shape.Dims{b.layout.Shape}, solveTriangleRoutine[float32](n, k, f), solveTriangleRoutine[float64](n, k, f))[0]
	c.Save(a, y)
	return y
}

func solveTriangleRoutine[T linalg.Float](n, k int, f triangularFunc) routine[T] {
	return func(par linalg.Parallel, in []linalg.Matrix[T], out [][]T) string {
		linalg.SolveTriangle(par, n, k, in[0], f.upper, f.unit, in[1], out[0])
		return ""
	}
}

// VJP is solveFunc's VJP, restricted to the triangle that is read.
func (f triangularFunc) VJP(c *Context, g *Tensor) []*Tensor {
	z := Apply(triangularFunc{!f.upper, f.unit}, c.Saved(0).T(), g)
	if !c.Needs(0) {
		return []*Tensor{nil, z}
	}
	d := z.MatMul(c.Saved(1).T()).Neg()
	off := 0
	if f.unit {
		off = 1
	}
	if f.upper {
		return []*Tensor{d.Triu(off), z}
	}
	return []*Tensor{d.Tril(-off), z}
}

// SolveTriangular returns the X for which x·X = b, or X·x = b with o.Right. x is triangular,
// float32 or float64. b consists of matrices, never of vectors, as for
// torch.linalg.solve_triangular. The other triangle of x is not read. Batches broadcast. A zero on
// the diagonal leads to infinities and NaN, not to an error. SolveTriangular works on the host
// ([HostOps]).
func (x *Tensor) SolveTriangular(b *Tensor, o TriangularOptions) *Tensor {
	const op = "solve_triangular"
	if o.Right {
		b.use(op)
		x.mustSquare(op)
		if b.Rank() < 2 || b.Dim(-1) != x.Dim(-1) {
			fail(op, ErrShape, []*Tensor{x, b}, "X·x = b needs as many columns of b as x has; shapes are %s", shapes([]*Tensor{x, b}))
		}
		y := x.T().SolveTriangular(b.T(), TriangularOptions{Upper: !o.Upper, Unit: o.Unit})
		return y.T()
	}
	batch, _ := rightHand(op, x, b, true, false)
	return inOwnType(op, []*Tensor{x, b}, func(_ *Scope, in []*Tensor) []*Tensor {
		return []*Tensor{Apply(triangularFunc{o.Upper, o.Unit}, in[0].expandBatch(batch), in[1].expandBatch(batch))}
	})[0]
}

// tolerance says which singular values count as 0. A value counts as 0 if it is at most relative
// times the greatest value, or at most absolute.
type tolerance struct{ relative, absolute float64 }

// bound returns the limit up to which values of s, [..., k], count as 0.
func (t tolerance) bound(s *Tensor) *Tensor {
	most := s.Sum(-1, KeepDim)
	if s.Dim(-1) > 0 {
		most = s.Amax(-1, KeepDim)
	}
	return most.MulScalar(t.relative).ClampMin(t.absolute)
}

// tolerance returns the given tolerances, torch's rtol and atol. If none is given, it returns
// torch's default.
func (x *Tensor) tolerance(op string, given []float64) tolerance {
	t := tolerance{relative: x.epsilon()}
	if len(given) > 0 {
		t.relative = given[0]
	}
	if len(given) > 1 {
		t.absolute = given[1]
	}
	if len(given) > 2 || !(t.relative >= 0 && t.absolute >= 0) {
		fail(op, ErrValue, []*Tensor{x}, "the tolerances are %v: there is a relative and an absolute one, which are not negative", given)
	}
	return t
}

// pinvFunc computes pseudo-inverses.
type pinvFunc struct{ tolerance }

func (pinvFunc) Name() string { return "pinv" }

func (f pinvFunc) Forward(c *Context, in []*Tensor) *Tensor {
	p := svdParts(c.Scope(), in[0], false)
	u, s, vh := p[0], p[1], p[2]
	r := Where(s.Gt(f.bound(s)), s.Reciprocal(), s.ZerosLike())
	y := vh.T().Mul(r.Unsqueeze(-2)).MatMul(u.T())
	c.Save(in[0], y)
	return y
}

// VJP uses dY = -Y·dA·Y + Y·Yᵀ·dAᵀ·(I-A·Y) + (I-Y·A)·dAᵀ·Yᵀ·Y, which holds for matrices near A that
// have the same rank (G. Golub and V. Pereyra, The Differentiation of Pseudo-Inverses and Nonlinear
// Least Squares Problems, 1973).
func (f pinvFunc) VJP(c *Context, g *Tensor) []*Tensor {
	a, y := c.Saved(0), c.Saved(1)
	yt, gt := y.T(), g.T()
	gyy := gt.MatMul(y).MatMul(yt) // gyy.Sub(…) below is (I-A·Y)·gyy
	yyg := yt.MatMul(y).MatMul(gt) // yyg.Sub(…) below is yyg·(I-Y·A)
	d := gyy.Sub(a.MatMul(y.MatMul(gyy))).Add(yyg.Sub(yyg.MatMul(y).MatMul(a)))
	return []*Tensor{d.Sub(yt.MatMul(g).MatMul(yt))}
}

// epsilon returns torch's default tolerance of ranks: the spacing of the type's numbers at 1, times
// the size of the longer side.
func (x *Tensor) epsilon() float64 {
	e := 0x1p-23
	if x.dtype.Size() == 8 {
		e = 0x1p-52
	}
	return e * float64(max(x.Dim(-1), x.Dim(-2)))
}

// Pinv returns the Moore-Penrose pseudo-inverses of the matrices in the last two dimensions,
// float32 or float64. Singular values count as 0 if they are at most rtol times the greatest one,
// or at most atol. tolerances are rtol and atol, or rtol only. If no tolerance is given, rtol is
// torch's default: the size of the longer side times the spacing of the type's numbers at 1.
// torch's atol alone is Pinv(0, atol). Pinv works on the host ([HostOps]).
func (x *Tensor) Pinv(tolerances ...float64) *Tensor {
	x.mustMatrix("pinv")
	tol := x.tolerance("pinv", tolerances)
	return inOwnType("pinv", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return []*Tensor{Apply(pinvFunc{tol}, in[0])} })[0]
}

// LstSq returns the X for which x·X - b has the smallest sum of squares. If there are several such
// X, it returns the one with the least norm. It is the solution of torch.linalg.lstsq with its
// driver gelsy, computed with the pseudo-inverse. x is [..., m, n], float32 or float64. b may have
// the shapes that [Tensor.Solve] accepts. LstSq works on the host ([HostOps]).
func (x *Tensor) LstSq(b *Tensor) *Tensor {
	_, vector := rightHand("lstsq", x, b, false, true)
	tol := x.tolerance("lstsq", nil)
	return inOwnType("lstsq", []*Tensor{x, b}, func(_ *Scope, in []*Tensor) []*Tensor {
		b := in[1]
		if vector {
			b = b.Unsqueeze(-1)
		}
		y := Apply(pinvFunc{tol}, in[0]).MatMul(b)
		if vector {
			y = y.Squeeze(-1)
		}
		return []*Tensor{y}
	})[0]
}

// MatrixRank returns, as int64, how many singular values of the matrices in the last two dimensions
// are greater than the tolerances. The tolerances are those of [Tensor.Pinv]. MatrixRank works on
// the host ([HostOps]).
func (x *Tensor) MatrixRank(tolerances ...float64) *Tensor {
	const op = "matrix_rank"
	batch, m, n := x.mustMatrix(op)
	tol := x.tolerance(op, tolerances)
	if min(m, n) == 0 {
		return x.scope.On(x.st.dev).Typed(dtype.I64).Zeros(batch.Slice()...)
	}
	return within(x.scope, func(c *Scope) *Tensor {
		s := inFloat64(op, []*Tensor{x.In(c).Detach()}, func(c *Scope, in []*Tensor) []*Tensor { return svdParts(c, in[0], false)[1:2] })[0]
		return s.Gt(tol.bound(s)).Sum(-1)
	})
}

// CholeskySolve returns the X for which A·X = x, for a matrix A that is given by its factor l. l is
// the lower factor that [Tensor.Cholesky] returns for A, or the upper factor if upper is true.
// Batches broadcast. CholeskySolve works on the host ([HostOps]).
func (x *Tensor) CholeskySolve(l *Tensor, upper bool) *Tensor {
	const op = "cholesky_solve"
	s := youngest(op, []*Tensor{x, l})
	rightHand(op, l, x, true, false)
	return within(s, func(c *Scope) *Tensor {
		f := l.In(c)
		if upper {
			f = f.T()
		}
		half := f.SolveTriangular(x.In(c), TriangularOptions{})
		return f.T().SolveTriangular(half, TriangularOptions{Upper: true})
	})
}
