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
	softMarginOp = tensor.Declare(&tensor.Elementwise{Name: "soft_margin_loss", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{-4, 4}, {-1, 1}},
		Expr: product.Max(zero).Add(product.Abs().Neg().Exp().Log1p()),
		Ref:  func(x, _ []float64) float64 { return math.Log1p(math.Exp(-x[0] * x[1])) },
		Grad: []*expr.Expr{g2.Mul(x1.Neg().Mul(product.Sigmoid())), g2.Mul(x0.Neg().Mul(product.Sigmoid()))}})
	// What a score X(0) lacks of the margin to the score X(1) of the right class.
	lacks         = p0.Sub(x1).Add(x0)
	multiMarginOp = tensor.Declare(&tensor.Elementwise{Name: "multi_margin_loss", Arity: 2, Result: tensor.FixedFloat, Domain: [][2]float64{{0.1, 4}, {-4, -0.1}}, Params: []float64{1.5},
		Expr: lacks.Gt(zero).Select(lacks, zero), Ref: func(x, p []float64) float64 { return math.Max(p[0]-x[1]+x[0], 0) },
		Grad: []*expr.Expr{lacks.Gt(zero).Select(g2, zero), lacks.Gt(zero).Select(g2.Neg(), zero)}})
)

// SoftMarginLoss is log(1 + e^(-y·x)) for labels y that are 1 or -1, computed without overflow. Its zero value has torch's defaults.
type SoftMarginLoss struct{ Reduction Reduction }

// Forward returns the loss of x and y, floating point tensors that broadcast.
func (l SoftMarginLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	return reduce("soft_margin_loss", softMarginOp.Apply([]*tensor.Tensor{x, y}), []Reduction{l.Reduction})
}

// MultiMarginLoss is Σ max(0, Margin - x[t] + x[c])^P / classes over the classes c ≠ t, for scores x and the right class t.
// [NewMultiMarginLoss] has torch's defaults.
type MultiMarginLoss struct {
	P         int // 1 or 2
	Margin    float64
	Weight    *tensor.Tensor `nn:"weight,buffer"` // a factor for each right class, [classes], of the scores' type; nil: 1
	Reduction Reduction
}

// NewMultiMarginLoss returns the loss with torch's defaults, 1 for P and Margin.
func NewMultiMarginLoss() *MultiMarginLoss { return &MultiMarginLoss{P: 1, Margin: 1} }

// Forward returns the loss of scores [n, classes] or [classes] with int64 classes [n] or a single one. A class that is not there is an
// index error, on a GPU reported at the next wait.
func (l *MultiMarginLoss) Forward(x, target *tensor.Tensor) *tensor.Tensor {
	const op = "multi_margin_loss"
	if l.P != 1 && l.P != 2 {
		misuse(op, tensor.ErrValue, fmt.Sprintf("P is %d, it must be 1 or 2", l.P), x, target)
	}
	if x.Rank() != 1 && x.Rank() != 2 {
		misuse(op, tensor.ErrShape, fmt.Sprintf("scores are [n, classes] or [classes], not %v", x.Shape()), x, target)
	}
	checkClasses(op, x, target, l.Weight, x.Rank()-1)
	right := target.Unsqueeze(-1)
	loss := multiMarginOp.Apply([]*tensor.Tensor{x, x.Gather(-1, right)}, l.Margin)
	if l.P == 2 {
		loss = loss.Square()
	}
	classes := x.Scope().On(x.Device()).Typed(target.Type()).Arange(0, float64(x.Dim(-1)), 1)
	loss = loss.MaskedFill(classes.Eq(right), 0).Sum(-1)
	if l.Weight != nil {
		loss = loss.Mul(l.Weight.IndexSelect(0, target.Flatten(0, -1)).Reshape(target.Shape().Slice()...))
	}
	return reduce(op, loss.DivScalar(float64(x.Dim(-1))), []Reduction{l.Reduction})
}

// MultiLabelSoftMarginLoss is the mean over the classes, in the last dimension, of -(y·log σ(x) + (1-y)·log σ(-x)). Its zero value has
// torch's defaults.
type MultiLabelSoftMarginLoss struct {
	Weight    *tensor.Tensor `nn:"weight,buffer"` // broadcast with the scores; nil: 1
	Reduction Reduction
}

// Forward returns the loss of scores x and labels y, 0 … 1, which broadcast: [..., classes].
func (l MultiLabelSoftMarginLoss) Forward(x, y *tensor.Tensor) *tensor.Tensor {
	const op = "multilabel_soft_margin_loss"
	if x.Rank() == 0 {
		misuse(op, tensor.ErrShape, "scores are [..., classes], not a scalar", x, y)
	}
	loss := weighted(bceLogitsOp.Apply([]*tensor.Tensor{x, y}), l.Weight)
	return reduce(op, loss.Sum(-1).DivScalar(float64(x.Dim(-1))), []Reduction{l.Reduction})
}

// MultiLabelMarginLoss is Σ max(0, 1 - x[t] + x[c]) / classes over the right classes t and the others c, for scores x. Its zero value has
// torch's defaults.
type MultiLabelMarginLoss struct{ Reduction Reduction }

// Forward returns the loss of scores [n, classes] or [classes] with int64 targets of the same shape: a row's right classes, up to the first
// -1. A class that is not there is an index error, on a GPU reported at the next wait. All n·classes² differences are in memory at once.
func (l MultiLabelMarginLoss) Forward(x, target *tensor.Tensor) *tensor.Tensor {
	const op = "multilabel_margin_loss"
	if x.Rank() != 1 && x.Rank() != 2 || target.Shape() != x.Shape() {
		misuse(op, tensor.ErrShape, fmt.Sprintf("scores and targets are [n, classes] or [classes], not %v and %v", x.Shape(), target.Shape()), x, target)
	}
	if !x.Type().IsFloat() {
		misuse(op, tensor.ErrType, fmt.Sprintf("needs floating point scores, not %v", x.Type()), x, target)
	}
	if target.Type() != dtype.I64 {
		hinted(op, tensor.ErrType, fmt.Sprintf("targets must be int64 class indices, they are %v", target.Type()), "use Cast(dtype.I64)", x, target)
	}
	n := x.Dim(-1)
	s := x.Scope()
	if n == 0 {
		return reduce(op, x.Sum(-1), []Reduction{l.Reduction})
	}
	// A target counts if no -1 stands at or before it.
	before := s.On(x.Device()).Typed(dtype.F32).Ones(n, n).Triu(0)
	over := target.EqScalar(-1).Float().Unsqueeze(-2).MatMul(before).Squeeze(-2).GtScalar(0)
	safe := target.MaskedFill(over, 0)
	right := safe.OneHot(n).MaskedFill(over.Unsqueeze(-1), 0).Amax(-2).NeScalar(0)
	loss := multiMarginOp.Apply([]*tensor.Tensor{x.Unsqueeze(-2), x.Gather(-1, safe).Unsqueeze(-1)}, 1)
	loss = loss.MaskedFill(over.Unsqueeze(-1), 0).MaskedFill(right.Unsqueeze(-2), 0).Sum(-2, -1)
	return reduce(op, loss.DivScalar(float64(n)), []Reduction{l.Reduction})
}
