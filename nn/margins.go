package nn

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

var (
	product      = x1.Neg().Mul(x0)
	softMarginOp = tensor.Declare(&tensor.Elementwise{Name: "soft_margin_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}, {-1, 1}},
		Expr: product.Max(zero).Add(product.Abs().Neg().Exp().Log1p()),
		Ref:  func(x, _ []float64) float64 { return math.Log1p(math.Exp(-x[0] * x[1])) },
		Grad: []*expr.Expr{g2.Mul(x1.Neg().Mul(product.Sigmoid())), g2.Mul(x0.Neg().Mul(product.Sigmoid()))}})
	// shortfall is p0 - x1 + x0: the margin, minus the score X(1) of the right class, plus the
	// score X(0) of a wrong class. lackingOp is 1 where shortfall is positive, else 0.
	shortfall     = p0.Sub(x1).Add(x0)
	multiMarginOp = tensor.Declare(&tensor.Elementwise{Name: "multi_margin_loss", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{0.1, 4}, {-4, -0.1}}, Params: []float64{1.5},
		Expr: shortfall.Gt(zero).Select(shortfall, zero), Ref: func(x, p []float64) float64 { return math.Max(p[0]-x[1]+x[0], 0) },
		Grad: []*expr.Expr{shortfall.Gt(zero).Select(g2, zero), shortfall.Gt(zero).Select(g2.Neg(), zero)}})
	lackingOp = tensor.Declare(&tensor.Elementwise{Name: "lacking", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{0.1, 4}, {-4, -0.1}}, Params: []float64{1.5},
		Expr: shortfall.Gt(zero).Select(unit, zero), Ref: func([]float64, []float64) float64 { return 1 }, NoGrad: true})
	multiLabelOp = tensor.Declare(&tensor.Elementwise{Name: "multilabel_soft_margin_loss", Autocast: tensor.AutocastHigh, Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}, {0, 1}},
		Expr: bceLogitsOp.Expr, Ref: bceLogitsOp.Ref,
		Grad: []*expr.Expr{g2.Neg().Mul(x1).Mul(x0.Neg().Sigmoid()).Add(g2.Mul(unit.Sub(x1)).Mul(x0.Sigmoid())), g2.Mul(x0.Neg())}})
)

// SoftMarginLoss is log(1 + e^(-y·x)) for scores x and labels y that are 1 or -1. The computation
// does not overflow. The zero value of the struct has torch's defaults.
type SoftMarginLoss struct{ Reduction Reduction }

// Forward returns the loss for scores x and labels y, floating-point tensors that broadcast against
// each other.
func (l SoftMarginLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	return reduce("soft_margin_loss", softMarginOp.Apply([]*tensor.Tensor{x, y}), []Reduction{l.Reduction})
}

// MultiMarginLoss is Σ max(0, Margin - x[t] + x[c])^P / classes, for scores x and the right class
// t. The sum is over the classes c ≠ t. [NewMultiMarginLoss] has torch's defaults.
type MultiMarginLoss struct {
	P      int // 1 or 2
	Margin float64
	// Weight is [classes], with the type of the scores. It multiplies the loss of each row by the
	// factor of the row's right class. Nil means that all factors are 1.
	Weight    *tensor.Tensor `nn:"weight,buffer"`
	Reduction Reduction
}

// NewMultiMarginLoss returns the loss with torch's defaults: P and Margin are 1.
func NewMultiMarginLoss() *MultiMarginLoss { return &MultiMarginLoss{P: 1, Margin: 1} }

// Forward returns the loss for scores [n, classes] or [classes]. target has the int64 classes [n],
// or a single class of shape [] or [1]. A score of rank 0 is a score for one class. A target that
// is not a class is an index error. A GPU reports the error at the next wait.
func (l *MultiMarginLoss) Forward(x, target *tensor.Tensor) *tensor.Tensor {
	const op = "multi_margin_loss"
	requireUsable(op, x, target)
	if l.P != 1 && l.P != 2 {
		misuse(op, tensor.ErrValue, fmt.Sprintf("P is %d, it must be 1 or 2", l.P), x, target)
	}
	if x.Rank() > 2 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("scores are [n, classes] or [classes], not %v", x.Shape()), x, target)
	}
	if x.Rank() == 0 {
		x = x.Unsqueeze(0)
	}
	if x.Rank() == 1 && target.Rank() == 1 && target.Dim(0) == 1 {
		x = x.Unsqueeze(0)
	}
	if autocastOn(x, target, l.Weight) {
		return tensor.WithAutocast(op, tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor {
			m := *l
			m.Weight = in[2]
			return m.Forward(in[0], in[1])
		}, x, target, l.Weight)
	}
	checkClasses(op, x, target, l.Weight, x.Rank()-1)
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		target := target.In(c)
		loss := tensor.Apply(&multiMarginFunc{l.P, l.Margin}, x.In(c), target)
		if l.Weight != nil {
			loss = loss.Mul(l.Weight.IndexSelect(0, target.Flatten(0, -1)).Reshape(target.Shape().Slice()...))
		}
		return reduce(op, loss, []Reduction{l.Reduction})
	}, x, target, l.Weight)
}

