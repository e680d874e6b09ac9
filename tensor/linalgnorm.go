package tensor

import (
	"fmt"
	"math"
	"slices"
)

// SVDVals returns only the singular values of [Tensor.SVD].
func (x *Tensor) SVDVals() *Tensor {
	x.mustMatrix("svd")
	return inFloat64("svd", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return svdReduced.apply(in[0])[1:2] })[0]
}

// EigValsH returns only the eigenvalues of [Tensor.Eigh].
func (x *Tensor) EigValsH() *Tensor {
	x.mustSquare("eigh")
	return inFloat64("eigh", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return eigh.apply(in[0])[:1] })[0]
}

// MatrixNorm returns the norm of order p of the matrices in the last two dimensions of x. The type
// of x must be floating point. Order 1 is the greatest sum of absolute values of a column, and
// order infinity is the greatest such sum of a row. Order 2 is the greatest singular value. For
// this order x must be float32 or float64, and the op works on the host like [Tensor.SVD]. For the
// orders -1, -infinity and -2 the smallest value is taken instead of the greatest. If there are no
// values, the greatest value is 0, and the smallest value is an error. torch's default, the
// Frobenius norm, is x.Norm(2, -2, -1). The nuclear norm is x.SVDVals().Sum(-1).
//
// dims may name two other dimensions, of the rows and of the columns. Add [KeepDim] to keep them
// with size 1.
func (x *Tensor) MatrixNorm(p float64, dims ...int) *Tensor {
	if y := underAutocast("matrix_norm", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].MatrixNorm(p, dims...) }, x); y != nil {
		return y
	}
	const op = "matrix_norm"
	x.use(op)
	x.mustFloat(op)
	if x.Rank() < 2 {
		fail(op, ErrShape, []*Tensor{x}, "needs a matrix or a batch of them, this has shape %v", x.Shape())
	}
	pair, kept := []int{x.Rank() - 2, x.Rank() - 1}, x.layout.Shape
	mask, keep := x.axes(op, dims)
	if named := slices.DeleteFunc(slices.Clone(dims), func(d int) bool { return d == KeepDim }); len(named) > 0 {
		if len(named) != 2 {
			fail(op, ErrShape, []*Tensor{x}, "%d dimensions are given, a matrix has two", len(named))
		}
		pair[0], pair[1] = x.axis(op, named[0]), x.axis(op, named[1])
	} else {
		mask = 1<<pair[0] | 1<<pair[1]
	}
	_, kept, _ = reducedShapes(kept, mask, keep)
	a := math.Abs(p)
	if a != 1 && a != 2 && !math.IsInf(a, 1) {
		e := newError(op, ErrValue, []*Tensor{x}, fmt.Sprintf("there is no norm of order %v: orders are ±1, ±2 and ±infinity", p))
		panic(e.hint("the Frobenius norm is Norm(2, -2, -1), the nuclear norm SVDVals().Sum(-1)"))
	}
	return within(x.scope, func(c *Scope) *Tensor {
		y := x.In(c).MoveAxes(pair, []int{-2, -1})
		switch a {
		case 1:
			y = y.Abs().Sum(-2)
		case 2:
			y = y.SVDVals()
		default:
			y = y.Abs().Sum(-1)
		}
		switch {
		case p < 0:
			y = y.Amin(-1)
		case y.Dim(-1) == 0: // as in torch the norm of no values is 0
			y = y.Sum(-1)
		default:
			y = y.Amax(-1)
		}
		return y.reshape(kept)
	})
}
