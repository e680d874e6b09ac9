package nn

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

var (
	poissonLogOp = tensor.Declare(&tensor.Elementwise{Name: "poisson_nll_loss_log", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-2, -0.1}, {0, 4}},
		Expr: x0.Exp().Sub(x1.Mul(x0)), Ref: func(x, _ []float64) float64 { return math.Exp(x[0]) - x[1]*x[0] },
		Grad: []*expr.Expr{g2.Mul(x0.Exp()).Sub(g2.Mul(x1)), g2.Mul(x0).Neg()}})
	poissonOp = tensor.Declare(&tensor.Elementwise{Name: "poisson_nll_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{0.25, 0.75}, {0, 4}}, Params: []float64{1e-3},
		Expr: x0.Sub(x1.Mul(x0.Add(p0).Log())), Ref: func(x, p []float64) float64 { return x[0] - x[1]*math.Log(x[0]+p[0]) },
		Grad: []*expr.Expr{g2.Sub(g2.Mul(x1).Div(x0.Add(p0))), g2.Mul(x0.Add(p0).Log()).Neg()}})
	stirlingOp = tensor.Declare(&tensor.Elementwise{Name: "stirling", Autocast: tensor.AutocastHigh, Arity: 1, Result: tensor.FixedFloat, Domain: [][2]float64{{4, 8}},
		Expr: x0.Le(unit).Select(zero, x0.Mul(x0.Log()).Sub(x0).Add(x0.Scale(2*math.Pi).Log().Scale(0.5))),
		Ref:  func(x, _ []float64) float64 { return x[0]*math.Log(x[0]) - x[0] + 0.5*math.Log(2*math.Pi*x[0]) },
		Grad: []*expr.Expr{x0.Le(unit).Select(zero, expr.X(1).Mul(x0.Log().Add(expr.C(0.5).Div(x0))))}})
	// As in torch, the gradient for the variance is evaluated at the clamped variance, even where
	// clamping changed the variance.
	variance   = x2.Max(p0)
	gaussianOp = tensor.Declare(&tensor.Elementwise{Name: "gaussian_nll_loss", Autocast: tensor.AutocastHigh, Arity: 3, Result: tensor.FixedFloat, Domain: [][2]float64{{-2, 2}, {-2, 2}, {1.2, 2}}, Params: []float64{1e-3},
		Expr: variance.Log().Add(distance.Mul(distance).Div(variance)).Scale(0.5),
		Ref: func(x, p []float64) float64 {
			v, d := math.Max(x[2], p[0]), x[0]-x[1]
			return 0.5 * (math.Log(v) + d*d/v)
		},
		Grad: []*expr.Expr{g3.Div(variance).Mul(distance), g3.Div(variance).Mul(distance).Neg(),
			g3.Scale(0.5).Div(variance).Sub(g3.Scale(0.5).Div(variance).Mul(distance.Mul(distance).Div(variance)))}})
)

// PoissonNLLLoss is the negative log likelihood of counts y under Poisson distributions with
// given means. With LogInput, x holds the logarithms of the means, and the loss is e^x - y·x.
// Without LogInput, x holds the means, and the loss is x - y·log(x + Eps). The loss omits the
// term log y!. With Full, the loss includes Stirling's approximation of this term, y·log y - y +
// ½·log 2πy, for counts y > 1. For smaller counts the approximation adds nothing to the
// gradient, while torch's gradient is NaN for counts of 0 and less. [NewPoissonNLLLoss] has
// torch's defaults.
type PoissonNLLLoss struct {
	LogInput  bool    // x holds the logarithms of the means instead of the means
	Full      bool    // adds Stirling's approximation of log y!
	Eps       float64 // positive number added to the means inside the logarithm
	Reduction Reduction
}

// NewPoissonNLLLoss returns the loss with torch's defaults: LogInput true and Eps 1e-8.
func NewPoissonNLLLoss() *PoissonNLLLoss { return &PoissonNLLLoss{LogInput: true, Eps: 1e-8} }

// Forward returns the loss for means x and counts y, which broadcast against each other. If both
// are integers, the loss is float32, but the product y·x is computed in their integer type and may
// wrap around.
func (l *PoissonNLLLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	requireUsable("poisson_nll_loss", x, y)
	if !l.LogInput && !(l.Eps > 0) {
		misuse("poisson_nll_loss", tensor.ErrValue, "Eps must be positive; NewPoissonNLLLoss sets torch's, and LogInput", x, y)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		var loss *tensor.Tensor
		switch whole := integers("poisson_nll_loss", x, y); {
		case whole && l.LogInput:
			loss = x.In(c).Exp().Sub(y.In(c).Mul(x))
		case whole:
			loss = poissonOp.Apply([]*tensor.Tensor{x.In(c).Float(), y.In(c).Float()}, l.Eps)
		case l.LogInput:
			loss = poissonLogOp.Apply([]*tensor.Tensor{x.In(c), y})
		default:
			loss = poissonOp.Apply([]*tensor.Tensor{x.In(c), y}, l.Eps)
		}
		if l.Full {
			counts := y.In(c)
			if !counts.Type().IsFloat() {
				counts = counts.Cast(loss.Type())
			}
			loss = loss.Add(stirlingOp.Apply([]*tensor.Tensor{counts}))
		}
		return reduce("poisson_nll_loss", loss, []Reduction{l.Reduction})
	}, x, y)
}

// GaussianNLLLoss is the negative log likelihood of y under normal distributions with mean x and
// variance v: ½(log v + (x-y)²/v). Full adds ½·log 2π. A variance below Eps counts as Eps. Unlike
// torch, Forward does not refuse negative variances, because the check would have to wait for the
// device. [NewGaussianNLLLoss] has torch's defaults.
type GaussianNLLLoss struct {
	Full      bool
	Eps       float64
	Reduction Reduction
}

// NewGaussianNLLLoss returns the loss with torch's default for Eps, 1e-6.
func NewGaussianNLLLoss() *GaussianNLLLoss { return &GaussianNLLLoss{Eps: 1e-6} }

// Forward returns the loss for x and y, which broadcast against each other. variance has x's shape,
// except that one dimension may have size 1, or the last dimension may be absent. Then one variance
// applies to all elements along that dimension.
func (l *GaussianNLLLoss) Forward(x, y, variance *tensor.Tensor) *tensor.Tensor {
	const op = "gaussian_nll_loss"
	requireUsable(op, x, y, variance)
	if x.Rank() > 0 && variance.Shape() == x.Shape().Remove(x.Rank()-1) {
		variance = variance.Unsqueeze(-1)
	}
	differ := 0
	if x.Rank() == variance.Rank() {
		for i := range x.Rank() {
			if n := variance.Dim(i); n != x.Dim(i) {
				if differ++; n != 1 {
					differ = 2
				}
			}
		}
	}
	if x.Rank() != variance.Rank() || differ > 1 {
		misuse(op, tensor.ErrShape, "variances have the shape of the means, or with 1 in one dimension, or without the last", x, y, variance)
	}
	if !(l.Eps > 0) {
		misuse(op, tensor.ErrValue, "Eps must be positive; NewGaussianNLLLoss sets torch's", x, y, variance)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		loss := gaussianOp.Apply([]*tensor.Tensor{x.In(c), y, variance}, l.Eps)
		if l.Full {
			loss = loss.AddScalar(0.5 * math.Log(2*math.Pi))
		}
		return reduce(op, loss, []Reduction{l.Reduction})
	}, x, y, variance)
}
