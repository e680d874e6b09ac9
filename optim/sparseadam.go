package optim

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/optim/internal/exact"
	"github.com/flambeau-go/flambeau/tensor"
)

// SparseAdamConfig configures SparseAdam. Zero values of Beta1, Beta2 and Eps mean torch's
// defaults, 0.9, 0.999 and 1e-8.
type SparseAdamConfig struct {
	LR           float64 // learning rate; required, there is no default
	Beta1, Beta2 float64
	Eps          float64
	Maximize     bool // maximise the function instead of minimising it
}

func (c *SparseAdamConfig) options() []option {
	return []option{{"betas", []*float64{&c.Beta1, &c.Beta2}}, {"eps", &c.Eps}, {"maximize", &c.Maximize}}
}

func (c *SparseAdamConfig) complete() {
	setDefault(&c.Beta1, 0.9)
	setDefault(&c.Beta2, 0.999)
	setDefault(&c.Eps, 1e-8)
}

func (c *SparseAdamConfig) check() string {
	return firstMessage(checkBetas(c.Beta1, c.Beta2), checkNotNegative("eps", c.Eps))
}

func (c *SparseAdamConfig) clone() config { d := *c; return &d }

func (c *SparseAdamConfig) rate() float64 { return c.LR }

// SparseAdam is Adam for the elements whose gradient is not 0, by the rule of
// torch.optim.SparseAdam:
//
//	m ← m + (g-m)·(1-β₁)
//	v ← v + (g²-v)·(1-β₂)
//	p ← p - lr·√(1-β₂ᵗ)/(1-β₁ᵗ) · m/(√v + ε)
//
// t counts the steps of the whole parameter. Where the gradient is 0, p, m and v do not change. In
// particular, rows of an embedding that were not looked up do not change.
//
// torch's optimizer accepts only sparse gradients, and updates the rows that they list. In this
// package gradients are dense. The results are equal unless the gradient of a listed row contains a
// 0. torch then updates the element and its moments, while this package leaves them unchanged.
type SparseAdam struct {
	multi[SparseAdamConfig, *SparseAdamConfig]
}

// NewSparseAdam returns SparseAdam over params.
func NewSparseAdam(params []*tensor.Tensor, c SparseAdamConfig) *SparseAdam {
	return NewSparseAdamGroups(With[SparseAdamConfig]{params, c})
}

// NewSparseAdamGroups returns SparseAdam over groups of parameters.
func NewSparseAdamGroups(groups ...With[SparseAdamConfig]) *SparseAdam {
	return &SparseAdam{newMulti[SparseAdamConfig, *SparseAdamConfig]("SparseAdam", sparseAdamRule,
		(*SparseAdamConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *SparseAdam) AddGroup(params []*tensor.Tensor, c SparseAdamConfig) {
	o.add(With[SparseAdamConfig]{params, c}, (*SparseAdamConfig).rate)
}

var sparseAdamRule = &rule[SparseAdamConfig]{
	name:   "sparse_adam",
	schema: schema{tensors: []string{"exp_avg", "exp_avg_sq"}},
	uses:   func(*SparseAdamConfig) []int { return upTo(2) },
	flags:  func(c *SparseAdamConfig) flags { return flags{c.Maximize} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], false, false, nil, nil)
		size, take1, take2, eps := expr.Param(0), expr.Param(1), expr.Param(2), expr.Param(3)
		m, v := expr.X(2), expr.X(3)
		m2 := g.Sub(m).Mul(take1).Add(m)
		v2 := g.Mul(g).Sub(v).Mul(take2).Add(v)
		p2 := p.Sub(size.Mul(m2.Div(v2.Sqrt().Add(eps))))
		moves := g.Ne(expr.C(0)) // true for NaN too
		return []*expr.Expr{moves.Select(p2, p), moves.Select(m2, m), moves.Select(v2, v)}
	},
	scalars: func(c *SparseAdamConfig, lr, t float64, _ *state, _ bool) ([]float64, []scalar) {
		c1, c2 := 1-exact.Pow(c.Beta1, t), 1-exact.Pow(c.Beta2, t)
		return []float64{lr * math.Sqrt(c2) / c1, 1 - c.Beta1, 1 - c.Beta2, c.Eps}, nil
	},
}
