package optim

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/optim/internal/exact"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdamaxConfig configures Adamax. Zero values of Beta1, Beta2 and Eps mean torch's defaults, 0.9,
// 0.999 and 1e-8.
type AdamaxConfig struct {
	LR           float64 // learning rate; required, there is no default
	Beta1, Beta2 float64
	Eps          float64
	WeightDecay  float64 // λ of the L2 penalty λ·p, which is added to the gradient
	Maximize     bool    // maximise the function instead of minimising it
}

func (c *AdamaxConfig) options() []option {
	return append([]option{{"betas", []*float64{&c.Beta1, &c.Beta2}}, {"eps", &c.Eps}, {"weight_decay", &c.WeightDecay}, {"maximize", &c.Maximize}},
		ignored("foreach", "capturable", "differentiable")...)
}

func (c *AdamaxConfig) complete() {
	setDefault(&c.Beta1, 0.9)
	setDefault(&c.Beta2, 0.999)
	setDefault(&c.Eps, 1e-8)
}

func (c *AdamaxConfig) check() string {
	return firstMessage(checkBetas(c.Beta1, c.Beta2), checkNotNegative("eps", c.Eps), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *AdamaxConfig) clone() config { d := *c; return &d }

func (c *AdamaxConfig) rate() float64 { return c.LR }

// Adamax is Adam with the infinity norm, as torch.optim.Adamax (D. Kingma, J. Ba, arXiv:1412.6980,
// section 7). In step t the rule is
//
//	m ← m + (g-m)·(1-β₁)
//	u ← max(β₂·u, |g| + ε)
//	p ← p - lr/(1-β₁ᵗ)·m/u
type Adamax struct {
	multi[AdamaxConfig, *AdamaxConfig]
}

// NewAdamax returns Adamax over params.
func NewAdamax(params []*tensor.Tensor, c AdamaxConfig) *Adamax {
	return NewAdamaxGroups(With[AdamaxConfig]{params, c})
}

// NewAdamaxGroups returns Adamax over groups of parameters.
func NewAdamaxGroups(groups ...With[AdamaxConfig]) *Adamax {
	return &Adamax{newMulti[AdamaxConfig, *AdamaxConfig]("Adamax", adamaxRule, (*AdamaxConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *Adamax) AddGroup(params []*tensor.Tensor, c AdamaxConfig) {
	o.add(With[AdamaxConfig]{params, c}, (*AdamaxConfig).rate)
}

var adamaxRule = &rule[AdamaxConfig]{
	name:   "adamax",
	schema: schema{tensors: []string{"exp_avg", "exp_inf"}},
	uses:   func(*AdamaxConfig) []int { return upTo(2) },
	flags:  func(c *AdamaxConfig) flags { return flags{c.Maximize, c.WeightDecay != 0} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], false, expr.Param(1), nil)
		rate, take1, beta2, eps := expr.Param(0), expr.Param(2), expr.Param(3), expr.Param(4)
		m := expr.X(2)
		m = m.Add(g.Sub(m).Mul(take1))
		u := expr.X(3).Mul(beta2).Max(g.Abs().Add(eps))
		return []*expr.Expr{p.Sub(rate.Mul(m.Div(u))), m, u}
	},
	scalars: func(c *AdamaxConfig, lr, t float64, _ *state, _ bool) ([]float64, []scalar) {
		return []float64{lr / (1 - exact.Pow(c.Beta1, t)), c.WeightDecay, 1 - c.Beta1, c.Beta2, c.Eps}, nil
	},
}