// multiMarginFunc computes the loss of each row. Its VJP multiplies by the gradient of the loss
// last. This gives zeros the same sign as in torch.
type multiMarginFunc struct {
	p      int
	margin float64
}

func (*multiMarginFunc) Name() string { return "multi_margin_loss" }

// others returns a mask that is false for the right class of a row and true for all other classes.
func (*multiMarginFunc) others(x, target *tensor.Tensor) *tensor.Tensor {
	classes := x.Scope().On(x.Device()).Typed(target.Type()).Arange(x.Dim(-1))
	return classes.Ne(target.Unsqueeze(-1))
}

func (f *multiMarginFunc) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	x, target := in[0], in[1]
	if c.Needs(0) {
		c.Save(x, target)
	}
	loss := multiMarginOp.Apply([]*tensor.Tensor{x, x.Gather(-1, target.Unsqueeze(-1))}, f.margin)
	if f.p == 2 {
		loss = loss.Square()
	}
	return loss.MaskedFill(f.others(x, target).LogicalNot(), 0).Sum(-1).DivScalar(float64(max(1, x.Dim(-1))))
}

func (f *multiMarginFunc) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	x, target := c.Saved(0), c.Saved(1)
	in := []*tensor.Tensor{x, x.Gather(-1, target.Unsqueeze(-1))}
	var d *tensor.Tensor
	if f.p == 1 {
		d = lackingOp.Apply(in, f.margin)
	} else {
		d = multiMarginOp.Apply(in, f.margin).MulScalar(2)
	}
	right := f.others(x, target).LogicalNot()
	d = d.MaskedFill(right, 0)
	d = tensor.Where(right, d.Sum(-1, tensor.KeepDim).RSubScalar(0), d).DivScalar(float64(max(1, x.Dim(-1))))
	return []*tensor.Tensor{d.Mul(g.Unsqueeze(-1)), nil}
}

// MultiLabelSoftMarginLoss is the mean of -(y·log σ(x) + (1-y)·log σ(-x)) over the classes. The
// classes are the last dimension. The zero value has torch's defaults.
type MultiLabelSoftMarginLoss struct {
	// factors that are broadcast to the scores; nil means 1
	Weight    *tensor.Tensor `nn:"weight,buffer"`
	Reduction Reduction
}

// Forward returns the loss for scores x and labels y between 0 and 1. Both broadcast to [...,
// classes].
func (l MultiLabelSoftMarginLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	const op = "multilabel_soft_margin_loss"
	requireUsable(op, x, y)
	if x.Rank() == 0 {
		misuse(op, tensor.ErrShape, "scores are [..., classes], not a scalar", x, y)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		loss := weighted(multiLabelOp.Apply([]*tensor.Tensor{x.In(c), y}), l.Weight)
		return reduce(op, loss.Sum(-1).DivScalar(float64(x.Dim(-1))), []Reduction{l.Reduction})
	}, x, y, l.Weight)
}

// MultiLabelMarginLoss is Σ max(0, 1 - x[t] + x[c]) / classes for scores x, where the sum is over
// all pairs of a right class t and a wrong class c. The zero value of the struct has torch's
// defaults.
type MultiLabelMarginLoss struct{ Reduction Reduction }

// Forward returns the loss for scores [n, classes] or [classes]. target is int64 with the shape
// of the scores. Each row of target lists the right classes, and ends at the first -1. A score
// and a target of rank 0 count as vectors of one element. A target that is not a class is an
// index error. A GPU reports the error at the next wait. Forward needs memory for n·classes²
// elements.
func (l MultiLabelMarginLoss) Forward(x, target *tensor.Tensor) *tensor.Tensor {
	const op = "multilabel_margin_loss"
	requireUsable(op, x, target)
	lifted := func(t *tensor.Tensor) *tensor.Tensor {
		if t.Rank() == 0 {
			t = t.Unsqueeze(0)
		}
		return t
	}
	x, target = lifted(x), lifted(target)
	if x.Rank() != 1 && x.Rank() != 2 || target.Shape() != x.Shape() {
		misuse(op, tensor.ErrShape, fmt.Sprintf("scores and targets are [n, classes] or [classes], not %v and %v", x.Shape(), target.Shape()), x, target)
	}
	if !x.Type().IsFloat() {
		misuse(op, tensor.ErrType, fmt.Sprintf("needs floating point scores, not %v", x.Type()), x, target)
	}
	if target.Type() != dtype.I64 {
		hinted(op, tensor.ErrType, fmt.Sprintf("targets must be int64 class indices, they are %v", target.Type()), "use Cast(dtype.I64)", x, target)
	}
	return reduce(op, tensor.Apply(multiLabelMarginFunc{}, x, target), []Reduction{l.Reduction})
}

