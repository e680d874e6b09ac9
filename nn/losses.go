package nn

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Reduction says what becomes of the losses of elements.
type Reduction uint8

// The reductions. Mean is what a loss does when none is given, as in torch.
const (
	Mean      Reduction = iota // their mean
	Sum                        // their sum
	None                       // nothing: the result has the elements' shape
	BatchMean                  // their sum by the size of the first dimension, torch's "batchmean"
)

// reduce applies the reduction among r, at most one.
func reduce(op string, loss *tensor.Tensor, r []Reduction) *tensor.Tensor {
	how := Mean
	if len(r) > 1 {
		misuse(op, tensor.ErrValue, fmt.Sprintf("%d reductions; there is one", len(r)), loss)
	}
	if len(r) == 1 {
		how = r[0]
	}
	switch how {
	case Mean:
		return loss.Mean()
	case Sum:
		return loss.Sum()
	case None:
		return loss
	case BatchMean:
		if loss.Rank() == 0 {
			misuse(op, tensor.ErrShape, "a scalar has no batch to take the mean of", loss)
		}
		return loss.Sum().DivScalar(float64(loss.Dim(0)))
	}
	misuse(op, tensor.ErrValue, fmt.Sprintf("there is no reduction %d", how), loss)
	return nil
}

// misuse panics with the library's error.
func misuse(op string, kind error, msg string, operands ...*tensor.Tensor) {
	panic(tensor.NewError(op, kind, msg, operands...))
}

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
	l1Op = tensor.Declare(&tensor.Elementwise{Name: "l1_loss", Arity: 2, Result: tensor.FixedFloat, Expr: distance.Abs(), Domain: [][2]float64{{-4, 4}},
		Ref: func(x, _ []float64) float64 { return math.Abs(x[0] - x[1]) }, Grad: both(direction)})
	smoothL1Op = tensor.Declare(&tensor.Elementwise{Name: "smooth_l1_loss", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}}, Params: []float64{1.5},
		Expr: distance.Abs().Lt(p0).Select(distance.Mul(distance).Scale(0.5).Div(p0), distance.Abs().Sub(p0.Scale(0.5))),
		Ref: func(x, p []float64) float64 {
			d := math.Abs(x[0] - x[1])
			if d < p[0] {
				return 0.5 * d * d / p[0]
			}
			return d - 0.5*p[0]
		},
		Grad: both(distance.Abs().Lt(p0).Select(distance.Div(p0), direction))})
	huberOp = tensor.Declare(&tensor.Elementwise{Name: "huber_loss", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}}, Params: []float64{1.5},
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
	bceLogitsOp = tensor.Declare(&tensor.Elementwise{Name: "binary_cross_entropy_with_logits", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}, {0, 1}},
		Expr: x0.Gt(zero).Select(x0.Mul(unit.Sub(x1)), x0.Mul(x1).Neg()).Add(tail), // no term is negative
		Ref:  func(x, _ []float64) float64 { return logitLoss(x[0], x[1], 1) },
		Grad: []*expr.Expr{g2.Mul(x0.Sigmoid().Sub(x1)), g2.Mul(x0.Neg())}})
	bceWeightedOp = tensor.Declare(&tensor.Elementwise{Name: "binary_cross_entropy_weighted", Arity: 3, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}, {0, 1}, {0.5, 3}},
		Expr: x0.Gt(zero).Select(x0.Mul(unit.Sub(x1)), x0.Mul(x1.Mul(expr.X(2))).Neg()).Add(unit.Sub(x1).Add(x1.Mul(expr.X(2))).Mul(tail)),
		Ref:  func(x, _ []float64) float64 { return logitLoss(x[0], x[1], x[2]) },
		Grad: []*expr.Expr{
			g3.Mul(unit.Sub(x1).Sub(expr.X(2).Sub(unit).Mul(x1).Add(unit).Mul(x0.Neg().Sigmoid()))),
			g3.Mul(x0.Neg().Sub(expr.X(2).Sub(unit).Mul(x0.LogSigmoid()))),
			g3.Mul(x1.Neg().Mul(x0.LogSigmoid()))}})
	klDivOp = tensor.Declare(&tensor.Elementwise{Name: "kl_div", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, -2}, {0.5, 1}},
		Expr: x1.Eq(zero).Select(zero, x1.Mul(x1.Log().Sub(x0))),
		Ref:  func(x, _ []float64) float64 { return x[1] * (math.Log(x[1]) - x[0]) },
		Grad: []*expr.Expr{g2.Mul(x1.Neg()), g2.Mul(x1.Log().Add(unit).Sub(x0))}})
	klDivLogOp = tensor.Declare(&tensor.Elementwise{Name: "kl_div_log_target", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, -2}, {-1, 0}},
		Expr: x1.Exp().Mul(x1.Sub(x0)), Ref: func(x, _ []float64) float64 { return math.Exp(x[1]) * (x[1] - x[0]) }})
)

