package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

func logAddExp(a, b float64) float64 {
	if a == b {
		return a + math.Ln2
	}
	return math.Max(a, b) + math.Log1p(math.Exp(-math.Abs(a-b)))
}

// log2 returns the logarithm of x to base 2. math.Log2 loses accuracy near 1.
func log2(x float64) float64 {
	if math.Abs(x-1) < 0.25 {
		return math.Log1p(x-1) / math.Ln2
	}
	return math.Log2(x)
}

func xlogy(a, b float64) float64 {
	switch {
	case b != b:
		return b
	case a == 0:
		return 0
	}
	return a * math.Log(b)
}

func logit(x float64) float64 {
	if math.Abs(x-0.5) < 0.25 {
		return math.Log1p((2*x - 1) / (1 - x))
	}
	return math.Log(x / (1 - x))
}

// logitExpr is log(x/(1-x)). This formula loses accuracy near ½. There the expression is log(y) +
// (t-(y-1))/y, where t is (2x-1)/(1-x) and y is the rounded sum 1 + t. The second term corrects the
// rounding of y.
func logitExpr(x *expr.Expr) *expr.Expr {
	near := x.Sub(expr.C(0.5)).Abs().Lt(expr.C(0.25))
	t := near.Select(x.Add(x).Sub(unit), x).Div(unit.Sub(x))
	y := near.Select(unit.Add(t), t)
	lost := t.Sub(y.Sub(unit)).Div(y)
	return y.Log().Add(near.Select(lost, zeroC))
}

// xNegative is x < 0, and expNegAbs is e^-|x|. They express the gradient of log(sigmoid(x)), which
// is sigmoid(-x). The second derivative is small for large |x|. These two expressions keep it
// accurate there. The expression y·(1-y) for sigmoid's derivative would not.
var (
	xNegative = x0.Lt(zeroC)
	expNegAbs = xNegative.Select(x0, x0.Neg()).Exp()
)

var (
	expOp = Declare(&Elementwise{Name: "exp", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: x0.Exp(), Ref: ref1(math.Exp), Domain: wide})
	logOp = Declare(&Elementwise{Name: "log", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: x0.Log(), Ref: ref1(math.Log), Domain: [][2]float64{{0.1, 9}},
		Grad: []*expr.Expr{x1.Div(x0)}})

	exp2Op  = unary("exp2", x0.Exp2(), math.Exp2, -6, 6, nil)
	expm1Op = high(unary("expm1", x0.Expm1(), math.Expm1, -4, 4, nil))
	log2Op  = high(unary("log2", x0.Log2(), log2, 0.1, 9, x1.Div(x0.Scale(math.Ln2))))
	log10Op = high(unary("log10", x0.Log10(), math.Log10, 0.1, 9, x1.Div(x0.Scale(math.Ln10))))
	log1pOp = high(unary("log1p", x0.Log1p(), math.Log1p, -0.8, 9, x1.Div(x0.Add(unit))))

	erfOp    = unary("erf", x0.Erf(), math.Erf, -3, 3, nil)
	erfcOp   = unary("erfc", x0.Erfc(), math.Erfc, -3, 3, nil)
	erfinvOp = high(unary("erfinv", x0.Erfinv(), math.Erfinv, -0.9, 0.9, nil))

	logSigmoidOp = Declare(&Elementwise{Name: "log_sigmoid", Arity: 1, Result: FixedFloat, Expr: x0.LogSigmoid(), Domain: wide,
		Grad: []*expr.Expr{x1.Mul(xNegative.Select(unit, expNegAbs).Div(expNegAbs.Add(unit)))},
		Ref:  ref1(func(x float64) float64 { return math.Min(x, 0) - math.Log1p(math.Exp(-math.Abs(x))) })})
	logitOp = unary("logit", logitExpr(x0), logit, 0.06, 0.94,
		x0.Lt(expr.C(0)).Or(x0.Gt(unit)).Select(expr.C(math.NaN()), x1.Div(x0.Mul(unit.Sub(x0)))))
	// x is limited to [ε, 1-ε], and the gradient is 0 outside of this interval. p0 is ε.
	logitEpsOp = Declare(&Elementwise{Name: "logit_eps", Arity: 1, Result: Floating, Domain: [][2]float64{{-0.5, 1.5}}, Params: []float64{0.1},
		Expr: logitExpr(x0.Lt(p0).Select(p0, x0.Gt(unit.Sub(p0)).Select(unit.Sub(p0), x0))),
		Ref:  refP(func(x, eps float64) float64 { return logit(math.Min(math.Max(x, eps), 1-eps)) }),
		Grad: []*expr.Expr{x0.Lt(p0).Or(x0.Gt(unit.Sub(p0))).Select(expr.C(0), x1.Div(x0.Mul(unit.Sub(x0))))}})

	logAddExpOp = Declare(&Elementwise{Name: "logaddexp", Arity: 2, Result: FixedFloat, Expr: x0.LogAddExp(x1), Ref: ref2(logAddExp), Domain: wide})
	xlogyOp     = Declare(&Elementwise{Name: "xlogy", Arity: 2, Result: Floating, Domain: [][2]float64{{-4, 4}, {0.2, 4}}, Ref: ref2(xlogy),
		Expr: x1.Ne(x1).Select(x1, x0.Eq(expr.C(0)).Select(expr.C(0), x0.Mul(x1.Log()))),
		Grad: []*expr.Expr{x0.Eq(expr.C(0)).And(x1.Le(expr.C(0))).Select(expr.C(0), x2.Mul(x1.Log())), x2.Mul(x0).Div(x1)}})

	// The derivative is written out so that it is ∞ at 0 and NaN below, as in torch.
	entrOp = unary("entr", x0.Eq(zeroC).Select(zeroC, x0.Lt(zeroC).Select(expr.C(math.Inf(-1)), x0.Neg().Mul(x0.Log()))),
		func(x float64) float64 { return -xlogy(x, x) }, 0.5, 4, x1.Neg().Mul(x0.Log().Add(unit)))
	ndtrOp = unary("ndtr", x0.Scale(-math.Sqrt2/2).Erfc().Scale(0.5),
		func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }, -1, 4, nil)
)

