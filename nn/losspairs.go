package nn

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// Losses that compare tensors with one another, and labels that are 1 or -1.

var (
	x2 = expr.X(2)
	// Beyond the margin the gradient is 0, at it too: torch's choice.
	ranking   = x2.Neg().Mul(distance).Add(p0)
	ranked    = ranking.Gt(zero).Select(g3, zero)
	rankingOp = tensor.Declare(&tensor.Elementwise{Name: "margin_ranking_loss", Autocast: tensor.AutocastHigh, Arity: 3, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, -1}, {1, 4}, {0.5, 1}}, Params: []float64{0.75},
		Expr: ranking.Max(zero), Ref: func(x, p []float64) float64 { return math.Max(-x[2]*(x[0]-x[1])+p[0], 0) },
		Grad: []*expr.Expr{ranked.Mul(x2.Neg()), ranked.Mul(x2.Neg()).Neg(), ranked.Mul(distance).Neg()}})
	within    = p0.Sub(x0)
	hingeDiff = within.Gt(zero).Select(g2, zero)
	hingeOp   = tensor.Declare(&tensor.Elementwise{Name: "hinge_embedding_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Fixed: 2, Domain: [][2]float64{{-4, 0}, {-1, -1}}, Params: []float64{1.5},
		Expr: x1.Eq(unit).Select(zero, within.Max(zero)).Add(x1.Eq(expr.C(-1)).Select(zero, x0)),
		Ref: func(x, p []float64) float64 {
			v := 0.0
			if x[1] != 1 {
				v = math.Max(p[0]-x[0], 0)
			}
			if x[1] != -1 {
				v += x[0]
			}
			return v
		},
		Grad: []*expr.Expr{x1.Eq(expr.C(-1)).Select(zero, g2).Sub(x1.Eq(unit).Select(zero, hingeDiff)), nil}})
	// The loss of a cosine X(0) and a label X(1).
	cosineOp = tensor.Declare(&tensor.Elementwise{Name: "cosine_embedding_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Fixed: 2, Domain: [][2]float64{{0.5, 1}, {-1, -1}}, Params: []float64{0.25},
		Expr: x1.Eq(unit).Select(unit.Sub(x0), x1.Eq(expr.C(-1)).Select(x0.Sub(p0).Max(zero), zero)),
		Ref: func(x, p []float64) float64 {
			switch x[1] {
			case 1:
				return 1 - x[0]
			case -1:
				return math.Max(x[0]-p[0], 0)
			}
			return 0
		},
		Grad: []*expr.Expr{x1.Eq(unit).Select(g2.Neg(), x1.Eq(expr.C(-1)).Select(x0.Sub(p0).Gt(zero).Select(g2, zero), zero)), nil}})
)

// MarginRankingLoss is max(0, -y·(x1 - x2) + Margin): y = 1 where x1 is to be above x2, -1 where it is to be below. Its zero value has
// torch's defaults.
type MarginRankingLoss struct {
	Margin    float64
	Reduction Reduction
}

// Forward returns the loss of x1, x2 and y, which broadcast. Of integers alone y·(x1 - x2) is that
// of their type, which wraps, and the loss float32.
func (l MarginRankingLoss) Forward(x1, x2, y *tensor.Tensor) *tensor.Tensor {
	if integers("margin_ranking_loss", x1, x2, y) {
		return inChild(func(c *tensor.Scope) *tensor.Tensor {
			loss := y.In(c).Neg().Mul(x1.In(c).Sub(x2)).Float().AddScalar(l.Margin).ClampMin(0)
			return reduce("margin_ranking_loss", loss, []Reduction{l.Reduction})
		}, x1, x2, y)
	}
	return reduce("margin_ranking_loss", rankingOp.Apply([]*tensor.Tensor{x1, x2, y}, l.Margin), []Reduction{l.Reduction})
}

// HingeEmbeddingLoss is x where the label is 1 and max(0, Margin - x) where it is -1, for distances x. torch's Margin is 1.
type HingeEmbeddingLoss struct {
	Margin    float64
	Reduction Reduction
}

// Forward returns the loss of x with labels y of any type, which broadcast. A label that is neither 1 nor -1 counts as both.
func (l HingeEmbeddingLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	return reduce("hinge_embedding_loss", hingeOp.Apply([]*tensor.Tensor{x, y}, l.Margin), []Reduction{l.Reduction})
}

