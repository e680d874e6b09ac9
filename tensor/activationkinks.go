package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
)

// This file has the activations with kinks (points without a derivative), and the activations made
// of exponentials. At a kink, and for NaN, the gradient equals PyTorch's.

var zeroC = expr.C(0)

func clamp(x, lo, hi float64) float64 { return math.Min(math.Max(x, lo), hi) }

func softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// activation declares an activation for floating point tensors.
func activation(name string, e *expr.Expr, ref func(x, p []float64) float64, grad *expr.Expr, params ...float64) *Elementwise {
	return Declare(&Elementwise{Name: name, Arity: 1, Result: FixedFloat, Expr: e, Ref: ref, Domain: jumpDomain, Params: params, Grad: []*expr.Expr{grad}})
}

// withIntegers makes an activation accept integers too. It computes them as float32.
func withIntegers(e *Elementwise) *Elementwise {
	e.Result, e.NoBool = Floating, true
	return e
}

// SELU's constants (G. Klambauer et al.: Self-normalizing neural networks, arXiv:1706.02515).
const (
	seluAlpha = 1.6732632423543772848170429916717
	seluScale = 1.0507009873554804934193349852946
)

// kinkAtZero returns the gradient of an activation with a kink at 0. The parameters are the
// gradients for x0 < 0, for x0 = 0 and for x0 > 0. At x0 = 0, the parameters negative and zero must
// be equal. The parameter zero must not depend on x0, so that the second derivative at 0 is 0, as
// in torch.
func kinkAtZero(negative, zero, positive *expr.Expr) *expr.Expr {
	return x0.Lt(zeroC).Select(negative, x0.Eq(zeroC).Select(zero, positive))
}

// gradInside returns the gradient g where lo < x < hi and where x is NaN, and 0 elsewhere.
func gradInside(lo, hi, g *expr.Expr) *expr.Expr {
	return x0.Le(lo).Or(x0.Ge(hi)).Select(zeroC, g)
}

// limit returns x limited to [lo, hi]. Where x equals lo or hi, the result is x itself. So a zero
// has the same sign as in torch. NaN in any operand makes the result NaN.
func limit(x, lo, hi *expr.Expr) *expr.Expr { return atMost(atLeast(x, lo), hi) }

func atLeast(x, lo *expr.Expr) *expr.Expr { return x.Ge(lo).Select(x, x.Max(lo)) }
func atMost(x, hi *expr.Expr) *expr.Expr  { return x.Le(hi).Select(x, x.Min(hi)) }