// Exp returns e to the power x.
//
//tensor:forms InPlace
func (x *Tensor) Exp() *Tensor { return expOp.Apply([]*Tensor{x}) }

// Log returns the natural logarithm of x.
//
//tensor:forms InPlace
func (x *Tensor) Log() *Tensor { return logOp.Apply([]*Tensor{x}) }

// Exp2 returns 2 to the power x.
func (x *Tensor) Exp2() *Tensor { return exp2Op.Apply([]*Tensor{x}) }

// Expm1 returns eˣ-1, accurate near 0.
//
//tensor:forms InPlace
func (x *Tensor) Expm1() *Tensor { return expm1Op.Apply([]*Tensor{x}) }

// Log2 returns the logarithm of x to base 2.
func (x *Tensor) Log2() *Tensor { return log2Op.Apply([]*Tensor{x}) }

// Log10 returns the logarithm of x to base 10.
func (x *Tensor) Log10() *Tensor { return log10Op.Apply([]*Tensor{x}) }

// Log1p returns log(1+x), accurate near 0.
//
//tensor:forms InPlace
func (x *Tensor) Log1p() *Tensor { return log1pOp.Apply([]*Tensor{x}) }

// Erf returns the error function of x, which is 2/√π · ∫₀ˣ exp(-t²) dt.
func (x *Tensor) Erf() *Tensor { return erfOp.Apply([]*Tensor{x}) }

// Erfc returns 1 - erf(x), accurate also where the result is small.
func (x *Tensor) Erfc() *Tensor { return erfcOp.Apply([]*Tensor{x}) }

// Erfinv returns the y for which erf(y) = x. It is ±Inf at ±1 and NaN beyond.
func (x *Tensor) Erfinv() *Tensor {
	if !x.dtype.IsFloat() {
		return erfinvOp.Apply([]*Tensor{x})
	}
	return Apply(erfinvFunc{}, x)
}

