package tensor

import "github.com/flambeau-go/flambeau/shape"

// EmbeddingRenormInPlace shortens those rows of x, a matrix, that index names and whose norm of
// order p is more than maxNorm, to that norm: they are multiplied by maxNorm/(norm + 1e-7). It is
// torch's embedding_renorm_, and with [Tensor.Embedding] behind it F.embedding with max_norm. A row
// that is named twice is shortened once. Like every change in place it is refused for a leaf that
// requires a gradient, outside of NoGrad; it has no gradient.
func (x *Tensor) EmbeddingRenormInPlace(index *Tensor, maxNorm, p float64) *Tensor {
	const op = "embedding_renorm"
	checkIndex(op, x, index)
	in := []*Tensor{x, index}
	if x.Rank() != 2 {
		fail(op, ErrShape, in, "the table must be a matrix, it has shape %v", x.Shape())
	}
	x.mustFloat(op)
	if !(maxNorm >= 0) {
		fail(op, ErrValue, in, "the greatest norm is %v, it must not be negative", maxNorm)
	}
	s := x.writable(op, index)
	if index.Size() == 0 {
		return x
	}
	c := s.child()
	defer c.recycle()
	c.modes.noGrad = true
	at := index.In(c).reshape(shape.Of(index.Size()))
	rows := x.detachedIn(c).indexSelect(op, 0, at)
	norm := rows.Norm(p, 1, KeepDim).Cast(x.dtype.Compute())
	factor := norm.AddScalar(1e-7).RDivScalar(maxNorm).MaskedFill(norm.GtScalar(maxNorm).LogicalNot(), 1)
	x.detachedIn(c).IndexCopyInPlace(0, at, rows.Cast(factor.dtype).Mul(factor).Cast(x.dtype))
	return x
}