// multiLabelMarginFunc computes the loss of each row of scores.
type multiLabelMarginFunc struct{}

func (multiLabelMarginFunc) Name() string { return "multilabel_margin_loss" }

// targets returns two tensors. safe has the target classes, with 0 in place of entries after the
// end of a row's list. out, [..., targets, classes], is true for a pair of classes that does not
// count: the target is after the end of the list, or the other class is a target too.
func (multiLabelMarginFunc) targets(x, target *tensor.Tensor) (safe, out *tensor.Tensor) {
	n := x.Dim(-1)
	// A target counts if it is not -1 and no entry before it is -1.
	before := x.Scope().On(x.Device()).Typed(dtype.F32).Ones(n, n).Triu(0)
	over := target.EqScalar(-1).Float().Unsqueeze(-2).MatMul(before).Squeeze(-2).GtScalar(0)
	safe = target.MaskedFill(over, 0)
	if n == 0 {
		return safe, over.Unsqueeze(-1)
	}
	right := safe.OneHot(n).MaskedFill(over.Unsqueeze(-1), 0).Amax(-2).NeScalar(0)
	return safe, over.Unsqueeze(-1).LogicalOr(right.Unsqueeze(-2))
}

func (f multiLabelMarginFunc) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	x, target := in[0], in[1]
	if c.Needs(0) {
		c.Save(x, target)
	}
	safe, out := f.targets(x, target)
	loss := multiMarginOp.Apply([]*tensor.Tensor{x.Unsqueeze(-2), x.Gather(-1, safe).Unsqueeze(-1)}, 1)
	return loss.MaskedFill(out, 0).Sum(-2, -1).DivScalar(float64(max(1, x.Dim(-1))))
}

func (f multiLabelMarginFunc) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	x, target := c.Saved(0), c.Saved(1)
	safe, out := f.targets(x, target)
	d := lackingOp.Apply([]*tensor.Tensor{x.Unsqueeze(-2), x.Gather(-1, safe).Unsqueeze(-1)}, 1).MaskedFill(out, 0)
	d = d.Sum(-2).ScatterAdd(-1, safe, d.Sum(-1).Neg()).DivScalar(float64(max(1, x.Dim(-1))))
	return []*tensor.Tensor{d.Mul(g.Unsqueeze(-1)), nil}
}

// The following losses compare tensors with each other, or have labels that are 1 or -1.