// ErfinvInPlace replaces x by its inverse error function; see [Tensor.Erfinv].
func (x *Tensor) ErfinvInPlace() *Tensor { return x.inPlace(erfinvOp, []*Tensor{x}) }

// erfinvFunc computes the gradient of erfinv, ½√π·exp(y²), in a wider type. In the operand's type
// the gradient would be inaccurate: its relative error would be 2y² times that of the rounded y.
type erfinvFunc struct{}

func (erfinvFunc) Name() string { return "erfinv" }

func (erfinvFunc) Forward(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) {
		c.Save(in[0])
	}
	return erfinvOp.Apply(in)
}

func (f erfinvFunc) lean(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) {
		return nil
	}
	return f.Forward(c, in)
}

func (erfinvFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x := c.Saved(0)
	return []*Tensor{erfinvGradients[x.dtype].Apply([]*Tensor{x, g.Cast(x.dtype)})}
}

// erfinvGradients holds, for each type, the op that multiplies a gradient by the derivative of
// erfinv. Both operands have that type.
var erfinvGradients = func() map[dtype.Type]*Elementwise {
	ops := map[dtype.Type]*Elementwise{}
	for t, wide := range map[dtype.Type]dtype.Type{dtype.F16: dtype.F32, dtype.BF16: dtype.F32, dtype.F32: dtype.F64, dtype.F64: dtype.F64} {
		y := x0.Cvt(wide).Erfinv()
		slope := y.Mul(y).Exp().Scale(math.Sqrt(math.Pi) / 2)
		ops[t] = &Elementwise{
			Name: "erfinv_gradient", Arity: 2, Result: Floating, Autocast: AutocastHigh,
			Expr: slope.Mul(x1.Cvt(wide)), types: []dtype.Type{t, t}, stored: t,
		}
	}
	return ops
}()

// LogSigmoid returns log(sigmoid(x)) = -log(1+e⁻ˣ) of a floating point tensor.
func (x *Tensor) LogSigmoid() *Tensor { return logSigmoidOp.Apply([]*Tensor{x}) }

// Logit returns log(x/(1-x)), the inverse of Sigmoid. It is NaN outside of [0, 1]. If eps is given,
// x is limited to [eps, 1-eps] first, and the gradient is 0 outside of this interval. If eps is
// greater than ½, x becomes eps where x < eps, and 1-eps elsewhere, as in torch. A negative eps is
// an error; torch treats it as no eps.
func (x *Tensor) Logit(eps ...float64) *Tensor {
	switch {
	case len(eps) == 0:
		return logitOp.Apply([]*Tensor{x})
	case len(eps) > 1 || !(eps[0] >= 0):
		fail("logit", ErrValue, []*Tensor{x}, "eps is %v, it must be one number that is not negative", eps)
	}
	return logitEpsOp.Apply([]*Tensor{x}, eps[0])
}

// LogAddExp returns log(eˣ+eʸ) of floating point tensors, without overflow. The operands are
// broadcast to a common shape.
func (x *Tensor) LogAddExp(y *Tensor) *Tensor { return logAddExpOp.Apply([]*Tensor{x, y}) }

// XLogY returns x·log(y), and 0 where x is 0, unless y is NaN. The operands are broadcast to a
// common shape.
//
//tensor:forms Scalar RScalar
func (x *Tensor) XLogY(y *Tensor) *Tensor { return xlogyOp.Apply([]*Tensor{x, y}) }

// Entr returns -x·log(x), the term of a probability x in an entropy. It is 0 at 0 and -Inf below.
// The gradient, -1 - log(x), is +Inf at 0 and NaN below. Entr is torch.special.entr.
func (x *Tensor) Entr() *Tensor { return entrOp.Apply([]*Tensor{x}) }

// Ndtr returns ½·erfc(-x/√2), the probability that a standard normal number is at most x. For large
// negative x the result is small, and its relative error is about x²/2 times a rounding error.
// torch.special.ndtr is computed as ½·(1 + erf(x/√2)), and returns 0 for such x.
func (x *Tensor) Ndtr() *Tensor { return ndtrOp.Apply([]*Tensor{x}) }
