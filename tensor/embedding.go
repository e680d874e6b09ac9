package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Embedding returns the rows of the matrix x that index selects. The shape is index.Shape() +
// [x.Dim(1)].
func (x *Tensor) Embedding(index *Tensor) *Tensor {
	checkIndex("embedding", x, index)
	if x.Rank() != 2 {
		fail("embedding", ErrShape, []*Tensor{x, index}, "the table must be a matrix, it has shape %v", x.Shape())
	}
	if index.Rank() == shape.MaxRank {
		fail("embedding", ErrShape, []*Tensor{x, index}, "the index has %d dimensions, the result cannot have one more", index.Rank())
	}
	return x.indexSelectBy("embedding", 0, index.reshape(shape.Of(index.Size())), index, false).reshape(index.layout.Shape.Append(x.Dim(1)))
}

// EmbeddingPadded is [Tensor.Embedding], but the row of x with the index padding receives no
// gradient. Programs use this index to pad sequences. EmbeddingPadded is torch's F.embedding with
// padding_idx. A negative padding counts from the last row.
func (x *Tensor) EmbeddingPadded(index *Tensor, padding int) *Tensor {
	const op = "embedding"
	x.use(op)
	if x.Rank() == 2 {
		n := x.layout.Shape.At(0)
		if padding < -n || padding >= n {
			fail(op, ErrIndex, []*Tensor{x, index}, "the padding index %d is out of range for %d rows", padding, n)
		}
		if padding < 0 {
			padding += n
		}
	}
	y := x.Embedding(index)
	if !y.needsGrad {
		return y
	}
	return Apply(stopFunc{op}, y, index.EqScalar(float64(padding)).reshape(index.layout.Shape.Append(1)))
}

// stopFunc returns its first operand. The gradient passes only where the second operand is false.
type stopFunc struct{ op string }

func (f stopFunc) Name() string { return f.op }

func (f stopFunc) Forward(c *Context, in []*Tensor) *Tensor {
	c.Save(in[1])
	return in[0]
}

func (f stopFunc) VJP(c *Context, g *Tensor) []*Tensor {
	return []*Tensor{g.MaskedFill(c.Saved(0), 0), nil}
}

// EmbeddingRenormInPlace limits the norm of the rows of the matrix x that index selects. If the
// norm of order p of such a row is greater than maxNorm, it multiplies the row by maxNorm/(norm +
// 1e-7). It is torch's embedding_renorm_. Call [Tensor.Embedding] after it to get F.embedding with
// max_norm. A row that is selected twice is shortened once. Like every change in place it refuses a
// leaf that requires a gradient, except in NoGrad. It has no gradient.
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
	rows := x.detachedIn(c).indexSelectBy(op, 0, at, index, false)
	norm := rows.Norm(p, 1, KeepDim).Cast(x.dtype.Compute())
	factor := norm.AddScalar(1e-7).RDivScalar(maxNorm).MaskedFill(norm.GtScalar(maxNorm).LogicalNot(), 1)
	x.detachedIn(c).IndexCopyInPlace(0, at, rows.Cast(factor.dtype).Mul(factor).Cast(x.dtype))
	return x
}

// OneHot returns one int64 row for each index in x. The row is 1 at the index and 0 elsewhere. x is
// int64 or int32, and its indices are 0 … classes-1. The shape is x.Shape() + [classes]. An index
// out of range is an error, which a GPU reports at the next wait.
func (x *Tensor) OneHot(classes int) *Tensor {
	checkIndex("one_hot", x, x)
	in := []*Tensor{x}
	if classes < 0 || classes == 0 && x.Size() > 0 {
		fail("one_hot", ErrValue, in, "%d classes", classes)
	}
	if x.Rank() == shape.MaxRank {
		fail("one_hot", ErrShape, in, "the result would have more than %d dimensions", shape.MaxRank)
	}
	to := x.layout.Shape.Append(classes)
	if x.Size() == 0 {
		return x.scope.On(x.st.dev).Typed(dtype.I64).Zeros(to.Slice()...)
	}
	index := x.Unsqueeze(-1)
	defer index.Free()
	one := alloc("ones", x.scope, x.st.dev, dtype.I64, shape.Dims{}).fill(1)
	defer one.Free()
	ones := one.expand(index.layout.Shape)
	defer ones.Free()
	return Apply(scatterFunc{x.Rank(), to, "one_hot", false}, ones, index)
}