var (
	x2 = expr.X(2)
	// As in torch, the gradient is 0 where the loss is 0, even exactly at the margin.
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
	// cosineOp is the loss for X(0), a cosine, and X(1), a label.
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

// MarginRankingLoss is max(0, -y·(x1 - x2) + Margin). The label y is 1 if x1 should be greater
// than x2, and -1 if x1 should be less than x2. The zero value of the struct has torch's defaults.
type MarginRankingLoss struct {
	Margin    float64
	Reduction Reduction
}

// Forward returns the loss for x1, x2 and y, which broadcast against each other. If all are
// integers, the loss is float32, but the product y·(x1 - x2) is computed in their integer type and
// may wrap around.
func (l MarginRankingLoss) Forward(x1, x2, y *tensor.Tensor) *tensor.Tensor {
	if integers("margin_ranking_loss", x1, x2, y) {
		return inChild(func(c *tensor.Scope) *tensor.Tensor {
			loss := y.In(c).Neg().Mul(x1.In(c).Sub(x2)).Float().AddScalar(l.Margin).ClampMin(0)
			return reduce("margin_ranking_loss", loss, []Reduction{l.Reduction})
		}, x1, x2, y)
	}
	return reduce("margin_ranking_loss", rankingOp.Apply([]*tensor.Tensor{x1, x2, y}, l.Margin), []Reduction{l.Reduction})
}

// HingeEmbeddingLoss is x for a distance x with label 1, and max(0, Margin - x) for a distance x
// with label -1. torch's Margin is 1. A Margin of 0 is an error.
type HingeEmbeddingLoss struct {
	Margin    float64
	Reduction Reduction
}

// Forward returns the loss for x and labels y of any type, which broadcast against each other. For
// a label that is neither 1 nor -1, the loss is the sum of both cases.
func (l HingeEmbeddingLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	if l.Margin == 0 {
		hinted("hinge_embedding_loss", tensor.ErrValue, "Margin is 0", "torch's default is 1", x, y)
	}
	return reduce("hinge_embedding_loss", hingeOp.Apply([]*tensor.Tensor{x, y}, l.Margin), []Reduction{l.Reduction})
}

// CosineEmbeddingLoss is 1 - cos(x1, x2) where the label is 1 and max(0, cos(x1, x2) - Margin)
// where the label is -1. The zero value of the struct has torch's defaults.
type CosineEmbeddingLoss struct {
	Margin    float64
	Reduction Reduction
}

// Forward returns the loss for vectors x1 and x2, [n, d] or [d], and labels y of any type, [n] or
// []. For a label other than 1 and -1 the loss is 0. As in torch, the cosine is Σ x1·x2 / √((Σ x1²
// + ε)(Σ x2² + ε)) with ε = 1e-12.
func (l CosineEmbeddingLoss) Forward(x1, x2, y *tensor.Tensor) *tensor.Tensor {
	const op = "cosine_embedding_loss"
	requireUsable(op, x1, x2, y)
	if y.Rank() > 1 || x1.Rank() != y.Rank()+1 || x2.Rank() != x1.Rank() {
		misuse(op, tensor.ErrShape, fmt.Sprintf("needs vectors [n, d] with labels [n], or [d] with one; shapes are %v, %v and %v", x1.Shape(), x2.Shape(), y.Shape()), x1, x2, y)
	}
	if autocastOn(x1, x2, y) {
		return tensor.WithAutocast(op, tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor { return l.Forward(in[0], in[1], in[2]) }, x1, x2, y)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		x1, x2 := x1.In(c), x2.In(c)
		length := func(x *tensor.Tensor) *tensor.Tensor { return x.Square().Sum(-1).AddScalar(float64(float32(1e-12))) }
		cos := x1.Mul(x2).Sum(-1).Div(length(x1).Mul(length(x2)).Sqrt())
		return reduce(op, cosineOp.Apply([]*tensor.Tensor{cos, y}, l.Margin), []Reduction{l.Reduction})
	}, x1, x2, y)
}

// TripletMarginLoss is max(0, Margin + d(a, p) - d(a, n)) for an anchor a, a positive example p and
// a negative example n (V. Balntas et al., Learning local feature descriptors with triplets, BMVC
// 2016). [NewTripletMarginLoss] has torch's defaults.
type TripletMarginLoss struct {
	Margin float64
	// P and Eps are the arguments of [tensor.Tensor.PairwiseDistance], which computes the distance
	// d.
	P, Eps float64
	// Distance, unless nil, computes the distance d instead: torch's
	// triplet_margin_with_distance_loss.
	Distance func(x, y *tensor.Tensor) *tensor.Tensor `nn:"-"`
	// Swap replaces d(a, n) by d(p, n) where d(p, n) is less.
	Swap      bool
	Reduction Reduction
}

// NewTripletMarginLoss returns the loss with torch's defaults: Margin 1, P 2 and Eps 1e-6.
func NewTripletMarginLoss() *TripletMarginLoss { return &TripletMarginLoss{Margin: 1, P: 2, Eps: 1e-6} }

// Forward returns the loss. The vectors are along the last dimension of each operand. A Margin that
// is not positive is an error. A P of 0 is an error if Distance is nil.
func (l *TripletMarginLoss) Forward(anchor, positive, negative *tensor.Tensor) *tensor.Tensor {
	const op = "triplet_margin_loss"
	requireUsable(op, anchor, positive, negative)
	if !(l.Margin > 0) {
		misuse(op, tensor.ErrValue, fmt.Sprintf("the margin is %v, it must be positive", l.Margin), anchor, positive, negative)
	}
	// For P = 0 the distance would be the number of differing elements, which has no gradient.
	if l.P == 0 && l.Distance == nil {
		misuse(op, tensor.ErrValue, "P is 0; NewTripletMarginLoss sets P to 2 and Eps to 1e-6", anchor, positive, negative)
	}
	if anchor.Rank() != positive.Rank() || anchor.Rank() != negative.Rank() {
		misuse(op, tensor.ErrShape, fmt.Sprintf("needs as many dimensions of all; shapes are %v, %v and %v", anchor.Shape(), positive.Shape(), negative.Shape()), anchor, positive, negative)
	}
	if l.Distance == nil && autocastOn(anchor, positive, negative) {
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
