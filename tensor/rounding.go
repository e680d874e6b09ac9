package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// zeroGrad is the gradient 0 of functions that are constant between jumps, as in torch.
var zeroGrad = []*expr.Expr{expr.C(0)}

// jumpDomain is a range in which tests can keep operands away from jumps, in bfloat16 too.
var jumpDomain = [][2]float64{{-3.9, 3.9}}

var infinity = expr.C(math.Inf(1))

// step declares an op that is constant between jumps. Its gradient is 0.
func step(name string, e *expr.Expr, ref func(float64) float64, noBool bool) *Elementwise {
	return Declare(&Elementwise{Name: name, Arity: 1, Expr: e, Ref: ref1(ref), Domain: jumpDomain, NoBool: noBool, Grad: zeroGrad})
}

func truth(name string, e *expr.Expr, ref func(float64) bool) *Elementwise {
	return Declare(&Elementwise{Name: name, Arity: 1, Result: Truth, Expr: e, Domain: wide, NoGrad: true,
		Ref: func(x, _ []float64) float64 {
			if ref(x[0]) {
				return 1
			}
			return 0
		}})
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

var (
	signOp  = step("sign", x0.Gt(expr.C(0)).Select(unit, x0.Lt(expr.C(0)).Select(expr.C(-1), expr.C(0))), sign, false)
	floorOp = step("floor", x0.Floor(), math.Floor, true)
	ceilOp  = step("ceil", x0.Neg().Floor().Neg(), math.Ceil, true)
	roundOp = step("round", x0.RoundEven(), math.RoundToEven, true)
	truncOp = step("trunc", x0.Trunc(), math.Trunc, true)
	fracOp  = Declare(&Elementwise{Name: "frac", Arity: 1, Result: FixedFloat, Expr: x0.Sub(x0.Trunc()), Domain: jumpDomain,
		Ref: ref1(func(x float64) float64 { return x - math.Trunc(x) })})
	// This op rounds to n decimals. For n ≥ 0 Params[0] is 10ⁿ and Params[1] is 1. For negative n
	// Params[0] is 1 and Params[1] is 10⁻ⁿ.
	roundDecimalsOp = Declare(&Elementwise{Name: "round_decimals", Arity: 1, Result: FixedFloat, Domain: jumpDomain, Params: []float64{10, 1}, Grad: zeroGrad,
		Expr: x0.Mul(p0).Div(p1).RoundEven().Div(p0).Mul(p1),
		Ref:  func(x, p []float64) float64 { return math.RoundToEven(x[0]*p[0]/p[1]) / p[0] * p[1] }})

	// The ops for infinities rely on this: 0·x is 0 for finite x, and NaN for infinities and NaN.
	// Integers are always finite.
	isNaNOp    = truth("isnan", x0.Ne(x0), math.IsNaN)
	isInfOp    = truth("isinf", x0.Mul(expr.C(0)).Ne(expr.C(0)).And(x0.Eq(x0)), func(x float64) bool { return math.IsInf(x, 0) })
	isPosInfOp = truth("isposinf", x0.Mul(expr.C(0)).Ne(expr.C(0)).And(x0.Gt(expr.C(0))), func(x float64) bool { return math.IsInf(x, 1) })
	isNegInfOp = truth("isneginf", x0.Mul(expr.C(0)).Ne(expr.C(0)).And(x0.Lt(expr.C(0))), func(x float64) bool { return math.IsInf(x, -1) })
	isFiniteOp = truth("isfinite", x0.Mul(expr.C(0)).Eq(expr.C(0)), func(x float64) bool { return !math.IsInf(x, 0) && x == x })

	nanToNumOp = Declare(&Elementwise{Name: "nan_to_num", Arity: 1, Result: FixedFloat, Domain: wide, Params: []float64{0, 9, -9},
		Expr: x0.Ne(x0).Select(p0, x0.Eq(infinity).Select(p1, x0.Eq(infinity.Neg()).Select(expr.Param(2), x0))),
		Ref: func(x, p []float64) float64 {
			switch {
			case x[0] != x[0]:
				return p[0]
			case math.IsInf(x[0], 1):
				return p[1]
			case math.IsInf(x[0], -1):
				return p[2]
			}
			return x[0]
		},
		Grad: []*expr.Expr{x1.Mul(x0.Abs().Lt(infinity).Select(unit, expr.C(0)))}})

	copySignOp = Declare(&Elementwise{Name: "copysign", Arity: 2, Result: Floating, Expr: x0.CopySign(x1), Ref: ref2(math.Copysign), Domain: wide,
		Grad: []*expr.Expr{x2.Mul(x0.Eq(zeroC).Select(zeroC, expr.Y().Div(x0))), zeroC}})
	copySignScalarOp = Declare(&Elementwise{Name: "copysign_scalar", Arity: 1, Result: Floating, Expr: x0.CopySign(p0), Ref: refP(math.Copysign), Domain: wide, Params: []float64{-1},
		Grad: []*expr.Expr{x1.Mul(x0.Eq(zeroC).Select(zeroC, expr.Y().Div(x0)))}})
)

// Sign returns 1, 0 or -1 as x is positive, zero or negative. For NaN it is 0, as in torch. Its
// gradient is 0.
//
//tensor:forms InPlace
func (x *Tensor) Sign() *Tensor { return signOp.Apply([]*Tensor{x}) }

// CopySign returns |x| with the sign of y. The operands are broadcast to a common shape. -0 has a
// negative sign too. The gradient at x = 0 is 0.
//
//tensor:forms Scalar
func (x *Tensor) CopySign(y *Tensor) *Tensor { return copySignOp.Apply([]*Tensor{x, y}) }

// Floor returns the greatest integer not above x. Integers do not change. Its gradient is 0.
//
//tensor:forms InPlace
func (x *Tensor) Floor() *Tensor { return floorOp.Apply([]*Tensor{x}) }

// Ceil returns the least integer not below x. Integers do not change. Its gradient is 0.
//
//tensor:forms InPlace
func (x *Tensor) Ceil() *Tensor { return ceilOp.Apply([]*Tensor{x}) }

// Round returns the integer nearest to x. If two integers are equally near, it returns the even
// one. An integer tensor is returned unchanged. The gradient is 0.
//
//tensor:forms InPlace
func (x *Tensor) Round() *Tensor { return roundOp.Apply([]*Tensor{x}) }

// RoundDecimals returns the floating point tensor x rounded to n decimals, as torch's
// round(decimals=n) does. A negative n rounds to tens, hundreds, …. Its gradient is 0.
func (x *Tensor) RoundDecimals(n int) *Tensor {
	if n < -300 || n > 300 {
		fail("round", ErrValue, []*Tensor{x}, "%d decimals", n)
	}
	return roundDecimalsOp.Apply([]*Tensor{x}, math.Pow10(max(n, 0)), math.Pow10(max(-n, 0)))
}

// Trunc returns x without its fraction. Integers do not change. Its gradient is 0.
//
//tensor:forms InPlace
func (x *Tensor) Trunc() *Tensor { return truncOp.Apply([]*Tensor{x}) }

// Frac returns the fraction of the floating point tensor x, with x's sign.
func (x *Tensor) Frac() *Tensor { return fracOp.Apply([]*Tensor{x}) }

// IsNaN returns whether x is NaN.
func (x *Tensor) IsNaN() *Tensor { return isNaNOp.Apply([]*Tensor{x}) }

// IsInf returns whether x is infinite.
func (x *Tensor) IsInf() *Tensor { return isInfOp.Apply([]*Tensor{x}) }

// IsPosInf returns whether x is +Inf.
func (x *Tensor) IsPosInf() *Tensor { return isPosInfOp.Apply([]*Tensor{x}) }

// IsNegInf returns whether x is -Inf.
func (x *Tensor) IsNegInf() *Tensor { return isNegInfOp.Apply([]*Tensor{x}) }

// IsFinite returns whether x is neither infinite nor NaN.
func (x *Tensor) IsFinite() *Tensor { return isFiniteOp.Apply([]*Tensor{x}) }

// NanToNum returns x with NaN, +Inf and -Inf replaced by values, in this order. The defaults are 0,
// the greatest and the least number of x's type. Integers are copied. The gradient is 0 where a
// number was replaced.
func (x *Tensor) NanToNum(values ...float64) *Tensor {
	v, ok := x.replacements(values)
	if !ok {
		return x.Clone()
	}
	return nanToNumOp.Apply([]*Tensor{x}, v...)
}

// NanToNumInPlace replaces NaN, +Inf and -Inf in x; see [Tensor.NanToNum].
func (x *Tensor) NanToNumInPlace(values ...float64) *Tensor {
	v, ok := x.replacements(values)
	if !ok {
		return x
	}
	return x.inPlace(nanToNumOp, []*Tensor{x}, v...)
}

// replacements returns the parameters of nan_to_num. ok is false for integers, which need no
// replacement.
func (x *Tensor) replacements(values []float64) (v []float64, ok bool) {
	x.use("nan_to_num")
	if len(values) > 3 {
		fail("nan_to_num", ErrValue, []*Tensor{x}, "%d values, at most 3 are replaced", len(values))
	}
	if !x.dtype.IsFloat() {
		return nil, false
	}
	v = []float64{0, greatest(x.dtype), -greatest(x.dtype)}
	copy(v, values)
	return v, true
}

// greatest returns the greatest finite number of the floating point type t.
func greatest(t dtype.Type) float64 {
	switch t {
	case dtype.F16:
		return 65504
	case dtype.BF16:
		return 0x1.fep127
	case dtype.F32:
		return math.MaxFloat32
	}
	return math.MaxFloat64
}