// CosineEmbeddingLoss is 1 - cos(x1, x2) where the label is 1 and max(0, cos(x1, x2) - Margin) where it is -1. Its zero value has
// torch's defaults.
type CosineEmbeddingLoss struct {
	Margin    float64
	Reduction Reduction
}

// Forward returns the loss of vectors x1 and x2, [n, d] or [d], with labels y of any type, [n] or []; another label than 1 and -1 gives 0.
// The cosine is Σ x1·x2 / √((Σ x1² + ε)(Σ x2² + ε)) with ε = 1e-12, as in torch.
func (l CosineEmbeddingLoss) Forward(x1, x2, y *tensor.Tensor) *tensor.Tensor {
	const op = "cosine_embedding_loss"
	given(op, x1, x2, y)
	if y.Rank() > 1 || x1.Rank() != y.Rank()+1 || x2.Rank() != x1.Rank() {
		misuse(op, tensor.ErrShape, fmt.Sprintf("needs vectors [n, d] with labels [n], or [d] with one; shapes are %v, %v and %v", x1.Shape(), x2.Shape(), y.Shape()), x1, x2, y)
	}
	if on(x1, x2, y) {
		return tensor.WithAutocast(op, tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor { return l.Forward(in[0], in[1], in[2]) }, x1, x2, y)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		x1, x2 := x1.In(c), x2.In(c)
		length := func(x *tensor.Tensor) *tensor.Tensor { return x.Square().Sum(-1).AddScalar(float64(float32(1e-12))) }
		cos := x1.Mul(x2).Sum(-1).Div(length(x1).Mul(length(x2)).Sqrt())
		return reduce(op, cosineOp.Apply([]*tensor.Tensor{cos, y}, l.Margin), []Reduction{l.Reduction})
	}, x1, x2, y)
}

// TripletMarginLoss is max(0, Margin + d(a, p) - d(a, n)) for an anchor a, a positive and a negative example p and n (V. Balntas et al.,
// Learning local feature descriptors with triplets, BMVC 2016). [NewTripletMarginLoss] has torch's defaults.
type TripletMarginLoss struct {
	Margin   float64
	P, Eps   float64                                  // of the distance, [tensor.Tensor.PairwiseDistance]
	Distance func(x, y *tensor.Tensor) *tensor.Tensor `nn:"-"` // used instead, if set: torch's triplet_margin_with_distance_loss
	// Swap takes the distance of p and n for that of a and n where it is less.
	Swap      bool
	Reduction Reduction
}

// NewTripletMarginLoss returns the loss with torch's defaults: margin 1, the Euclidean distance and 1e-6.
func NewTripletMarginLoss() *TripletMarginLoss { return &TripletMarginLoss{Margin: 1, P: 2, Eps: 1e-6} }

// Forward returns the loss of vectors in the last dimension. A margin that is not positive is an error.
func (l *TripletMarginLoss) Forward(anchor, positive, negative *tensor.Tensor) *tensor.Tensor {
	const op = "triplet_margin_loss"
	given(op, anchor, positive, negative)
	if !(l.Margin > 0) {
		misuse(op, tensor.ErrValue, fmt.Sprintf("the margin is %v, it must be positive", l.Margin), anchor, positive, negative)
	}
	if anchor.Rank() != positive.Rank() || anchor.Rank() != negative.Rank() {
		misuse(op, tensor.ErrShape, fmt.Sprintf("needs as many dimensions of all; shapes are %v, %v and %v", anchor.Shape(), positive.Shape(), negative.Shape()), anchor, positive, negative)
	}
	if l.Distance == nil && on(anchor, positive, negative) {
		return tensor.WithAutocast(op, tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor { return l.Forward(in[0], in[1], in[2]) }, anchor, positive, negative)
	}
	d := l.Distance
	if d == nil {
		d = func(x, y *tensor.Tensor) *tensor.Tensor { return x.PairwiseDistance(y, l.P, l.Eps) }
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		anchor, positive, negative := anchor.In(c), positive.In(c), negative.In(c)
		far := d(anchor, negative)
		if l.Swap {
			far = far.Minimum(d(positive, negative))
		}
		return reduce(op, d(anchor, positive).AddScalar(l.Margin).Sub(far).ClampMin(0), []Reduction{l.Reduction})
	}, anchor, positive, negative)
}
