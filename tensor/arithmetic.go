package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
)

var (
	x0, x1, x2 = expr.X(0), expr.X(1), expr.X(2)
	p0, p1     = expr.Param(0), expr.Param(1)
	wide       = [][2]float64{{-4, 4}}
)

func ref1(f func(float64) float64) func(x, p []float64) float64 {
	return func(x, _ []float64) float64 { return f(x[0]) }
}

func ref2(f func(a, b float64) float64) func(x, p []float64) float64 {
	return func(x, _ []float64) float64 { return f(x[0], x[1]) }
}

func refP(f func(a, p float64) float64) func(x, p []float64) float64 {
	return func(x, p []float64) float64 { return f(x[0], p[0]) }
}

func plus(a, b float64) float64  { return a + b }
func minus(a, b float64) float64 { return a - b }
func times(a, b float64) float64 { return a * b }
func over(a, b float64) float64  { return a / b }
func nonZero() [][2]float64      { return [][2]float64{{-4, 4}, {0.5, 4}} }
func identity(x float64) float64 { return x }
func squared(x float64) float64  { return x * x }
func inverse(x float64) float64  { return 1 / x }
func invSqrt(x float64) float64  { return 1 / math.Sqrt(x) }

var (
	cloneOp = Declare(&Elementwise{Name: "clone", Arity: 1, Expr: x0, Ref: ref1(identity), Domain: wide})

	addOp = Declare(&Elementwise{Name: "add", Arity: 2, Expr: x0.Add(x1), Ref: ref2(plus), Domain: wide})
	subOp = Declare(&Elementwise{Name: "sub", Arity: 2, Expr: x0.Sub(x1), Ref: ref2(minus), Domain: wide})
	mulOp = Declare(&Elementwise{Name: "mul", Arity: 2, Expr: x0.Mul(x1), Ref: ref2(times), Domain: wide})
	divOp = Declare(&Elementwise{Name: "div", Arity: 2, Result: Floating, Expr: x0.Div(x1), Ref: ref2(over), Domain: nonZero(),
		// As in torch, the gradient of the divisor is computed as -g·((x/y)/y).
		Grad: []*expr.Expr{x2.Div(x1), x2.Neg().Mul(x0.Div(x1).Div(x1))}})

	addScalarOp  = Declare(&Elementwise{Name: "add_scalar", Arity: 1, Expr: x0.Add(p0), Ref: refP(plus), Domain: wide, Params: []float64{1.5}})
	mulScalarOp  = Declare(&Elementwise{Name: "mul_scalar", Arity: 1, Expr: x0.Mul(p0), Ref: refP(times), Domain: wide, Params: []float64{1.5}})
	divScalarOp  = Declare(&Elementwise{Name: "div_scalar", Arity: 1, Result: Floating, Expr: x0.Div(p0), Ref: refP(over), Domain: wide, Params: []float64{1.5}})
	rsubScalarOp = Declare(&Elementwise{Name: "rsub_scalar", Arity: 1, Expr: p0.Sub(x0), Ref: refP(func(a, p float64) float64 { return p - a }), Domain: wide, Params: []float64{1.5}})
	rdivScalarOp = Declare(&Elementwise{Name: "rdiv_scalar", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: p0.Div(x0), Ref: refP(func(a, p float64) float64 { return p / a }),
		Domain: [][2]float64{{0.5, 4}}, Params: []float64{1.5}, Grad: []*expr.Expr{x1.Neg().Mul(p0.Div(x0).Div(x0))}})

	negOp = Declare(&Elementwise{Name: "neg", Arity: 1, Expr: x0.Neg(), Ref: ref1(func(x float64) float64 { return -x }), Domain: wide})
	absOp = Declare(&Elementwise{Name: "abs", Arity: 1, Expr: x0.Abs(), Ref: ref1(math.Abs), Domain: wide,
		Grad: []*expr.Expr{x1.Mul(x0.Gt(expr.C(0)).Select(expr.C(1), x0.Lt(expr.C(0)).Select(expr.C(-1), expr.C(0))))}})
	squareOp = Declare(&Elementwise{Name: "square", Autocast: AutocastHigh, Arity: 1, Expr: x0.Mul(x0), Ref: ref1(squared), Domain: wide, Grad: []*expr.Expr{x1.Scale(2).Mul(x0)}})
	sqrtOp   = Declare(&Elementwise{Name: "sqrt", Arity: 1, Result: Floating, Expr: x0.Sqrt(), Ref: ref1(math.Sqrt), Domain: [][2]float64{{0.1, 9}},
		Grad: []*expr.Expr{x1.Div(expr.Y().Scale(2))}})
	rsqrtOp = Declare(&Elementwise{Name: "rsqrt", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: expr.C(1).Div(x0.Sqrt()), Ref: ref1(invSqrt), Domain: [][2]float64{{0.1, 9}},
		Grad: []*expr.Expr{x1.Scale(-0.5).Mul(expr.Y().Mul(expr.Y()).Mul(expr.Y()))}})
	reciprocalOp = Declare(&Elementwise{Name: "reciprocal", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: expr.C(1).Div(x0), Ref: ref1(inverse), Domain: [][2]float64{{0.5, 4}},
		Grad: []*expr.Expr{x1.Neg().Mul(expr.Y().Mul(expr.Y()))}})
)

