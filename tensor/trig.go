package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
)

// unit is the constant 1 in formulas.
var unit = expr.C(1)

func unary(name string, e *expr.Expr, ref func(float64) float64, lo, hi float64, grad *expr.Expr) *Elementwise {
	op := &Elementwise{Name: name, Arity: 1, Result: Floating, Expr: e, Ref: ref1(ref), Domain: [][2]float64{{lo, hi}}}
	if grad != nil {
		op.Grad = []*expr.Expr{grad}
	}
	return Declare(op)
}

// onePlusSquare and oneMinusSquare are the formulas 1 + x² and 1 - x².
var (
	onePlusSquare = x0.FMA(x0, unit)
	// In this form the derivative is -x-x, which is accurate for x near 0. The derivative of
	// (1-x)(1+x) would be (1-x)-(1+x), which is not accurate there.
	oneMinusSquare = x0.Neg().FMA(x0, unit)
)

// inverseSquares is the formula 1/(x²+y²), or 0 where both squares are 0. It makes the gradient of
// atan2 at the origin 0, as in torch.
var inverseSquares = func() *expr.Expr {
	n := x0.FMA(x0, x1.Mul(x1))
	return n.Eq(expr.C(0)).Select(expr.C(0), unit.Div(n))
}()

var (
	sinOp   = unary("sin", x0.Sin(), math.Sin, -4, 4, nil)
	cosOp   = unary("cos", x0.Cos(), math.Cos, -4, 4, nil)
	tanOp   = high(unary("tan", x0.Tan(), math.Tan, -1.3, 1.3, nil))
	asinOp  = high(unary("asin", x0.Asin(), math.Asin, -0.9, 0.9, x1.Mul(oneMinusSquare.Rsqrt())))
	acosOp  = high(unary("acos", x0.Acos(), math.Acos, -0.9, 0.9, x1.Neg().Mul(oneMinusSquare.Rsqrt())))
	atanOp  = unary("atan", x0.Atan(), math.Atan, -4, 4, x1.Div(onePlusSquare))
	sinhOp  = high(unary("sinh", x0.Sinh(), math.Sinh, -4, 4, nil))
	coshOp  = high(unary("cosh", x0.Cosh(), math.Cosh, -4, 4, nil))
	asinhOp = unary("asinh", x0.Asinh(), math.Asinh, -4, 4, x1.Mul(onePlusSquare.Rsqrt()))
	acoshOp = unary("acosh", x0.Acosh(), math.Acosh, 1.2, 9, x1.Mul(x0.Sub(unit).Mul(x0.Add(unit)).Add(zeroC).Rsqrt()))
	atanhOp = unary("atanh", x0.Atanh(), math.Atanh, -0.9, 0.9, x1.Div(oneMinusSquare))

	// The result of atan2 is in [-π, π]: the signs of both operands determine its quadrant.
	atan2Op = Declare(&Elementwise{Name: "atan2", Autocast: AutocastWidest, Arity: 2, Result: Floating, Expr: x0.Atan2(x1), Ref: ref2(math.Atan2), Domain: nonZero(),
		Grad: []*expr.Expr{x2.Mul(x1).Mul(inverseSquares), x2.Mul(x0.Neg()).Mul(inverseSquares)}})
	hypotOp = Declare(&Elementwise{Name: "hypot", Arity: 2, Result: FixedFloat, Expr: x0.Hypot(x1), Ref: ref2(math.Hypot), Domain: nonZero(),
		Grad: []*expr.Expr{x2.Mul(x0.Div(expr.Y())), x2.Mul(x1.Div(expr.Y()))}})
)

// Sin returns the sine of x, in radians.
//
//tensor:forms InPlace
func (x *Tensor) Sin() *Tensor { return sinOp.Apply([]*Tensor{x}) }

// Cos returns the cosine of x, in radians.
//
//tensor:forms InPlace
func (x *Tensor) Cos() *Tensor { return cosOp.Apply([]*Tensor{x}) }

// Tan returns the tangent of x, in radians.
func (x *Tensor) Tan() *Tensor { return tanOp.Apply([]*Tensor{x}) }

// Asin returns the inverse sine of x, in radians from -π/2 to π/2. It is NaN outside of [-1, 1].
func (x *Tensor) Asin() *Tensor { return asinOp.Apply([]*Tensor{x}) }

// Acos returns the inverse cosine of x, in radians from 0 to π. It is NaN outside of [-1, 1].
func (x *Tensor) Acos() *Tensor { return acosOp.Apply([]*Tensor{x}) }

// Atan returns the inverse tangent of x, in radians from -π/2 to π/2.
func (x *Tensor) Atan() *Tensor { return atanOp.Apply([]*Tensor{x}) }

// Atan2 returns the angle of the point (y, x), where y is the receiver. It is the inverse tangent
// of y/x in the right quadrant, in radians from -π to π. x and y are broadcast to a common shape.
// At the origin the gradient is 0, as in torch.
func (y *Tensor) Atan2(x *Tensor) *Tensor { return atan2Op.Apply([]*Tensor{y, x}) }

// Hypot returns √(x²+y²) of floating point tensors. The operands are broadcast to a common shape.
// Intermediate results do not overflow. At the origin the gradient is NaN, as in torch.
func (x *Tensor) Hypot(y *Tensor) *Tensor { return hypotOp.Apply([]*Tensor{x, y}) }

// Sinh returns the hyperbolic sine of x.
func (x *Tensor) Sinh() *Tensor { return sinhOp.Apply([]*Tensor{x}) }

// Cosh returns the hyperbolic cosine of x.
func (x *Tensor) Cosh() *Tensor { return coshOp.Apply([]*Tensor{x}) }

// Asinh returns the inverse hyperbolic sine of x.
func (x *Tensor) Asinh() *Tensor { return asinhOp.Apply([]*Tensor{x}) }

// Acosh returns the inverse hyperbolic cosine of x. It is NaN below 1.
func (x *Tensor) Acosh() *Tensor { return acoshOp.Apply([]*Tensor{x}) }

// Atanh returns the inverse hyperbolic tangent of x. It is ±Inf at ±1, and NaN beyond.
func (x *Tensor) Atanh() *Tensor { return atanhOp.Apply([]*Tensor{x}) }
