package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
)

func fmaxRef(a, b float64) float64 {
	if b != b || a >= b {
		return a
	}
	return b
}

func fminRef(a, b float64) float64 {
	if b != b || a <= b {
		return a
	}
	return b
}

// These conditions are true for elements at which Fmax and Fmin return the first operand.
var (
	firstIsMore = x1.Ne(x1).Or(x0.Ge(x1))
	firstIsLess = x1.Ne(x1).Or(x0.Le(x1))
)

// tieGrad returns the gradients of Fmax or Fmin: the operand that is the result receives the
// gradient. On a tie each operand receives half.
func tieGrad(first *expr.Expr) []*expr.Expr {
	tie, half := x0.Eq(x1), x2.Scale(0.5)
	return []*expr.Expr{tie.Select(half, first.Select(x2, zeroC)), tie.Select(half, first.Select(zeroC, x2))}
}

var (
	minimumOp = Declare(&Elementwise{Name: "minimum", Arity: 2, Expr: x0.Min(x1), Ref: ref2(math.Min), Domain: wide,
		Grad: []*expr.Expr{x0.Eq(x1).Select(x2.Scale(0.5), x0.Gt(x1).Select(expr.C(0), x2)), x0.Eq(x1).Select(x2.Scale(0.5), x1.Gt(x0).Select(expr.C(0), x2))}})
	maximumOp = Declare(&Elementwise{Name: "maximum", Arity: 2, Expr: x0.Max(x1), Ref: ref2(math.Max), Domain: wide,
		Grad: []*expr.Expr{x0.Eq(x1).Select(x2.Scale(0.5), x0.Lt(x1).Select(expr.C(0), x2)), x0.Eq(x1).Select(x2.Scale(0.5), x1.Lt(x0).Select(expr.C(0), x2))}})
	fmaxOp = Declare(&Elementwise{Name: "fmax", Arity: 2, Expr: firstIsMore.Select(x0, x1), Ref: ref2(fmaxRef), Domain: wide,
		Grad: tieGrad(firstIsMore)})
	fminOp = Declare(&Elementwise{Name: "fmin", Arity: 2, Expr: firstIsLess.Select(x0, x1), Ref: ref2(fminRef), Domain: wide,
		Grad: tieGrad(firstIsLess)})
	clampOp = Declare(&Elementwise{Name: "clamp", Arity: 1, Expr: limit(x0, p0, p1), Domain: wide, Params: []float64{0, 2},
		Ref:  func(x, p []float64) float64 { return math.Min(math.Max(x[0], p[0]), p[1]) },
		Grad: []*expr.Expr{x0.Gt(p0).And(x0.Lt(p1)).Select(x1, expr.C(0))}})
	// This op clamps to limits that are not 0. An element that equals a limit then has the same
	// bits as the limit, so it does not matter which of the two is returned.
	clampPlainOp = Declare(&Elementwise{Name: "clamp_plain", form: "clamp", Arity: 1, Expr: x0.Max(p0).Min(p1), Domain: wide, Params: []float64{-1, 2},
		Ref:  func(x, p []float64) float64 { return math.Min(math.Max(x[0], p[0]), p[1]) },
		Grad: []*expr.Expr{x0.Gt(p0).And(x0.Lt(p1)).Select(x1, expr.C(0))}})
	maxScalarOp = Declare(&Elementwise{Name: "clamp_min", Arity: 1, Expr: atLeast(x0, p0), Ref: refP(math.Max), Domain: wide, Params: []float64{0.5},
		Grad: []*expr.Expr{x0.Gt(p0).Select(x1, expr.C(0))}})
	minScalarOp = Declare(&Elementwise{Name: "clamp_max", Arity: 1, Expr: atMost(x0, p0), Ref: refP(math.Min), Domain: wide, Params: []float64{0.5},
		Grad: []*expr.Expr{x0.Lt(p0).Select(x1, expr.C(0))}})
)

// Minimum returns the lesser of x and y. It is NaN if either is NaN. For 0 and -0 it returns -0;
// torch returns 0 or -0, depending on the element's position in a SIMD vector. On a tie each
// operand receives half of the gradient. If one operand is NaN, both receive the whole gradient, as
// in torch.
func (x *Tensor) Minimum(y *Tensor) *Tensor { return minimumOp.Apply([]*Tensor{x, y}) }

// Maximum returns the greater of x and y. It is NaN if either is NaN. For 0 and -0 it returns 0;
// torch returns 0 or -0, depending on the element's position in a SIMD vector. On a tie each
// operand receives half of the gradient. If one operand is NaN, both receive the whole gradient, as
// in torch.
func (x *Tensor) Maximum(y *Tensor) *Tensor { return maximumOp.Apply([]*Tensor{x, y}) }

// Fmax returns the greater of x and y. If one operand is NaN it returns the other operand. The
// operands are broadcast to a common shape. On a tie each operand receives half of the gradient.
func (x *Tensor) Fmax(y *Tensor) *Tensor { return fmaxOp.Apply([]*Tensor{x, y}) }

// Fmin returns the lesser of x and y. If one operand is NaN it returns the other operand. The
// operands are broadcast to a common shape. On a tie each operand receives half of the gradient.
func (x *Tensor) Fmin(y *Tensor) *Tensor { return fminOp.Apply([]*Tensor{x, y}) }

// Clamp returns x limited to [lo, hi]. If a limit is 0, zeros keep their sign. NaN stays NaN. At
// the limits themselves the gradient is 0, as in torch 2.15. It is an error if x's integer type has
// no number in [lo, hi].
func (x *Tensor) Clamp(lo, hi float64) *Tensor {
	x.checkLimits("clamp", lo, hi)
	return x.scalar(clampBy(lo, hi), lo, hi)
}

// ClampInPlace limits x to [lo, hi]; see [Tensor.Clamp].
func (x *Tensor) ClampInPlace(lo, hi float64) *Tensor {
	x.mustHold("clamp", lo)
	x.mustHold("clamp", hi)
	x.checkLimits("clamp", lo, hi)
	return x.inPlace(clampBy(lo, hi), []*Tensor{x}, lo, hi)
}

func clampBy(lo, hi float64) *Elementwise {
	// The limits are compared as float32, because rounding to the tensor's type may make them 0.
	if float32(lo) != 0 && float32(hi) != 0 {
		return clampPlainOp
	}
	return clampOp
}

// ClampMin returns the greater of x and lo. Its gradient at lo is 0.
func (x *Tensor) ClampMin(lo float64) *Tensor {
	x.checkLimits("clamp_min", lo, math.Inf(1))
	return x.scalar(maxScalarOp, lo)
}

// ClampMinInPlace replaces x by the greater of x and lo.
func (x *Tensor) ClampMinInPlace(lo float64) *Tensor {
	x.mustHold("clamp_min", lo)
	x.checkLimits("clamp_min", lo, math.Inf(1))
	return x.inPlace(maxScalarOp, []*Tensor{x}, lo)
}

// ClampMax returns the lesser of x and hi. Its gradient at hi is 0.
func (x *Tensor) ClampMax(hi float64) *Tensor {
	x.checkLimits("clamp_max", math.Inf(-1), hi)
	return x.scalar(minScalarOp, hi)
}

// ClampMaxInPlace replaces x by the lesser of x and hi.
func (x *Tensor) ClampMaxInPlace(hi float64) *Tensor {
	x.mustHold("clamp_max", hi)
	x.checkLimits("clamp_max", math.Inf(-1), hi)
	return x.inPlace(minScalarOp, []*Tensor{x}, hi)
}
