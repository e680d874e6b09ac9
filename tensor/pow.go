package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

var (
	powOp = Declare(&Elementwise{Name: "pow", Autocast: AutocastHigh, Arity: 2, Result: Floating, Expr: x0.Pow(x1), Ref: ref2(math.Pow), Domain: [][2]float64{{0.2, 3}, {-2, 2}},
		Grad: []*expr.Expr{
			// The gradient of x is g·y·x^(y-1). For y = 0 it is 0 for any x.
			x1.Eq(expr.C(0)).Select(expr.C(0), x2.Mul(x1.Mul(x0.Pow(x1.Sub(expr.C(1)))))),
			// The gradient of y is g·x^y·ln x, and 0 where x is 0 and y is not negative, as in
			// torch. For x = 0 and y > 0, a small change of y leaves x^y at 0. For y = 0 the value
			// 0 is a convention.
			x0.Eq(expr.C(0)).And(x1.Ge(expr.C(0))).Select(expr.C(0), x2.Mul(expr.Y().Mul(x0.Log()))),
		}})
	powScalarOp = Declare(&Elementwise{Name: "pow_scalar", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: x0.Pow(p0), Ref: refP(math.Pow), Domain: [][2]float64{{0.2, 3}},
		Params: []float64{2.5},
		// The gradient is g·p·x^(p-1), and 0 for p = 0 and any x. If p-1 is ½, the power is
		// computed as a square root, as in torch: so the gradient is NaN at -Inf, and -0 at -0.
		Grad: []*expr.Expr{p0.Eq(expr.C(0)).Select(expr.C(0), x1.Mul(p0.Mul(p0.Eq(expr.C(1.5)).Select(x0.Sqrt(), x0.Pow(p0.Sub(expr.C(1)))))))}})
	// This op computes pow_scalar for an exponent that float32 cannot hold. Param(0) is the rounded
	// exponent, and Param(1) is the remainder. Without the remainder the relative error of the
	// result would be ln(x) times the rounding error of the exponent.
	powFractionOp = Declare(&Elementwise{Name: "pow_fraction", form: "pow_scalar", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: x0.PowSum(p0, p1), Domain: [][2]float64{{0.2, 3}},
		Ref:    func(x, p []float64) float64 { return math.Pow(x[0], p[0]+p[1]) },
		Params: []float64{float64(float32(2.4)), 2.4 - float64(float32(2.4))}})
	// x^-½ is computed as 1/√x. Its gradient has the general form, g·(-½)·x^(-3/2), which is -Inf
	// at -0.
	powRsqrtOp = Declare(&Elementwise{Name: "pow_rsqrt", form: "pow_scalar", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: expr.C(1).Div(x0.Sqrt()), Ref: ref1(invSqrt), Domain: [][2]float64{{0.2, 3}},
		Grad: []*expr.Expr{x1.Mul(x0.Pow(expr.C(-1.5)).Scale(-0.5))}})
	// x³ is computed by two multiplications, and so is rounded twice.
	powCubeOp = Declare(&Elementwise{Name: "pow_cube", form: "pow_scalar", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: x0.Mul(x0).Mul(x0), Ref: ref1(func(x float64) float64 { return x * x * x }), Domain: wide,
		Grad: []*expr.Expr{x1.Mul(x0.Mul(x0).Scale(3))}})
	// This op raises a number to the power of a tensor. If the number is 0, the gradient is 0 for x
	// ≥ 0.
	rpowScalarOp = Declare(&Elementwise{Name: "rpow_scalar", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: p0.Pow(x0), Domain: wide, Params: []float64{1.5},
		Ref:  refP(func(x, base float64) float64 { return math.Pow(base, x) }),
		Grad: []*expr.Expr{x1.Mul(p0.Eq(zeroC).And(x0.Ge(zeroC)).Select(zeroC, expr.Y().Mul(p0.Log())))}})
)

// Pow returns x to the power y, in floating point.
//
//tensor:forms RScalar InPlace
func (x *Tensor) Pow(y *Tensor) *Tensor { return powOp.Apply([]*Tensor{x, y}) }

// PowScalar returns x to the power p, in floating point.
func (x *Tensor) PowScalar(p float64) *Tensor {
	if y := underAutocast("pow_scalar", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].PowScalar(p) }, x); y != nil {
		return y
	}
	switch p { // torch uses these formulas too; they are faster, and exact or within 1 ulp
	case 2:
		return x.floating().Square()
	case 3:
		return powCubeOp.Apply([]*Tensor{x})
	case 0.5:
		return x.Sqrt()
	case -0.5:
		return powRsqrtOp.Apply([]*Tensor{x})
	case -1:
		return x.Reciprocal()
	}
	op, params := x.powerOf(p)
	return x.scalar(op, params...)
}

// PowScalarInPlace raises the floating point tensor x to the power p.
func (x *Tensor) PowScalarInPlace(p float64) *Tensor {
	x.use("pow_scalar")
	if x.dtype.IsFloat() {
		switch p { // These are the cases of PowScalar.
		case 2:
			return x.SquareInPlace()
		case 3:
			return x.inPlace(powCubeOp, []*Tensor{x})
		case 0.5:
			return x.SqrtInPlace()
		case -0.5:
			return x.inPlace(powRsqrtOp, []*Tensor{x})
		case -1:
			return x.ReciprocalInPlace()
		}
	}
	op, params := x.powerOf(p)
	return x.inPlace(op, []*Tensor{x}, params...)
}

// powRounded does what PowScalar does, except that it rounds x³ only once. Computations of several
// ops use it as one of their steps.
func (x *Tensor) powRounded(p float64) *Tensor {
	if p == 3 {
		op, params := x.powerOf(p)
		return x.scalar(op, params...)
	}
	return x.PowScalar(p)
}

func (x *Tensor) powerOf(p float64) (*Elementwise, []float64) {
	hi := float64(float32(p))
	if hi == p || p != p || math.IsInf(hi, 0) || x.dtype == dtype.F64 || x.dtype.IsHalf() {
		return powScalarOp, []float64{p}
	}
	return powFractionOp, []float64{hi, p - hi}
}

func (x *Tensor) floating() *Tensor {
	x.use("pow_scalar")
	if x.dtype.IsFloat() {
		return x
	}
	return x.Float()
}
