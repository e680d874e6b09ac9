package tensor

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Interpolation says how a quantile between two elements is computed.
type Interpolation uint8

// The ways to compute a value between two elements.
const (
	// the mean of both elements, weighted so that the element nearer to the rank counts more
	Linear   Interpolation = iota
	Lower                  // the lower element
	Higher                 // the higher element
	Midpoint               // the mean of both elements
	// the element nearer to the rank; at equal distance, the one with the even position
	Nearest
)

// quantile returns the quantiles q of x over dims, as the first dimension of the result. If skipNaN
// is true, it ignores NaN.
func (x *Tensor) quantile(op string, q []float64, how Interpolation, skipNaN, single bool, dims []int) *Tensor {
	x.use(op)
	in := []*Tensor{x}
	if !x.dtype.IsFloat() {
		e := newError(op, ErrType, in, "needs a floating point tensor, not "+x.dtype.String())
		panic(e.hint("use Float"))
	}
	for _, v := range q {
		if !(v >= 0 && v <= 1) {
			fail(op, ErrValue, in, "the quantile %v is not from 0 to 1", v)
		}
	}
	if how > Nearest {
		fail(op, ErrValue, in, "interpolation %d is unknown", how)
	}
	mask, keep := x.axes(op, dims)
	if x.Rank() == 0 {
		mask = 0
	}
	if x.Size() == 0 {
		fail(op, ErrShape, in, "the tensor has no elements")
	}
	kept, out, n := reducedShapes(x.layout.Shape, mask, keep)
	if !single {
		if out.Rank() == shape.MaxRank {
			fail(op, ErrShape, in, "the result would have %d dimensions, at most %d are supported", out.Rank()+1, shape.MaxRank)
		}
		out = out.Insert(0, len(q))
	}
	return within(x.scope, func(c *Scope) *Tensor {
		// Move the reduced dimensions to the end and join them.
		var p []int
		for i := range x.Rank() {
			if mask>>i&1 == 0 {
				p = append(p, i)
			}
		}
		p = append(p, axesOf(mask)...)
		rows := kept.Size()
		t := x.In(c).Permute(p...).reshape(shape.Of(rows, n)).Cast(x.dtype.Compute())
		sorted, _ := t.Sort(1, false)
		m := c.On(x.st.dev).Typed(t.dtype)
		at := m.Zeros(1, len(q))
		for i, v := range q { // fill element by element, so that nothing is copied from the host
			at.Narrow(1, i, 1).Fill(v)
		}
		nans := t.Detach().IsNaN().Sum(1, KeepDim) // NaN sorts after all numbers
		var rank *Tensor
		if skipNaN {
			rank = at.Mul(nans.RSubScalar(float64(n - 1)).ClampMin(0).Cast(t.dtype))
		} else {
			rank = Where(nans.GtScalar(0), m.Full(float64(n-1)), at.MulScalar(float64(n-1)))
		}
		y := sorted.atRanks(rank, how).Cast(x.dtype)
		return y.T().reshape(out)
	})
}

// halfOp computes the weight for Midpoint: ½, or 0 if both elements are equal.
var halfOp = &Elementwise{Name: "quantile", Arity: 2, Expr: x0.Eq(x1).Select(expr.C(0), expr.C(0.5)), NoGrad: true}

// atRanks returns the values of sorted rows at ranks that need not be whole numbers.
func (x *Tensor) atRanks(rank *Tensor, how Interpolation) *Tensor {
	below, above := rank.Floor(), rank.Ceil()
	switch how {
	case Lower:
		above = below
	case Higher:
		below = above
	case Nearest:
		below = rank.Round()
		above = below
	}
	low := Apply(gatherFunc{1, "quantile"}, x, below.Long())
	if above == below {
		return low
	}
	high := Apply(gatherFunc{1, "quantile"}, x, above.Long())
	weight := rank.Sub(below)
	if how == Midpoint {
		weight = halfOp.Apply([]*Tensor{below, above})
	}
	return low.Lerp(high, weight)
}

// Quantile returns the q-quantile over dims, or of all elements if dims is empty. Add [KeepDim] to
// keep the dimensions. The quantile has rank q·(n-1) among the n elements in order, counted from 0.
// If the rank is not a whole number, the parameter how says which value is returned. If one of the
// n elements is NaN, the quantile is NaN. q is from 0 to 1. Integers must be cast first. Unlike in
// PyTorch 16-bit floats need not be cast.
func (x *Tensor) Quantile(q float64, how Interpolation, dims ...int) *Tensor {
	return x.quantile("quantile", []float64{q}, how, false, true, dims)
}

// Quantiles is [Tensor.Quantile] for several q in one call. The first dimension of the result has
// one entry for each q.
func (x *Tensor) Quantiles(q []float64, how Interpolation, dims ...int) *Tensor {
	return x.quantile("quantile", q, how, false, false, dims)
}

// NanQuantiles is [Tensor.Quantiles] over the elements that are not NaN. If there are no such
// elements, the result is NaN.
func (x *Tensor) NanQuantiles(q []float64, how Interpolation, dims ...int) *Tensor {
	return x.quantile("nanquantile", q, how, true, false, dims)
}

// NanQuantile is [Tensor.Quantile] over the elements that are not NaN. If there are no such
// elements, the result is NaN.
func (x *Tensor) NanQuantile(q float64, how Interpolation, dims ...int) *Tensor {
	return x.quantile("nanquantile", []float64{q}, how, true, true, dims)
}
