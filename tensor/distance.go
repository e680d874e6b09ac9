package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A distanceKind says how to compute distances for a range of orders p.
type distanceKind struct {
	reduce device.ReduceKind
	// function of two elements X(0) and X(1); the field reduce says how its values are combined
	term   *expr.Expr
	finish *expr.Expr // function of the combined value; nil leaves the value unchanged
	// gradient of a row's element X(1). X(2) is the other row's element, X(0) the gradient of the
	// distance, and X(3) the distance.
	gradient *Elementwise
	// weight, if it is not nil, is a function of the distance X(0) and the distance's gradient
	// X(1). Its values replace that gradient.
	weight    *Elementwise
	programs  cache[dtype.Type, *device.Reduction]
	numParams int
}

var (
	rowsDiff = x0.Sub(x1)
	rowsGap  = rowsDiff.Abs()
	// The difference of two elements and the difference's absolute value. Both are for ops that
	// have the operands described at the field gradient.
	gradDiff = x1.Sub(x2)
	gradGap  = gradDiff.Abs()
	// The sign of the difference, or the difference itself where it is 0 or NaN.
	gradSign = gradDiff.Gt(zeroC).Select(unit, gradDiff.Lt(zeroC).Select(expr.C(-1), gradDiff))
	// X(0) to the power 1/p, where p is the order. Parameter 1 is 1/p rounded to the type.
	// Parameter 2 is the remainder that this rounding lost.
	orderRoot = x0.PowSum(p1, expr.Param(2))
	pMinusOne = p0.Sub(unit)

	distanceKinds = map[string]*distanceKind{
		"0": {reduce: device.Sum, term: rowsDiff.Eq(zeroC).Select(zeroC, rowsDiff.Ne(rowsDiff).Select(rowsDiff, unit))},
		"1": {reduce: device.Sum, term: rowsGap, gradient: distanceGrad(3, x0.Mul(gradSign))},
		"2": {reduce: device.Sum, term: rowsDiff.Mul(rowsDiff), finish: x0.Sqrt(), gradient: distanceGrad(3, x0.Mul(gradDiff)),
			weight: &Elementwise{Name: "cdist.weight", Arity: 2, Result: Floating, Expr: x0.Eq(zeroC).Select(zeroC, x1.Div(x0))}},
		"inf": {reduce: device.Max, term: rowsGap,
			gradient: distanceGrad(4, x0.Mul(gradSign).Mul(unit.Sub(gradGap.Sub(x3).Abs().Neg().Floor().Neg().Min(unit))))},
		"less": {reduce: device.Sum, term: rowsGap.Pow(p0), finish: orderRoot, numParams: 3,
			gradient: distanceGrad(4, x3.Eq(zeroC).Or(gradDiff.Eq(zeroC).And(p0.Lt(unit))).Select(zeroC, gradSign.Mul(gradGap.Pow(pMinusOne)).Mul(x0).Div(x3.Pow(pMinusOne))))},
		"more": {reduce: device.Sum, term: rowsGap.Pow(p0), finish: orderRoot, numParams: 3,
			gradient: distanceGrad(4, x3.Eq(zeroC).Select(zeroC, gradDiff.Mul(gradGap.Pow(pMinusOne.Sub(unit))).Mul(x0).Div(x3.Pow(pMinusOne))))},
	}
)

func distanceGrad(arity int, e *expr.Expr) *Elementwise {
	return &Elementwise{Name: "cdist.grad", Arity: arity, Result: Floating, Expr: e}
}

func distanceOf(p float64) *distanceKind {
	name := "more"
	switch {
	case p == 0:
		name = "0"
	case p == 1:
		name = "1"
	case p == 2:
		name = "2"
	case math.IsInf(p, 1):
		name = "inf"
	case p < 2:
		name = "less"
	}
	return distanceKinds[name]
}

func (k *distanceKind) reduction(t dtype.Type) *device.Reduction {
	return k.programs.get(t, func() *device.Reduction {
		r := &device.Reduction{Kind: k.reduce, Map: expr.MustLower([]*expr.Expr{k.term}, []dtype.Type{t}, []dtype.Type{t, t}, -1)}
		if k.finish != nil {
			r.Finish = expr.MustLower([]*expr.Expr{k.finish}, []dtype.Type{t}, []dtype.Type{t}, -1)
		}
		return r
	})
}

// If x has at least rowsX rows and y has at least rowsY rows, y is transposed first. Then the
// elements of a SIMD vector belong to the distances of one row of x, and no sum is taken across a
// vector.
const (
	rowsX = 4
	rowsY = 16
)