// logitLoss is the cross entropy of σ(x) and y, where a positive target weighs w.
func logitLoss(x, y, w float64) float64 {
	return (1-y)*math.Max(x, 0) + w*y*math.Max(-x, 0) + (1-y+w*y)*math.Log1p(math.Exp(-math.Abs(x)))
}

// L1 returns the reduction, the mean if none is given, of |x - y|. At equal elements the gradient is 0.
func L1(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("l1_loss", l1Op.Apply([]*tensor.Tensor{x, y}), r)
}

// SmoothL1 returns the reduction, the mean if none is given, of (x-y)²/2β where x and y differ by less than beta = β, and of
// |x-y| - β/2 elsewhere; L1 for beta = 0. A negative beta is an error.
func SmoothL1(x, y *tensor.Tensor, beta float64, r ...Reduction) *tensor.Tensor {
	switch {
	case !(beta >= 0):
		misuse("smooth_l1_loss", tensor.ErrValue, fmt.Sprintf("beta is %v, it must not be negative", beta), x, y)
	case beta == 0:
		return L1(x, y, r...)
	}
	return reduce("smooth_l1_loss", smoothL1Op.Apply([]*tensor.Tensor{x, y}, beta), r)
}

// Huber returns the reduction, the mean if none is given, of (x-y)²/2 where x and y differ by at most delta = δ > 0, and of
// δ(|x-y| - δ/2) elsewhere.
func Huber(x, y *tensor.Tensor, delta float64, r ...Reduction) *tensor.Tensor {
	if !(delta > 0) {
		misuse("huber_loss", tensor.ErrValue, fmt.Sprintf("delta is %v, it must be positive", delta), x, y)
	}
	return reduce("huber_loss", huberOp.Apply([]*tensor.Tensor{x, y}, delta), r)
}

// BCE returns the reduction, the mean if none is given, of the binary cross entropy -(y·log x + (1-y)·log(1-x)) of
// probabilities x. Logarithms count as at least -100. An x outside of [0, 1] gives NaN. For logits [BCEWithLogits] is exact.
func BCE(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("binary_cross_entropy", bceOp.Apply([]*tensor.Tensor{x, y}), r)
}

// BCEWithLogits returns the reduction, the mean if none is given, of the binary cross entropy of the probabilities σ(x), for logits
// x, without overflow. posWeight, broadcast with x, multiplies the part of positive targets; nil stands for 1.
func BCEWithLogits(x, y, posWeight *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	const op = "binary_cross_entropy_with_logits"
	if posWeight != nil {
		return reduce(op, bceWeightedOp.Apply([]*tensor.Tensor{x, y, posWeight}), r)
	}
	return reduce(op, bceLogitsOp.Apply([]*tensor.Tensor{x, y}), r)
}

// NLL returns the reduction, the mean if none is given, of -logp[i, target[i]] for logarithms of probabilities [n, classes] and
// targets [n], int64. Rows whose target is [IgnoreIndex] give 0 and do not count in the mean. Logarithms of more dimensions have
// their classes last, and target the shape of the others.
func NLL(logp, target *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	if logp.Rank() != target.Rank()+1 {
		misuse("nll_loss", tensor.ErrShape, "targets must have the shape of the logarithms without the classes, which come last", logp, target)
	}
	ignored := target.EqScalar(IgnoreIndex)
	loss := logp.Gather(-1, target.MaskedFill(ignored, 0).Unsqueeze(-1)).Squeeze(-1).Neg().MaskedFill(ignored, 0)
	if len(r) == 0 || len(r) == 1 && r[0] == Mean {
		return loss.Sum().Div(target.NeScalar(IgnoreIndex).Sum().Cast(loss.Type()))
	}
	return reduce("nll_loss", loss, r)
}

// KLDiv returns the reduction, the mean if none is given, of y·(log y - x), the divergence of probabilities y from those whose
// logarithms are x; 0 where y is 0. [BatchMean] gives the divergence by its definition, per sample.
func KLDiv(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("kl_div", klDivOp.Apply([]*tensor.Tensor{x, y}), r)
}

// KLDivLog is [KLDiv] for y that are logarithms of probabilities: torch's log_target=True.
func KLDivLog(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("kl_div", klDivLogOp.Apply([]*tensor.Tensor{x, y}), r)
}
