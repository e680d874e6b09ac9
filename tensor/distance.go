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
	// a function of elements X(0) and X(1); the field reduce says how its values are combined
	each   *expr.Expr
	finish *expr.Expr // function of the combined value; nil leaves the value as it is
	// gradient of X(0), from X(1), the distance X(2) and the gradient X(3) of the distance
	gradient  *Elementwise
	programs  cache[dtype.Type, *device.Reduction]
	numParams int
}

var (
	rowsDiff = x0.Sub(x1)
	rowsGap  = rowsDiff.Abs()
	// the sign of the difference, or the difference itself where it is 0 or NaN
	side = rowsDiff.Gt(zeroC).Select(unit, rowsDiff.Lt(zeroC).Select(expr.C(-1), rowsDiff))
	// X(0) to the power 1/p. Parameter 1 is 1/p rounded to the type. Parameter 2 is the remainder
	// that this rounding lost.
	orderRoot = x0.PowSum(p1, expr.Param(2))
	less      = p0.Sub(unit)

	distanceKinds = map[string]*distanceKind{
		"0": {reduce: device.Sum, each: rowsDiff.Eq(zeroC).Select(zeroC, rowsDiff.Ne(rowsDiff).Select(rowsDiff, unit))},
		"1": {reduce: device.Sum, each: rowsGap, gradient: distanceGrad(x3.Mul(side))},
		"2": {reduce: device.Sum, each: rowsDiff.Mul(rowsDiff), finish: x0.Sqrt(), gradient: distanceGrad(x2.Eq(zeroC).Select(zeroC, x3.Mul(rowsDiff).Div(x2)))},
		"inf": {reduce: device.Max, each: rowsGap,
			gradient: distanceGrad(x3.Mul(side).Mul(unit.Sub(rowsGap.Sub(x2).Abs().Neg().Floor().Neg().Min(unit))))},
		"less": {reduce: device.Sum, each: rowsGap.Pow(p0), finish: orderRoot, numParams: 3,
			gradient: distanceGrad(x2.Eq(zeroC).Or(rowsDiff.Eq(zeroC).And(p0.Lt(unit))).Select(zeroC, side.Mul(rowsGap.Pow(less)).Mul(x3).Div(x2.Pow(less))))},
		"more": {reduce: device.Sum, each: rowsGap.Pow(p0), finish: orderRoot, numParams: 3,
			gradient: distanceGrad(x2.Eq(zeroC).Select(zeroC, rowsDiff.Mul(rowsGap.Pow(less.Sub(unit))).Mul(x3).Div(x2.Pow(less))))},
	}
)

func distanceGrad(e *expr.Expr) *Elementwise {
	return &Elementwise{Name: "cdist.grad", Arity: 4, Result: Floating, Expr: e}
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

// reduction returns the program for operands of type t.
func (k *distanceKind) reduction(t dtype.Type) *device.Reduction {
	return k.programs.get(t, func() *device.Reduction {
		r := &device.Reduction{Kind: k.reduce, Map: expr.MustLower([]*expr.Expr{k.each}, []dtype.Type{t}, []dtype.Type{t, t}, -1)}
		if k.finish != nil {
			r.Finish = expr.MustLower([]*expr.Expr{k.finish}, []dtype.Type{t}, []dtype.Type{t}, -1)
		}
		return r
	})
}

// cdistFunc computes distances of order p between rows. Its operands have the type in which
// distances are computed.
type cdistFunc struct{ p float64 }

func (cdistFunc) Name() string { return "cdist" }

func (f cdistFunc) Forward(c *Context, in []*Tensor) *Tensor {
	const op = "cdist"
	x, y := in[0].Unsqueeze(-2), in[1].Unsqueeze(-3)
	s := c.scope
	full := broadcast(op, []*Tensor{x, y})
	last := full.Rank() - 1
	var out *Tensor
	if full.At(last) == 0 {
		out = s.On(x.st.dev).Typed(x.dtype).Zeros(full.Head(last).Slice()...)
	} else {
		out = alloc(op, s, x.st.dev, x.dtype, full.Head(last))
		k := distanceOf(f.p)
		runReduce(op, s, k.reduction(x.dtype), out, full.With(last, 1), []*Tensor{x, y}, full, k.params(x.dtype, f.p))
	}
	if c.Needs(0) || c.Needs(1) {
		c.Save(in[0], in[1], out)
	}
	return out
}

// params encodes the parameters of the order p.
func (k *distanceKind) params(t dtype.Type, p float64) []uint64 {
	var bits []uint64
	inverse := expr.Decode(t, expr.Encode(t, 1/p))
	for _, v := range []float64{p, inverse, 1/p - inverse}[:k.numParams] {
		bits = append(bits, expr.Encode(t, v))
	}
	return bits
}

func (f cdistFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, 2)
	op := distanceOf(f.p).gradient
	distance := c.Saved(2).Unsqueeze(-1)
	for i, at := range []int{-2, -3} {
		to := c.n.operands[i]
		switch {
		case !c.Needs(i):
		case op == nil:
			grads[i] = c.scope.On(to.dev).Typed(to.dtype).Zeros(to.shape.Slice()...)
		default:
			in := []*Tensor{c.Saved(0).Unsqueeze(-2), c.Saved(1).Unsqueeze(-3), distance, g.Unsqueeze(-1)}
			sh := in[i].layout.Shape
			if at == -3 { // for y's gradient the operands swap: the difference changes its sign
				in[0], in[1] = in[1], in[0]
			}
			grads[i] = op.applyReduced(in, []float64{f.p}, sh, to.dtype).reshape(to.shape)
		}
	}
	return grads
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
		along := func(t *Tensor) *Tensor {
			t = t.In(c).expand(full)
			return t.Div(lengthOp.Apply([]*Tensor{t.Norm(2, a, KeepDim)}, eps))
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
		d := x.In(c).Sub(y).lifted()
		if !d.dtype.IsFloat() {
			d = d.Float()
		}
		return d.AddScalar(eps).Norm(p, -1)
	})
}