var (
	mishInner = x0.Softplus().Tanh()

	// Where β·x is above the threshold, the result is x itself.
	softplusOp = high(activation("softplus", x0.Mul(p0).Gt(p1).Select(x0, x0.Mul(p0).Softplus().Div(p0)),
		func(x, p []float64) float64 {
			if x[0]*p[0] > p[1] {
				return x[0]
			}
			return softplus(x[0]*p[0]) / p[0]
		},
		x0.Mul(p0).Gt(p1).Select(x1, x1.Mul(x0.Mul(p0).Sigmoid())), 2, 7))
	softsignOp = withIntegers(activation("softsign", x0.Div(unit.Add(x0.Abs())), ref1(func(x float64) float64 { return x / (1 + math.Abs(x)) }),
		// torch computes g/(1+|x|)·(1 - |x|/(1+|x|)). This gradient is NaN at ±∞, and 0 where |x|
		// is so large that 1+|x| = |x| even in float64. For such x the expression is x - x, which
		// is 0 for finite x and NaN at ±∞.
		x0.Abs().Ge(expr.C(1<<53)).Select(x0.Sub(x0), x1.Div(unit.Add(x0.Abs())).Div(unit.Add(x0.Abs())))))
	leakyReluOp = activation("leaky_relu", x0.Gt(zeroC).Select(x0, x0.Mul(p0)), refP(func(x, a float64) float64 { return math.Max(x, 0) + a*math.Min(x, 0) }),
		x0.Gt(zeroC).Select(x1, x1.Mul(p0)), 0.1)
	preluOp = Declare(&Elementwise{Name: "prelu", Autocast: AutocastLow, Arity: 2, Result: FixedFloat, Expr: x0.Gt(zeroC).Select(x0, x1.Mul(x0)), Domain: wide,
		Ref:  ref2(func(x, a float64) float64 { return math.Max(x, 0) + a*math.Min(x, 0) }),
		Grad: []*expr.Expr{x0.Gt(zeroC).Select(x2, x1.Mul(x2)), x0.Gt(zeroC).Select(zeroC, x0.Mul(x2))}})
	eluOp = activation("elu", x0.Gt(zeroC).Select(x0, x0.Expm1().Mul(p0)), refP(func(x, a float64) float64 { return math.Max(x, 0) + a*math.Expm1(math.Min(x, 0)) }),
		kinkAtZero(x1.Mul(p0).Mul(x0.Exp()), x1.Mul(p0), x1), 1.5)
	celuOp = activation("celu", x0.Gt(zeroC).Select(x0, x0.Div(p0).Expm1().Mul(p0)),
		refP(func(x, a float64) float64 { return math.Max(x, 0) + a*math.Expm1(math.Min(x, 0)/a) }),
		kinkAtZero(x1.Mul(x0.Div(p0).Exp()), x1, x1), 1.5)
	seluOp = activation("selu", x0.Gt(zeroC).Select(x0.Scale(seluScale), x0.Expm1().Scale(seluScale*seluAlpha)),
		ref1(func(x float64) float64 { return seluScale * (math.Max(x, 0) + seluAlpha*math.Expm1(math.Min(x, 0))) }),
		kinkAtZero(x1.Scale(seluScale*seluAlpha).Mul(x0.Exp()), x1.Scale(seluScale*seluAlpha), x1.Scale(seluScale)))
	mishOp = activation("mish", x0.Mul(mishInner), ref1(func(x float64) float64 { return x * math.Tanh(softplus(x)) }),
		x1.Mul(mishInner.Add(x0.Mul(x0.Sigmoid()).Mul(unit.Sub(mishInner.Mul(mishInner))))))

	relu6Op = Declare(&Elementwise{Name: "relu6", Arity: 1, Expr: limit(x0, zeroC, expr.C(6)), Domain: jumpDomain, NoBool: true,
		Ref: ref1(func(x float64) float64 { return clamp(x, 0, 6) }), Grad: []*expr.Expr{gradInside(zeroC, expr.C(6), x1)}})
	hardtanhOp    = activation("hardtanh", limit(x0, p0, p1), func(x, p []float64) float64 { return clamp(x[0], p[0], p[1]) }, gradInside(p0, p1, x1), -1, 2)
	hardsigmoidOp = activation("hardsigmoid", limit(x0.Add(expr.C(3)), zeroC, expr.C(6)).Div(expr.C(6)), ref1(func(x float64) float64 { return clamp(x+3, 0, 6) / 6 }),
		x0.Gt(expr.C(-3)).And(x0.Lt(expr.C(3))).Select(x1.Scale(1.0/6), zeroC))
	hardswishOp = activation("hardswish", x0.Mul(limit(x0.Add(expr.C(3)), zeroC, expr.C(6))).Div(expr.C(6)),
		ref1(func(x float64) float64 { return x * clamp(x+3, 0, 6) / 6 }),
		x0.Le(expr.C(-3)).Select(zeroC, x0.Lt(expr.C(3)).Select(x1.Mul(x0.Div(expr.C(3)).Add(expr.C(0.5))), x1)))
	hardshrinkOp = activation("hardshrink", x0.Ge(p0.Neg()).And(x0.Le(p0)).Select(zeroC, x0), refP(func(x, a float64) float64 {
		if math.Abs(x) <= a {
			return 0
		}
		return x
	}), x0.Ge(p0.Neg()).And(x0.Le(p0)).Select(zeroC, x1), 0.5)
	// The last branch of the formula returns +0, or NaN if the operand is NaN.
	softshrinkOp = activation("softshrink", x0.Gt(p0).Select(x0.Sub(p0), x0.Lt(p0.Neg()).Select(x0.Add(p0), x0.Mul(zeroC).Add(zeroC))),
		refP(func(x, a float64) float64 { return x - clamp(x, -a, a) }), x0.Ge(p0.Neg()).And(x0.Le(p0)).Select(zeroC, x1), 0.5)
	// Adding zero turns -0 into +0, as torch's subtraction does.
	tanhshrinkOp = withIntegers(activation("tanhshrink", x0.Sub(x0.Tanh()), ref1(func(x float64) float64 { return x - math.Tanh(x) }), x1.Mul(x0.Tanh().Mul(x0.Tanh())).Add(zeroC)))
	thresholdOp  = Declare(&Elementwise{Name: "threshold", Arity: 1, NoBool: true, Expr: x0.Le(p0).Select(p1, x0), Domain: wide, Params: []float64{1, 7},
		Ref: func(x, p []float64) float64 {
			if x[0] <= p[0] {
				return p[1]
			}
			return x[0]
		}, Grad: []*expr.Expr{x0.Le(p0).Select(zeroC, x1)}})
)

// Softplus returns log(1+exp(β·x))/β, and x where β·x is above the threshold. torch's defaults are
// Softplus(1, 20).
func (x *Tensor) Softplus(beta, threshold float64) *Tensor {
	if beta == 0 {
		fail("softplus", ErrValue, []*Tensor{x}, "beta is 0")
	}
	return softplusOp.Apply([]*Tensor{x}, beta, threshold)
}

// Softsign returns x/(1+|x|), in float32 for integers. As in torch its gradient at ±Inf is NaN.
func (x *Tensor) Softsign() *Tensor { return softsignOp.Apply([]*Tensor{x}) }

// LeakyRelu returns x where it is positive and slope·x elsewhere. Its gradient at 0 is slope.
//
//tensor:forms InPlace:F
func (x *Tensor) LeakyRelu(slope float64) *Tensor { return leakyReluOp.Apply([]*Tensor{x}, slope) }

