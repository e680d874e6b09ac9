package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
)

func lerp(a, b, w float64) float64 { return a + w*(b-a) }

// lerpExpr returns a + w·(b-a). It starts from the nearer of a and b, so that the result for a
// weight of 1 is exactly b. Its products and sums are fused, as in torch.
func lerpExpr(a, b, w *expr.Expr) *expr.Expr {
	return w.Abs().Lt(expr.C(0.5)).Select(w.FMA(b.Sub(a), a), b.Sub(a).Neg().FMA(unit.Sub(w), b))
}

var (
	x3 = expr.X(3)

	lerpOp = Declare(&Elementwise{Name: "lerp", Arity: 3, Result: FixedFloat, Expr: lerpExpr(x0, x1, x2), Domain: [][2]float64{{-4, 4}, {-4, 4}, {-0.5, 1.5}},
		Ref:  func(x, _ []float64) float64 { return lerp(x[0], x[1], x[2]) },
		Grad: []*expr.Expr{x3.Mul(unit.Sub(x2)), x3.Mul(x2), x3.Mul(x1.Sub(x0))}})
	lerpScalarOp = Declare(&Elementwise{Name: "lerp_scalar", Arity: 2, Result: FixedFloat, Expr: lerpExpr(x0, x1, p0), Domain: wide, Params: []float64{0.3},
		Ref:  func(x, p []float64) float64 { return lerp(x[0], x[1], p[0]) },
		Grad: []*expr.Expr{x2.Mul(unit.Sub(p0)), x2.Mul(p0)}})

	addcmulOp = Declare(&Elementwise{Name: "addcmul", Autocast: AutocastWidest, Arity: 3, Expr: x0.Add(p0.Mul(x1).Mul(x2)), Domain: wide, Params: []float64{3}, NoBool: true,
		Ref:  func(x, p []float64) float64 { return x[0] + p[0]*x[1]*x[2] },
		Grad: []*expr.Expr{x3, x3.Mul(x2.Mul(p0)), x3.Mul(x1.Mul(p0))}})
	addcdivOp = Declare(&Elementwise{Name: "addcdiv", Autocast: AutocastWidest, Arity: 3, Result: FixedFloat, Expr: x0.Add(p0.Mul(x1).Div(x2)), Domain: [][2]float64{{-4, 4}, {-4, 4}, {0.5, 4}}, Params: []float64{3},
		Ref:  func(x, p []float64) float64 { return x[0] + p[0]*x[1]/x[2] },
		Grad: []*expr.Expr{x3, x3.Mul(p0.Div(x2)), x3.Neg().Mul(p0.Mul(x1).Div(x2.Mul(x2)))}})
)

// Lerp returns x + w·(end-x) of floating point tensors. The operands are broadcast to a common
// shape. The result is x for a weight of 0, and the operand end for a weight of 1.
//
//tensor:forms InPlace
func (x *Tensor) Lerp(end, w *Tensor) *Tensor { return lerpOp.Apply([]*Tensor{x, end, w}) }

// LerpScalar returns x + w·(end-x).
//
//tensor:forms InPlace
func (x *Tensor) LerpScalar(end *Tensor, w float64) *Tensor {
	return lerpScalarOp.Apply([]*Tensor{x, end}, w)
}

// Addcmul returns x + value·a·b. The operands are broadcast to a common shape. For integer tensors
// value is a whole number.
func (x *Tensor) Addcmul(a, b *Tensor, value float64) *Tensor {
	in := []*Tensor{x, a, b}
	youngest("addcmul", in)
	if t, _ := addcmulOp.resultType(in); !t.IsFloat() && value != math.Trunc(value) {
		fail("addcmul", ErrValue, in, "the value %v is not a whole number, the tensors are integers", value)
	}
	return addcmulOp.Apply(in, value)
}

// AddcmulInPlace adds value·a·b to x.
func (x *Tensor) AddcmulInPlace(a, b *Tensor, value float64) *Tensor {
	x.mustHold("addcmul", value)
	return x.inPlace(addcmulOp, []*Tensor{x, a, b}, value)
}

// Addcdiv returns x + value·a/b of floating point tensors. The operands are broadcast to a common
// shape.
//
//tensor:forms InPlace
func (x *Tensor) Addcdiv(a, b *Tensor, value float64) *Tensor {
	return addcdivOp.Apply([]*Tensor{x, a, b}, value)
}
