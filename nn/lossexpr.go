package nn

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// Losses of one element at a time: of a prediction X(0) and a target X(1), with g = X(2).
var (
	x0, x1     = expr.X(0), expr.X(1)
	g2, g3     = expr.X(2), expr.X(3) // of two and of three operands
	p0         = expr.Param(0)
	zero, unit = expr.C(0), expr.C(1)
	distance   = x0.Sub(x1)
	tail       = x0.Abs().Neg().Exp().Log1p() // log(1 + exp(-|x|))
	// 1, -1 or 0 at 0
	direction = distance.Gt(zero).Select(unit, distance.Lt(zero).Select(expr.C(-1), zero))
)

// both gives a derivative by the prediction, and its negative by the target.
func both(d *expr.Expr) []*expr.Expr { return []*expr.Expr{g2.Mul(d), g2.Mul(d.Neg())} }

var (
	// The gradient is doubled before the distance multiplies it: that of a mean then does not overflow before the loss does, as in torch.
	mseOp = tensor.Declare(&tensor.Elementwise{Name: "mse_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Expr: distance.Mul(distance), Domain: [][2]float64{{-4, 4}},
		Ref: func(x, _ []float64) float64 { return (x[0] - x[1]) * (x[0] - x[1]) }, Grad: []*expr.Expr{g2.Scale(2).Mul(distance), g2.Scale(2).Mul(x1.Sub(x0))}})
	l1Op = tensor.Declare(&tensor.Elementwise{Name: "l1_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Expr: distance.Abs(), Domain: [][2]float64{{-4, 4}},
		Ref: func(x, _ []float64) float64 { return math.Abs(x[0] - x[1]) }, Grad: both(direction)})
	smoothL1Op = tensor.Declare(&tensor.Elementwise{Name: "smooth_l1_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}}, Params: []float64{1.5},
		Expr: distance.Abs().Lt(p0).Select(distance.Mul(distance).Scale(0.5).Div(p0), distance.Abs().Sub(p0.Scale(0.5))),
		Ref: func(x, p []float64) float64 {
			d := math.Abs(x[0] - x[1])
			if d < p[0] {
				return 0.5 * d * d / p[0]
			}
			return d - 0.5*p[0]
		},
		Grad: both(distance.Abs().Lt(p0).Select(distance.Div(p0), direction))})
	huberOp = tensor.Declare(&tensor.Elementwise{Name: "huber_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}}, Params: []float64{1.5},
		Expr: distance.Abs().Le(p0).Select(distance.Mul(distance).Scale(0.5), p0.Mul(distance.Abs().Sub(p0.Scale(0.5)))),
		Ref: func(x, p []float64) float64 {
			d := math.Abs(x[0] - x[1])
			if d <= p[0] {
				return 0.5 * d * d
			}
			return p[0] * (d - 0.5*p[0])
		},
		Grad: both(distance.Abs().Le(p0).Select(distance, p0.Mul(direction)))})
	// Logarithms are no less than -100, so that a certain mistake costs 100 and not infinity, and the gradient's divisor no less
	// than 1e-12: torch's choices.
	bceOp = tensor.Declare(&tensor.Elementwise{Name: "binary_cross_entropy", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{0.05, 0.95}},
		Expr: x1.Sub(unit).Mul(x0.Neg().Log1p().Max(expr.C(-100))).Sub(x1.Mul(x0.Log().Max(expr.C(-100)))),
		Ref:  func(x, _ []float64) float64 { return (x[1]-1)*math.Log1p(-x[0]) - x[1]*math.Log(x[0]) },
		Grad: []*expr.Expr{g2.Mul(distance.Div(unit.Sub(x0).Mul(x0).Max(expr.C(float64(float32(1e-12)))))),
			g2.Mul(x0.Neg().Log1p().Max(expr.C(-100)).Sub(x0.Log().Max(expr.C(-100))))}})
	bceLogitsOp = tensor.Declare(&tensor.Elementwise{Name: "binary_cross_entropy_with_logits", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}, {0, 1}},
		Expr: x0.Gt(zero).Select(x0.Mul(unit.Sub(x1)), x0.Mul(x1).Neg()).Add(tail), // no term is negative
		Ref:  func(x, _ []float64) float64 { return logitLoss(x[0], x[1], 1) },
		Grad: []*expr.Expr{g2.Mul(x0.Sigmoid().Sub(x1)), g2.Mul(x0.Neg())}})
	bceWeightedOp = tensor.Declare(&tensor.Elementwise{Name: "binary_cross_entropy_weighted", Autocast: tensor.AutocastHigh, Arity: 3, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}, {0, 1}, {0.5, 3}},
		Expr: x0.Gt(zero).Select(x0.Mul(unit.Sub(x1)), x0.Mul(x1.Mul(expr.X(2))).Neg()).Add(unit.Sub(x1).Add(x1.Mul(expr.X(2))).Mul(tail)),
		Ref:  func(x, _ []float64) float64 { return logitLoss(x[0], x[1], x[2]) },
		Grad: []*expr.Expr{
			g3.Mul(unit.Sub(x1).Sub(expr.X(2).Sub(unit).Mul(x1).Add(unit).Mul(x0.Neg().Sigmoid()))),
			g3.Mul(x0.Neg().Sub(expr.X(2).Sub(unit).Mul(x0.LogSigmoid()))),
			g3.Mul(x1.Neg().Mul(x0.LogSigmoid()))}})
	klDivOp = tensor.Declare(&tensor.Elementwise{Name: "kl_div", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, -2}, {0.5, 1}},
		Expr: x1.Eq(zero).Select(zero, x1.Mul(x1.Log().Sub(x0))),
		Ref:  func(x, _ []float64) float64 { return x[1] * (math.Log(x[1]) - x[0]) },
		// y/y is 1, and NaN at 0 and infinity, as torch's gradient by a target is.
		Grad: []*expr.Expr{g2.Mul(x1.Neg()), g2.Mul(x1.Log().Add(x1.Div(x1)).Sub(x0))}})
	klDivLogOp = tensor.Declare(&tensor.Elementwise{Name: "kl_div_log_target", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, -2}, {-1, 0}},
		Expr: x1.Exp().Mul(x1.Sub(x0)), Ref: func(x, _ []float64) float64 { return math.Exp(x[1]) * (x[1] - x[0]) }})
)

// logitLoss is the cross entropy of σ(x) and y, where a positive target weighs w.
func logitLoss(x, y, w float64) float64 {
	return (1-y)*math.Max(x, 0) + w*y*math.Max(-x, 0) + (1-y+w*y)*math.Log1p(math.Exp(-math.Abs(x)))
}