// cdistFunc computes distances of order p between rows. Its operands have the type in which
// distances are computed.
type cdistFunc struct{ p float64 }

func (cdistFunc) Name() string { return "cdist" }

func (f cdistFunc) Forward(c *Context, in []*Tensor) *Tensor {
	const op = "cdist"
	x, y := in[0].Unsqueeze(-2), in[1].Unsqueeze(-3)
	s := c.scope
	along := x.Rank() - 1 // the dimension of a row's elements
	if in[0].Dim(-2) >= rowsX && in[1].Dim(-2) >= rowsY {
		x, y = in[0].Unsqueeze(-1), in[1].T().Contiguous().Unsqueeze(-3)
		along--
	}
	full := broadcast(op, []*Tensor{x, y})
	along += full.Rank() - x.Rank()
	var out *Tensor
	if full.At(along) == 0 {
		out = s.On(x.st.dev).Typed(x.dtype).Zeros(full.Remove(along).Slice()...)
	} else {
		out = alloc(op, s, x.st.dev, x.dtype, full.Remove(along))
		k := distanceOf(f.p)
		runReduce(op, s, k.reduction(x.dtype), out, full.With(along, 1), []*Tensor{x, y}, full, k.params(x.dtype, f.p))
	}
	if c.Needs(0) || c.Needs(1) {
		c.Save(in[0], in[1], out)
	}
	return out
}

func (k *distanceKind) params(t dtype.Type, p float64) []uint64 {
	var bits []uint64
	inverse := expr.Decode(t, expr.Encode(t, 1/p))
	for _, v := range []float64{p, inverse, 1/p - inverse}[:k.numParams] {
		bits = append(bits, expr.Encode(t, v))
	}
	return bits
}

func (f cdistFunc) VJP(c *Context, g *Tensor) []*Tensor {
	k := distanceOf(f.p)
	grads, distance := make([]*Tensor, 2), c.Saved(2)
	if k.weight != nil {
		g = k.weight.Apply([]*Tensor{distance, g})
	}
	for i := range grads {
		to := c.n.operands[i]
		switch {
		case !c.Needs(i):
		case k.gradient == nil:
			grads[i] = c.scope.On(to.dev).Typed(to.dtype).Zeros(to.shape.Slice()...)
		case i == 0:
			grads[i] = f.sumOver(k.gradient, g, c.Saved(0), c.Saved(1), distance)
		default: // exchange x and y; copy g, because its layout decides the order of the sum
			grads[i] = f.sumOver(k.gradient, g.T().Contiguous(), c.Saved(1), c.Saved(0), distance.T())
		}
	}
	return grads
}

// sumOver returns the gradient of the rows x. It sums the gradients of their distances to all y.
func (f cdistFunc) sumOver(op *Elementwise, g, x, y, distance *Tensor) *Tensor {
	in := []*Tensor{g.Unsqueeze(-1), x.Unsqueeze(-2), y.Unsqueeze(-3), distance.Unsqueeze(-1)}
	return op.applyReduced(in[:op.Arity], []float64{f.p}, in[1].layout.Shape, x.dtype).reshape(x.layout.Shape)
}

// Cdist returns the distances of order p ≥ 0 between the rows of x and those of y. For shapes [...,
// n, m] and [..., k, m] the result is [..., n, k]. The leading dimensions are broadcast. Between
// equal rows the distance and its gradient are 0. For p = 0 the distance is the number of elements
// that differ, and has no gradient. For an infinite p the distance is the greatest difference. If
// several differences are the greatest, each receives the whole gradient, as in torch. 16-bit
// floats are computed in float32.
func (x *Tensor) Cdist(y *Tensor, p float64) *Tensor {
	if y := underAutocast("cdist", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].Cdist(in[1], p) }, x, y); y != nil {
		return y
	}
	const op = "cdist"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	x.mustFloat(op)
	y.mustFloat(op)
	if x.Rank() < 2 || y.Rank() < 2 || x.Rank() == shape.MaxRank || y.Rank() == shape.MaxRank || x.Dim(-1) != y.Dim(-1) {
		fail(op, ErrShape, in, "needs rows of one size, [..., n, m] and [..., k, m]; shapes are %s", shapes(in))
	}
	if !(p >= 0) {
		fail(op, ErrValue, in, "the order is %v, it must not be negative", p)
	}
	t := dtype.Promote(x.dtype, y.dtype)
	return within(s, func(c *Scope) *Tensor {
		return Apply(cdistFunc{p}, x.In(c).Cast(t.Compute()), y.In(c).Cast(t.Compute())).Cast(t)
	})
}

