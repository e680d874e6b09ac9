package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// OneHot returns, for indices x (int64 or int32) of classes 0 … classes-1, int64 rows that are 1 at the index and 0 elsewhere:
// shape x.Shape() + [classes]. An index outside is an error, on a GPU reported at the next wait.
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
	return within(x.scope, func(c *Scope) *Tensor {
		index := x.In(c).Unsqueeze(-1)
		ones := c.On(x.st.dev).Typed(dtype.I64).Ones().expand(index.layout.Shape)
		return Apply(scatterFunc{x.Rank(), to, "one_hot"}, ones, index)
	})
}

// lengthOp is a length, at least p0; as in torch the gradient does not know of the bound.
var lengthOp = &Elementwise{Name: "cosine_similarity", Arity: 1, Expr: atLeast(x0, p0), Params: []float64{0}, Grad: []*expr.Expr{x1}}

// CosineSimilarity returns the cosine of the angle between the vectors of x and y along dim, a dimension of the shape to which
// both broadcast: Σxy / (max(‖x‖, eps)·max(‖y‖, eps)). torch's eps is 1e-8. As in torch the gradient takes the greater of the two for
// the length itself. A tensor of rank 0 is a vector of one, whose dimension is 0 or -1.
func (x *Tensor) CosineSimilarity(y *Tensor, dim int, eps float64) *Tensor {
	if y := underAutocast("cosine_similarity", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].CosineSimilarity(in[1], dim, eps) }, x, y); y != nil {
		return y
	}
	const op = "cosine_similarity"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	x.mustFloat(op)
	y.mustFloat(op)
	full := padTo(broadcast(op, in), 1)
	a, ok := shape.Axis(dim, full.Rank())
	if !ok {
		fail(op, ErrShape, in, "dimension %d is out of range for shape %v", dim, full)
	}
	return within(s, func(c *Scope) *Tensor {
		along := func(t *Tensor) *Tensor {
			t = t.In(c).expand(full)
			return t.Div(lengthOp.Apply([]*Tensor{t.Norm(2, a, KeepDim)}, eps))
		}
		return along(x).Mul(along(y)).Sum(a)
	})
}

// PairwiseDistance returns the norm of order p of x - y + eps over the last dimension, with x and y broadcast. torch's eps is
// 1e-6. Of integers the difference is that of their type, which wraps, and the distance float32.
// Tensors of rank 0 are vectors of one.
func (x *Tensor) PairwiseDistance(y *Tensor, p, eps float64) *Tensor {
	const op = "pairwise_distance"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	if x.dtype == boolType || y.dtype == boolType {
		panic(newError(op, ErrType, in, "is not defined for bool").hint("use Float"))
	}
	broadcast(op, in)
	return within(s, func(c *Scope) *Tensor {
		d := x.In(c).Sub(y).lifted()
		if !d.dtype.IsFloat() {
			d = d.Float()
		}
		return d.AddScalar(eps).Norm(p, -1)
	})
}