// PRelu returns x where it is positive and w·x elsewhere. w holds either one element, or one
// element for each channel of x. The channels are dimension 1. The gradient of x at 0 is w.
func (x *Tensor) PRelu(w *Tensor) *Tensor {
	in := []*Tensor{x, w}
	youngest("prelu", in)
	if n := w.Size(); n != 1 {
		if x.Rank() < 2 || w.Rank() != 1 || x.layout.Shape.At(1) != n {
			fail("prelu", ErrShape, in, "%d weights of rank %d for an input of shape %v: one, or one for each entry of dimension 1", n, w.Rank(), x.Shape())
		}
		dims := make([]int, x.Rank())
		for i := range dims {
			dims[i] = 1
		}
		dims[1] = n
		w = w.Reshape(dims...)
	} else if w.Rank() > 0 {
		w = w.Reshape()
	}
	return preluOp.Apply([]*Tensor{x, w})
}

// Elu returns x where it is positive and α·(eˣ-1) elsewhere.
//
//tensor:forms InPlace:F
func (x *Tensor) Elu(alpha float64) *Tensor { return eluOp.Apply([]*Tensor{x}, alpha) }

// Celu returns x where it is positive and α·(exp(x/α)-1) elsewhere.
func (x *Tensor) Celu(alpha float64) *Tensor {
	if alpha == 0 {
		fail("celu", ErrValue, []*Tensor{x}, "alpha is 0")
	}
	return celuOp.Apply([]*Tensor{x}, alpha)
}

// Selu returns the scaled exponential linear unit: 1.0507·Elu(x, 1.6733).
//
//tensor:forms InPlace:F
func (x *Tensor) Selu() *Tensor { return seluOp.Apply([]*Tensor{x}) }

// Mish returns x·tanh(softplus(x)).
//
//tensor:forms InPlace:F
func (x *Tensor) Mish() *Tensor { return mishOp.Apply([]*Tensor{x}) }

// Relu6 returns x limited to [0, 6]. Its gradient at 0 and at 6 is 0.
//
//tensor:forms InPlace:F
func (x *Tensor) Relu6() *Tensor { return relu6Op.Apply([]*Tensor{x}) }

// Hardtanh returns x limited to [lo, hi]. Its gradient at lo and at hi is 0. Integers stay
// integers: lo and hi then lose their fractions.
func (x *Tensor) Hardtanh(lo, hi float64) *Tensor {
	x.interval(lo, hi)
	if integral(x.dtype) {
		return x.Clamp(math.Trunc(lo), math.Trunc(hi))
	}
	return hardtanhOp.Apply([]*Tensor{x}, lo, hi)
}

// HardtanhInPlace limits x to [lo, hi]; see [Tensor.Hardtanh].
func (x *Tensor) HardtanhInPlace(lo, hi float64) *Tensor {
	x.interval(lo, hi)
	if integral(x.dtype) {
		return x.ClampInPlace(math.Trunc(lo), math.Trunc(hi))
	}
	return x.inPlace(hardtanhOp, []*Tensor{x}, lo, hi)
}

func (x *Tensor) interval(lo, hi float64) {
	x.use("hardtanh")
	if !(lo <= hi) {
		fail("hardtanh", ErrValue, []*Tensor{x}, "the interval [%v, %v] is empty", lo, hi)
	}
}

// Hardsigmoid returns x/6 + ½ limited to [0, 1]. Its gradient at ±3 is 0.
//
//tensor:forms InPlace:F
func (x *Tensor) Hardsigmoid() *Tensor { return hardsigmoidOp.Apply([]*Tensor{x}) }

// Hardswish returns x·Hardsigmoid(x).
//
//tensor:forms InPlace:F
func (x *Tensor) Hardswish() *Tensor { return hardswishOp.Apply([]*Tensor{x}) }

// Hardshrink returns 0 where |x| ≤ λ, and x elsewhere.
func (x *Tensor) Hardshrink(lambda float64) *Tensor {
	return hardshrinkOp.Apply([]*Tensor{x}, lambda)
}

// Softshrink returns x moved towards 0 by λ, and 0 where |x| ≤ λ. λ must not be negative.
func (x *Tensor) Softshrink(lambda float64) *Tensor {
	if !(lambda >= 0) {
		fail("softshrink", ErrValue, []*Tensor{x}, "lambda is %v, it must not be negative", lambda)
	}
	return softshrinkOp.Apply([]*Tensor{x}, lambda)
}

// Tanhshrink returns x - tanh(x), in float32 for integers.
func (x *Tensor) Tanhshrink() *Tensor { return tanhshrinkOp.Apply([]*Tensor{x}) }

// Threshold returns x where it is above the threshold, and value elsewhere. Integers stay integers;
// their type must be able to hold both numbers, as for [Tensor.Fill].
func (x *Tensor) Threshold(threshold, value float64) *Tensor {
	threshold, value = x.fittedNumber("threshold", threshold), x.fittedNumber("threshold", value)
	return thresholdOp.Apply([]*Tensor{x}, threshold, value)
}
