package nn

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// paired checks and returns the operands of an elementwise loss. It raises an error if broadcasting
// would change both shapes. For example, [n, 1] and [n] broadcast to [n, n]. Such a result would
// compare every prediction with every target, which is nearly always a mistake. torch only warns.
func paired(op string, x, y *tensor.Tensor) []*tensor.Tensor {
	requireUsable(op, x, y)
	if s, _, ok := shape.Broadcast(x.Shape(), y.Shape()); ok && s != x.Shape() && s != y.Shape() {
		unpaired(op, fmt.Sprintf("the prediction is %v and the target %v, which together broadcast to %v", x.Shape(), y.Shape(), s), x, y)
	}
	return []*tensor.Tensor{x, y}
}

// alike does the same as paired for losses whose prediction and target must have the same shape.
func alike(op string, x, y *tensor.Tensor) []*tensor.Tensor {
	requireUsable(op, x, y)
	if x.Shape() != y.Shape() {
		unpaired(op, fmt.Sprintf("the prediction is %v and the target %v, they must have one shape", x.Shape(), y.Shape()), x, y)
	}
	return []*tensor.Tensor{x, y}
}

func unpaired(op, msg string, x, y *tensor.Tensor) {
	hint := "Reshape one like the other, or Expand it if that is meant"
	switch {
	case x.Rank() > 0 && x.Dim(-1) == 1 && x.Size() == y.Size() && x.Rank() == y.Rank()+1:
		hint = "Squeeze(-1) the prediction, or Unsqueeze(-1) the target"
	case y.Rank() > 0 && y.Dim(-1) == 1 && x.Size() == y.Size() && y.Rank() == x.Rank()+1:
		hint = "Squeeze(-1) the target"
	}
	hinted(op, tensor.ErrShape, msg, hint, x, y)
}

// L1 returns the reduction of |x - y|. The default reduction is the mean. The gradient is 0 where x
// equals y. Either x or y may be broadcast to the shape of the other.
func L1(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("l1_loss", l1Op.Apply(paired("l1_loss", x, y)), r)
}

// SmoothL1 returns the reduction of (x-y)²/2β where |x-y| < β, and of |x-y| - β/2 elsewhere; β is
// the argument beta. The default reduction is the mean. With beta = 0 it is L1. A negative beta is
// an error. Either x or y may be broadcast to the shape of the other.
func SmoothL1(x, y *tensor.Tensor, beta float64, r ...Reduction) *tensor.Tensor {
	switch {
	case !(beta >= 0):
		misuse("smooth_l1_loss", tensor.ErrValue, fmt.Sprintf("beta is %v, it must not be negative", beta), x, y)
	case beta == 0:
		return L1(x, y, r...)
	}
	return reduce("smooth_l1_loss", smoothL1Op.Apply(paired("smooth_l1_loss", x, y), beta), r)
}

// Huber returns the reduction of (x-y)²/2 where |x-y| ≤ δ, and of δ(|x-y| - δ/2) elsewhere; δ is
// the argument delta, which must be positive. The default reduction is the mean. Either x or y may
// be broadcast to the shape of the other.
func Huber(x, y *tensor.Tensor, delta float64, r ...Reduction) *tensor.Tensor {
	if !(delta > 0) {
		misuse("huber_loss", tensor.ErrValue, fmt.Sprintf("delta is %v, it must be positive", delta), x, y)
	}
	return reduce("huber_loss", huberOp.Apply(paired("huber_loss", x, y), delta), r)
}

// BCE returns the reduction of the binary cross entropy -(y·log x + (1-y)·log(1-x)) of
// probabilities x. The default reduction is the mean. Logarithms below -100 are replaced by -100.
// An x outside of [0, 1] results in NaN. For logits use [BCEWithLogits], which does not limit the
// logarithms. Under [tensor.Autocast] BCE is an error, as in torch. x and y have the same shape.
func BCE(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	refuseUnsafe("binary_cross_entropy", "use BCEWithLogits on the logits, or a scope with tensor.NoAutocast", x, y)
	return reduce("binary_cross_entropy", bceOp.Apply(alike("binary_cross_entropy", x, y)), r)
}

// BCEWithLogits returns the reduction of the binary cross entropy of the probabilities σ(x) for
// logits x. The default reduction is the mean. The computation cannot overflow. posWeight, which is
// broadcast to x's shape, multiplies the summand y·log σ(x). Nil means 1. A logit of -Inf has an
// infinite loss for targets above 0, where torch returns NaN. x and y have the same shape.
func BCEWithLogits(x, y, posWeight *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	const op = "binary_cross_entropy_with_logits"
	if posWeight != nil {
		return reduce(op, bceWeightedOp.Apply(append(alike(op, x, y), posWeight)), r)
	}
	return reduce(op, bceLogitsOp.Apply(alike(op, x, y)), r)
}

// KLDiv returns the reduction of y·(log y - x), or 0 where y is 0. The default reduction is the
// mean. y holds probabilities, and x the logarithms of other probabilities. With the reduction
// [BatchMean] the result is the Kullback-Leibler divergence of the two: the sum divided by the
// number of samples.
func KLDiv(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("kl_div", klDivOp.Apply([]*tensor.Tensor{x, y}), r)
}

