package tensor

import (
	"math"
	mathbits "math/bits"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// normalCDF returns Φ(x), the cumulative distribution function of the standard normal distribution.
func normalCDF(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

// truncatedNormal draws by inversion. It maps uniform numbers through erfinv, then scales and
// shifts them, and limits them to [lo, hi]. The uniform numbers lie between 2Φ(a)-1 and 2Φ(b)-1,
// where a = (lo - mean)/std and b = (hi - mean)/std.
func truncatedNormal(w dtype.Type, u *expr.Expr) *expr.Expr {
	p := func(i int) *expr.Expr { return expr.Param(i, w) }
	u = u.Mul(p(3).Sub(p(2))).Add(p(2))
	return u.Erfinv().Mul(p(4)).Add(p(5)).Max(p(6)).Min(p(7))
}

// truncatedParams checks mean, std and the interval [lo, hi], and returns the parameters of the
// program truncatedNormal.
func truncatedParams(mean, std, lo, hi float64, in ...*Tensor) []float64 {
	switch {
	case !(std > 0) || math.IsInf(std, 0) || math.IsNaN(mean-mean):
		fail("trunc_normal", ErrValue, in, "no normal distribution has mean %v and standard deviation %v", mean, std)
	case !(lo < hi):
		fail("trunc_normal", ErrValue, in, "the interval [%v, %v] is empty", lo, hi)
	}
	a, b := 2*normalCDF((lo-mean)/std)-1, 2*normalCDF((hi-mean)/std)-1
	return []float64{a, b, std * math.Sqrt2, mean, lo, hi}
}

// TruncNormal returns random numbers of the normal distribution with this mean and standard
// deviation, truncated to [lo, hi]. If the interval is far out in a tail, float32 cannot
// distinguish probabilities there. Then many of the numbers equal a limit.
func (m Maker) TruncNormal(mean, std, lo, hi float64, dims ...int) *Tensor {
	p := truncatedParams(mean, std, lo, hi)
	return m.float("trunc_normal", dims).fresh(truncatedKind, p...)
}

// TruncNormalInPlace overwrites x with random numbers of the normal distribution truncated to [lo,
// hi]. Gradients are as for [Tensor.UniformInPlace].
func (x *Tensor) TruncNormalInPlace(mean, std, lo, hi float64) *Tensor {
	x.use("trunc_normal")
	return x.redraw("trunc_normal", truncatedKind, truncatedParams(mean, std, lo, hi, x)...)
}

// BernoulliInPlace sets each element of x to 1 with probability p, and otherwise to 0. Gradients
// are as for [Tensor.UniformInPlace].
func (x *Tensor) BernoulliInPlace(p float64) *Tensor {
	x.use("bernoulli")
	if !(p >= 0 && p <= 1) {
		fail("bernoulli", ErrValue, []*Tensor{x}, "%v is not a probability", p)
	}
	return x.redraw("bernoulli", bernoulliKind, p)
}

// Bernoulli returns, for each element of x, 1 with the probability that the element holds, and
// otherwise 0. The result has x's type and no gradient.
func (x *Tensor) Bernoulli() *Tensor {
	x.use("bernoulli")
	return within(x.scope, func(c *Scope) *Tensor {
		c.modes.noGrad = true
		p := x.In(c)
		return p.RandLike().Lt(p).Cast(x.dtype)
	})
}

// Multinomial draws n classes, int64, for each row of the probabilities x, [classes] or [rows,
// classes]. The probabilities need not add up to 1. The result is [n] or [rows, n]. With
// replacement each draw is independent. Without replacement no class occurs twice in a row of the
// result. A class of probability 0 is drawn only when a row has no other class left. torch refuses
// such a row, but the check would have to wait for the device.
//
// A single draw, and draws without replacement, take the class with the greatest pᵢ/Eᵢ, for
// exponential random numbers E. Several draws with replacement search the running sums of the
// probabilities. Each probability is rounded down to a multiple of 2⁻⁵²·classes times the row's
// greatest one. So the sums are exact, and the same on every device.
func (x *Tensor) Multinomial(n int, replacement bool) *Tensor {
	x.use("multinomial")
	in := []*Tensor{x}
	rank := x.Rank()
	x.mustFloat("multinomial")
	if rank != 1 && rank != 2 {
		fail("multinomial", ErrShape, in, "probabilities have 1 or 2 dimensions, not %d", rank)
	}
	classes := x.layout.Shape.At(rank - 1)
	if n <= 0 || classes == 0 || !replacement && n > classes {
		e := newError("multinomial", ErrValue, in, itoa(n)+" draws of "+itoa(classes)+" classes")
		if n > classes && classes > 0 {
			e.hint("without replacement each class comes once at most")
		}
		panic(e)
	}
	return within(x.scope, func(c *Scope) *Tensor {
		c.modes.noGrad = true
		p := x.In(c)
		var y *Tensor
		if rank == 1 {
			p = p.Unsqueeze(0)
		}
		if replacement && n > 1 {
			y = p.drawSeveral(n)
		} else {
			if p.dtype.Size() < 4 {
				p = p.Float()
			}
			// The key is p/E with the exponential random number E = -log(1-u), which is at least
			// 2⁻³⁰.
			key := p.Div(p.RandLike().Neg().Log1p().Neg().ClampMin(0x1p-30))
			index := c.On(p.st.dev).Typed(dtype.I64).Arange(classes)
			drawn := make([]*Tensor, n)
			for k := range drawn {
				drawn[k] = key.Argmax(-1, KeepDim)
				if k < n-1 {
					key = key.MaskedFill(index.Eq(drawn[k]), -1)
				}
			}
			y = Cat(1, drawn...)
		}
		if rank == 1 {
			y = y.Squeeze(0)
		}
		return y
	})
}

type sharesKey dtype.Type

var sharesPrograms cache[sharesKey, *expr.Program]

// sharesProgram returns the program that computes a share for each probability X(0) of type t.
// Shares are integers in proportion to the probabilities. The row's greatest probability, X(1), has
// the share Param(0).
func sharesProgram(t dtype.Type) *expr.Program {
	return sharesPrograms.get(sharesKey(t), func() *expr.Program {
		p, most := x0.Cvt(dtype.F64), x1.Cvt(dtype.F64)
		part := p.Eq(most).Select(expr.C(1), p.Div(most)) // an infinite probability has the greatest share
		// NaN and negative numbers are no probabilities, and get the share 0
		part = p.Gt(expr.C(0)).And(part.Gt(expr.C(0))).Select(part, expr.C(0))
		share := part.Mul(expr.Param(0, dtype.F64)).Floor().Cvt(dtype.I64)
		return expr.MustLower([]*expr.Expr{share.Named("multinomial")}, []dtype.Type{dtype.I64}, []dtype.Type{t, t}, -1)
	})
}

// drawSeveral draws n classes for each row of the matrix x of probabilities. For each draw it takes
// a random integer below the sum of the row's shares. A binary search in the running sums of the
// shares then finds the class whose part contains the integer.
func (x *Tensor) drawSeveral(n int) *Tensor {
	const op = "multinomial"
	c, rows, classes := x.scope, x.layout.Shape.At(0), x.layout.Shape.At(1)
	shares := alloc(op, c, x.st.dev, dtype.I64, x.layout.Shape)
	// No sum of shares exceeds 2⁵², so a float64 holds it exactly.
	run(op, c, sharesProgram(x.dtype), shares, []*Tensor{x, amaxOp.Apply(x, -1, KeepDim)}, []float64{math.Ldexp(1, 52-mathbits.Len(uint(classes)))})
	sums := scanned(op, c, device.ScanSum, dtype.I64, 1, false, []*Tensor{shares})
	if sums == nil {
		sums = shares.CumSum(1)
	}
	places := alloc(op, c, x.st.dev, dtype.I64, shape.Of(rows, n))
	seed, offset := c.modes.gen.Draw(places.Size())
	places.draw(op, c, placeKind, seed, offset, []*Tensor{sums.Narrow(1, classes-1, 1)})
	return Apply(searchFunc{op, true}, sums, places)
}