// lengthOp limits a length to at least p0. As in torch the gradient ignores this limit.
var lengthOp = &Elementwise{Name: "cosine_similarity", Arity: 1, Expr: atLeast(x0, p0), Params: []float64{0}, Grad: []*expr.Expr{x1}}

// cosineReductions holds the reductions that sum the products of two vectors divided by their
// lengths.
var cosineReductions cache[dtype.Type, *device.Reduction]

// CosineSimilarity returns the cosine of the angle between the vectors of x and y along dim: Σxy /
// (max(‖x‖, eps)·max(‖y‖, eps)). dim is a dimension of the shape to which both broadcast. torch's
// eps is 1e-8. As in torch the gradient treats max(‖x‖, eps) like ‖x‖. A tensor of rank 0 counts as
// a vector of one element, whose dimension is 0 or -1.
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
		length := func(t *Tensor) *Tensor { return lengthOp.Apply([]*Tensor{t.Norm(2, a, KeepDim)}, eps) }
		if pairable(x, y) && !wantsGrad(op, s, in) {
			x, y := x.In(c), y.In(c)
			r := cosineReductions.get(x.dtype, func() *device.Reduction {
				t := x.dtype
				return &device.Reduction{Kind: device.Sum, Map: expr.MustLower([]*expr.Expr{x0.Div(x1).Mul(x2.Div(expr.X(3)))}, []dtype.Type{t}, []dtype.Type{t, t, t, t}, -1)}
			})
			out := alloc(op, c, x.st.dev, x.dtype, full.Remove(a))
			runReduce(op, c, r, out, full.With(a, 1), []*Tensor{x, length(x), y, length(y)}, full, nil)
			return out
		}
		along := func(t *Tensor) *Tensor {
			t = t.In(c).expand(full)
			return t.Div(length(t))
		}
		return along(x).Mul(along(y)).Sum(a)
	})
}

// PairwiseDistance returns the norm of order p of x - y + eps over the last dimension. x and y are
// broadcast. torch's eps is 1e-6. For integers the difference has their type and wraps, and the
// distance is float32. Tensors of rank 0 count as vectors of one element.
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
		if p == 2 && s.modes.autocast == dtype.Invalid && pairable(x, y) {
			x, y := x.In(c), y.In(c)
			if wantsGrad(op, s, in) { // the gradient needs the differences, not x and y
				return gapOp.Apply([]*Tensor{x, y}, eps).Norm(2, -1)
			}
			return distances(c, x, y, eps)
		}
		d := x.In(c).Sub(y).lifted()
		if !d.dtype.IsFloat() {
			d = d.Float()
		}
		return d.AddScalar(eps).Norm(p, -1)
	})
}

var (
	pairGap        = rowsDiff.Add(p0)
	pairReductions cache[dtype.Type, *device.Reduction]
	gapOp          = &Elementwise{Name: "pairwise_distance", Arity: 2, Expr: pairGap, Params: []float64{0}}
)

// pairable reports whether one pass over x and y gives the same bits as separate ops. Separate ops
// would round 16-bit floats in between, and the order of a sum depends on the layout.
func pairable(x, y *Tensor) bool {
	return x.dtype == y.dtype && x.dtype.IsFloat() && x.dtype.Compute() == x.dtype && x.layout.Shape == y.layout.Shape &&
		x.Rank() > 0 && x.Size() > 0 && x.IsContiguous() && y.IsContiguous()
}

// distances returns the norms of the rows of x - y + eps, in one pass. x and y are pairable.
func distances(c *Scope, x, y *Tensor, eps float64) *Tensor {
	const op = "pairwise_distance"
	full, last, t := x.layout.Shape, x.Rank()-1, x.dtype
	r := pairReductions.get(t, func() *device.Reduction {
		return &device.Reduction{Kind: device.Sum,
			Map:    expr.MustLower([]*expr.Expr{pairGap.Mul(pairGap)}, []dtype.Type{t}, []dtype.Type{t, t}, -1),
			Finish: expr.MustLower([]*expr.Expr{x0.Sqrt()}, []dtype.Type{t}, []dtype.Type{t}, -1)}
	})
	out := alloc(op, c, x.st.dev, t, full.Remove(last))
	runReduce(op, c, r, out, full.With(last, 1), []*Tensor{x, y}, full, []uint64{expr.Encode(t, eps)})
	return out
}
