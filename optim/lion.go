package optim

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// LionConfig configures Lion. Zero values of Beta1 and Beta2 mean the paper's defaults, 0.9 and
// 0.99.
type LionConfig struct {
	LR           float64 // learning rate; required, there is no default
	Beta1, Beta2 float64
	WeightDecay  float64 // λ of decoupled decay: p ← p·(1 - lr·λ)
	Maximize     bool    // maximise the function instead of minimising it
}

func (c *LionConfig) options() []option {
	return []option{{"betas", []*float64{&c.Beta1, &c.Beta2}}, {"weight_decay", &c.WeightDecay}, {"maximize", &c.Maximize}}
}

func (c *LionConfig) complete() {
	setDefault(&c.Beta1, 0.9)
	setDefault(&c.Beta2, 0.99)
}

func (c *LionConfig) check() string {
	return firstMessage(checkBetas(c.Beta1, c.Beta2), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *LionConfig) clone() config { d := *c; return &d }

func (c *LionConfig) rate() float64 { return c.LR }

// Lion uses the sign of an interpolation of momentum and gradient (X. Chen et al., "Symbolic
// Discovery of Optimization Algorithms", arXiv:2302.06675, algorithm 2):
//
//	p ← p·(1 - lr·λ) - lr·sign(β₁·m + (1-β₁)·g)
//	m ← β₂·m + (1-β₂)·g
//
// PyTorch does not have Lion. The state has the names of the usual implementations: "exp_avg" for
// the momentum, and "lr", "betas", "weight_decay" in the groups.
type Lion struct {
	multi[LionConfig, *LionConfig]
}

// NewLion returns Lion over params.
func NewLion(params []*tensor.Tensor, c LionConfig) *Lion {
	return NewLionGroups(With[LionConfig]{params, c})
}

// NewLionGroups returns Lion over groups of parameters.
func NewLionGroups(groups ...With[LionConfig]) *Lion {
	return &Lion{newMulti[LionConfig, *LionConfig]("Lion", lionRule, (*LionConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *Lion) AddGroup(params []*tensor.Tensor, c LionConfig) {
	o.add(With[LionConfig]{params, c}, (*LionConfig).rate)
}

var lionRule = &rule[LionConfig]{
	name:   "lion",
	schema: schema{tensors: []string{"exp_avg"}, stepless: true},
	uses:   func(*LionConfig) []int { return upTo(1) },
	flags:  func(c *LionConfig) flags { return flags{c.Maximize, c.WeightDecay != 0} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], false, f[1], nil, expr.Param(1))
		lr, beta1, take1, beta2, take2 := expr.Param(0), expr.Param(2), expr.Param(3), expr.Param(4), expr.Param(5)
		m := expr.X(2)
		c := m.Mul(beta1).Add(g.Mul(take1))
		return []*expr.Expr{p.Sub(sign(c).Mul(lr)), m.Mul(beta2).Add(g.Mul(take2))}
	},
	scalars: func(c *LionConfig, lr, _ float64, _ *state, _ bool) ([]float64, []scalar) {
		return []float64{lr, 1 - lr*c.WeightDecay, c.Beta1, 1 - c.Beta1, c.Beta2, 1 - c.Beta2}, nil
	},
}
