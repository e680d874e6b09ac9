package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
)

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

var (
	tanhOp    = Declare(&Elementwise{Name: "tanh", Arity: 1, Result: Floating, Expr: x0.Tanh(), Ref: ref1(math.Tanh), Domain: wide})
	sigmoidOp = Declare(&Elementwise{Name: "sigmoid", Arity: 1, Result: Floating, Expr: x0.Sigmoid(), Ref: ref1(sigmoid), Domain: wide})
	// The gradient of relu is g where the result is positive, and 0 where the result is 0. It is 0
	// even for an infinite g, for which 0·g would be NaN.
	reluOp = Declare(&Elementwise{Name: "relu", Arity: 1, Expr: x0.Lt(expr.C(0)).Select(expr.C(0), x0), Ref: ref1(func(x float64) float64 { return math.Max(x, 0) }), Domain: wide,
		Grad: []*expr.Expr{expr.Y().Le(expr.C(0)).Select(expr.C(0), x1)}})
	siluOp = Declare(&Elementwise{Name: "silu", Arity: 1, Result: Floating, Expr: x0.Mul(x0.Sigmoid()), Ref: ref1(func(x float64) float64 { return x * sigmoid(x) }), Domain: wide,
		// the derivative is σ(x)·(1 + x·(1 - σ(x)))
		Grad: []*expr.Expr{x1.Mul(x0.Sigmoid().Mul(expr.C(1).Add(x0.Mul(expr.C(1).Sub(x0.Sigmoid())))))}})
	geluOp = Declare(&Elementwise{Name: "gelu", Arity: 1, Result: Floating, Domain: [][2]float64{{-6, 6}},
		Expr: expr.Call("gelu", x0),
		Ref:  ref1(func(x float64) float64 { return 0.5 * x * math.Erfc(-x/math.Sqrt2) })})
	// This is the tanh approximation of D. Hendrycks, K. Gimpel, arXiv:1606.08415.
	geluTanhOp = Declare(&Elementwise{Name: "gelu_tanh", Arity: 1, Result: Floating, Domain: [][2]float64{{-6, 6}},
		Expr: expr.Call("gelu_tanh", x0),
		Ref: ref1(func(x float64) float64 {
			return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		})})
)

// Tanh returns the hyperbolic tangent of x.
//
//tensor:forms InPlace
func (x *Tensor) Tanh() *Tensor { return tanhOp.Apply([]*Tensor{x}) }

// Sigmoid returns 1/(1+e⁻ˣ).
//
//tensor:forms InPlace
func (x *Tensor) Sigmoid() *Tensor { return sigmoidOp.Apply([]*Tensor{x}) }

// Relu returns x where it is not negative and 0 elsewhere. It keeps -0, and its gradient at 0 is 0.
//
//tensor:forms InPlace:F
func (x *Tensor) Relu() *Tensor { return reluOp.Apply([]*Tensor{x}) }

// Silu returns x·sigmoid(x).
//
//tensor:forms InPlace:F
func (x *Tensor) Silu() *Tensor { return siluOp.Apply([]*Tensor{x}) }

// Gelu returns the Gaussian error linear unit x·Φ(x), computed with the error function.
//
//tensor:forms InPlace:none
func (x *Tensor) Gelu() *Tensor { return geluOp.Apply([]*Tensor{x}) }

// GeluTanh returns the Gaussian error linear unit in its tanh approximation.
func (x *Tensor) GeluTanh() *Tensor { return geluTanhOp.Apply([]*Tensor{x}) }