// Add returns x + y. The operands are broadcast to a common shape.
//
//tensor:forms Scalar InPlace ScalarInPlace
func (x *Tensor) Add(y *Tensor) *Tensor { return addOp.Apply([]*Tensor{x, y}) }

// Sub returns x - y. The operands are broadcast to a common shape.
//
//tensor:forms RScalar InPlace
func (x *Tensor) Sub(y *Tensor) *Tensor { return subOp.Apply([]*Tensor{x, y}) }

// Mul returns x·y, element by element. The operands are broadcast to a common shape.
//
//tensor:forms Scalar InPlace ScalarInPlace
func (x *Tensor) Mul(y *Tensor) *Tensor { return mulOp.Apply([]*Tensor{x, y}) }

// Div returns x / y in floating point; integers are divided as float32. The operands are broadcast
// to a common shape.
//
//tensor:forms Scalar RScalar InPlace ScalarInPlace
func (x *Tensor) Div(y *Tensor) *Tensor { return divOp.Apply([]*Tensor{x, y}) }

// scalar applies op with a scalar. As in torch, a number promotes the tensor if the number has a
// higher class. The classes are bool, integer and floating point, in ascending order. A whole
// number turns bool into int64. A fraction, NaN or an infinity turns bool and integers into
// float32.
func (x *Tensor) scalar(op *Elementwise, v ...float64) *Tensor {
	x.use(op.called())
	if !x.dtype.IsFloat() && op.Result == Promoted {
		for _, w := range v {
			if w != math.Trunc(w) || math.IsInf(w, 0) {
				x = x.Float()
				break
			}
		}
		if x.dtype == boolType {
			x = x.Long()
		}
	}
	return op.Apply([]*Tensor{x}, v...)
}

// SubScalar returns x - v.
func (x *Tensor) SubScalar(v float64) *Tensor { return addScalarOp.number(x, -v) }

// SubScalarInPlace subtracts v from x.
func (x *Tensor) SubScalarInPlace(v float64) *Tensor { return x.AddScalarInPlace(-v) }

// Neg returns -x.
//
//tensor:forms InPlace
func (x *Tensor) Neg() *Tensor { return negOp.Apply([]*Tensor{x}) }

// Abs returns |x|. Its gradient at 0 is 0.
//
//tensor:forms InPlace
func (x *Tensor) Abs() *Tensor { return absOp.Apply([]*Tensor{x}) }

// Square returns x². The square of bool is int64.
//
//tensor:forms InPlace
func (x *Tensor) Square() *Tensor {
	if x.use("square"); x.dtype == boolType {
		x = x.Long()
	}
	return squareOp.Apply([]*Tensor{x})
}

// Sqrt returns the square root of x.
//
//tensor:forms InPlace
func (x *Tensor) Sqrt() *Tensor { return sqrtOp.Apply([]*Tensor{x}) }

// Rsqrt returns 1/√x.
//
//tensor:forms InPlace
func (x *Tensor) Rsqrt() *Tensor { return rsqrtOp.Apply([]*Tensor{x}) }

// Reciprocal returns 1/x.
//
//tensor:forms InPlace
func (x *Tensor) Reciprocal() *Tensor { return reciprocalOp.Apply([]*Tensor{x}) }