// KLDivLog is [KLDiv] for a y that holds logarithms of probabilities: torch's log_target=True.
func KLDivLog(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("kl_div", klDivLogOp.Apply([]*tensor.Tensor{x, y}), r)
}

// MSE returns the reduction of (x - y)²; the default reduction is the mean. Either x or y may be
// broadcast to the shape of the other. If broadcasting would change both shapes, as for [n, 1] and
// [n], MSE raises an error of the kind [tensor.ErrShape]. In this case torch only warns, and
// compares every prediction with every target.
func MSE(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("mse_loss", mseOp.Apply(paired("mse_loss", x, y)), r)
}

// The following types are the losses with torch's options. A model or a table can hold them as
// values. Their zero values have torch's defaults, except for the fields Beta and Delta. torch's
// default for Beta and Delta is 1. Here a Beta or Delta of 0 is an error.

// MSELoss is [MSE]. Weight, with the shape of the losses, multiplies them. The mean then divides by
// the sum of the weights.
type MSELoss struct {
	Weight    *tensor.Tensor `nn:"weight,buffer"`
	Reduction Reduction
}

// Forward returns the loss.
func (l MSELoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	return reduceWeighted("mse_loss", MSE(x, y, None), l.Weight, []Reduction{l.Reduction})
}

// L1Loss is [L1]. Weight, with the shape of the losses, multiplies them. The mean then divides by
// the sum of the weights.
type L1Loss struct {
	Weight    *tensor.Tensor `nn:"weight,buffer"`
	Reduction Reduction
}

// Forward returns the loss.
func (l L1Loss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	return reduceWeighted("l1_loss", L1(x, y, None), l.Weight, []Reduction{l.Reduction})
}

// SmoothL1Loss is [SmoothL1] with the parameter Beta, whose default in torch is 1. A Beta of 0 is
// an error: use [L1Loss].
type SmoothL1Loss struct {
	Beta      float64
	Reduction Reduction
}

// Forward returns the loss.
func (l SmoothL1Loss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	if l.Beta == 0 {
		hinted("smooth_l1_loss", tensor.ErrValue, "Beta is 0", "torch's default is 1; with 0 it is L1Loss", x, y)
	}
	return SmoothL1(x, y, l.Beta, l.Reduction)
}

// HuberLoss is [Huber] with the parameter Delta, whose default in torch is 1. Weight, which is
// broadcast to the losses, multiplies them. As in torch, the mean divides by the number of losses,
// not by the sum of the weights as in [MSELoss].
type HuberLoss struct {
	Delta     float64
	Weight    *tensor.Tensor `nn:"weight,buffer"`
	Reduction Reduction
}

// Forward returns the loss.
func (l HuberLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	return reduce("huber_loss", weighted(Huber(x, y, l.Delta, None), l.Weight), []Reduction{l.Reduction})
}

// BCELoss is [BCE]. Weight, which is broadcast to the losses, multiplies them. The mean divides by
// the number of losses.
type BCELoss struct {
	Weight    *tensor.Tensor `nn:"weight,buffer"`
	Reduction Reduction
}

// Forward returns the loss.
func (l BCELoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	return reduce("binary_cross_entropy", weighted(BCE(x, y, None), l.Weight), []Reduction{l.Reduction})
}

// BCEWithLogitsLoss is [BCEWithLogits]. Weight, which is broadcast to the losses, multiplies them.
// The mean divides by the number of losses. PosWeight, which is broadcast to the logits x,
// multiplies the summand y·log σ(x).
type BCEWithLogitsLoss struct {
	Weight    *tensor.Tensor `nn:"weight,buffer"`
	PosWeight *tensor.Tensor `nn:"pos_weight,buffer"`
	Reduction Reduction
}

// Forward returns the loss.
func (l BCEWithLogitsLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	return reduce("binary_cross_entropy_with_logits", weighted(BCEWithLogits(x, y, l.PosWeight, None), l.Weight), []Reduction{l.Reduction})
}

// KLDivLoss is [KLDiv]. With LogTarget it is [KLDivLog], whose target holds logarithms.
type KLDivLoss struct {
	LogTarget bool
	Reduction Reduction
}

// Forward returns the loss.
func (l KLDivLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	if l.LogTarget {
		return KLDivLog(x, y, l.Reduction)
	}
	return KLDiv(x, y, l.Reduction)
}

func weighted(loss, weight *tensor.Tensor) *tensor.Tensor {
	if weight == nil {
		return loss
	}
	defer loss.Free()
	return loss.Mul(weight)
}

// The elementwise losses have the operands X(0), the prediction, and X(1), the target. In the
// expressions of their gradients, the operand after these is the gradient of the result.
var (
	x0, x1 = expr.X(0), expr.X(1)
	// g2 and g3 are the gradient of the result: g2 for losses with two operands, g3 for losses with
	// three.
	g2, g3     = expr.X(2), expr.X(3)
	p0         = expr.Param(0)
	zero, unit = expr.C(0), expr.C(1)
	distance   = x0.Sub(x1)
	tail       = x0.Abs().Neg().Exp().Log1p() // log(1 + exp(-|x|))
	// direction is the sign of x - y.
	direction = distance.Gt(zero).Select(unit, distance.Lt(zero).Select(expr.C(-1), zero))
)

// pairGrads returns the gradients for the prediction, g2·d, and for the target, -g2·d. The argument
// d is the derivative of the loss with respect to the prediction.
func pairGrads(d *expr.Expr) []*expr.Expr { return []*expr.Expr{g2.Mul(d), g2.Mul(d.Neg())} }

var (
	// As in torch, the gradient g is doubled before it is multiplied by the distance. So the
	// gradient of a mean does not overflow before the loss does.
	mseOp = tensor.Declare(&tensor.Elementwise{Name: "mse_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Expr: distance.Mul(distance), Domain: [][2]float64{{-4, 4}},
		Ref: func(x, _ []float64) float64 { return (x[0] - x[1]) * (x[0] - x[1]) }, Grad: []*expr.Expr{g2.Scale(2).Mul(distance), g2.Scale(2).Mul(x1.Sub(x0))}})
	l1Op = tensor.Declare(&tensor.Elementwise{Name: "l1_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Expr: distance.Abs(), Domain: [][2]float64{{-4, 4}},
		Ref: func(x, _ []float64) float64 { return math.Abs(x[0] - x[1]) }, Grad: pairGrads(direction)})
	smoothL1Op = tensor.Declare(&tensor.Elementwise{Name: "smooth_l1_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}}, Params: []float64{1.5},
		Expr: distance.Abs().Lt(p0).Select(distance.Mul(distance).Scale(0.5).Div(p0), distance.Abs().Sub(p0.Scale(0.5))),
		Ref: func(x, p []float64) float64 {
			d := math.Abs(x[0] - x[1])
			if d < p[0] {
				return 0.5 * d * d / p[0]
			}
			return d - 0.5*p[0]
		},
		Grad: pairGrads(distance.Abs().Lt(p0).Select(distance.Div(p0), direction))})
	huberOp = tensor.Declare(&tensor.Elementwise{Name: "huber_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}}, Params: []float64{1.5},
		Expr: distance.Abs().Le(p0).Select(distance.Mul(distance).Scale(0.5), p0.Mul(distance.Abs().Sub(p0.Scale(0.5)))),
		Ref: func(x, p []float64) float64 {
			d := math.Abs(x[0] - x[1])
			if d <= p[0] {
				return 0.5 * d * d
			}
			return p[0] * (d - 0.5*p[0])
		},
		Grad: pairGrads(distance.Abs().Le(p0).Select(distance, p0.Mul(direction)))})
	// As in torch, logarithms below -100 are replaced by -100. A wrong prediction with probability
	// 1 then costs 100 instead of infinity. The divisor of the gradient is at least 1e-12.
	bceOp = tensor.Declare(&tensor.Elementwise{Name: "binary_cross_entropy", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{0.05, 0.95}},
		Expr: x1.Sub(unit).Mul(x0.Neg().Log1p().Max(expr.C(-100))).Sub(x1.Mul(x0.Log().Max(expr.C(-100)))),
		Ref:  func(x, _ []float64) float64 { return (x[1]-1)*math.Log1p(-x[0]) - x[1]*math.Log(x[0]) },
		Grad: []*expr.Expr{g2.Mul(distance.Div(unit.Sub(x0).Mul(x0).Max(expr.C(float64(float32(1e-12)))))),
			g2.Mul(x0.Neg().Log1p().Max(expr.C(-100)).Sub(x0.Log().Max(expr.C(-100))))}})
	bceLogitsOp = tensor.Declare(&tensor.Elementwise{Name: "binary_cross_entropy_with_logits", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}, {0, 1}},
		// No summand is negative, so nothing cancels.
		Expr: x0.Gt(zero).Select(x0.Mul(unit.Sub(x1)), x0.Mul(x1).Neg()).Add(tail),
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
		// The quotient y/y is 1 for most y. It is NaN for y = 0 and y = ∞, where torch's gradient
		// for the target is NaN too.
		Grad: []*expr.Expr{g2.Mul(x1.Neg()), g2.Mul(x1.Log().Add(x1.Div(x1)).Sub(x0))}})
	klDivLogOp = tensor.Declare(&tensor.Elementwise{Name: "kl_div_log_target", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, -2}, {-1, 0}},
		Expr: x1.Exp().Mul(x1.Sub(x0)), Ref: func(x, _ []float64) float64 { return math.Exp(x[1]) * (x[1] - x[0]) }})
)

// logitLoss is the cross-entropy of σ(x) and y, where w multiplies the summand y·log σ(x).
func logitLoss(x, y, w float64) float64 {
	return (1-y)*math.Max(x, 0) + w*y*math.Max(-x, 0) + (1-y+w*y)*math.Log1p(math.Exp(-math.Abs(x)))
}
