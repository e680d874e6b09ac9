package optim

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/optim/internal/exact"
	"github.com/flambeau-go/flambeau/tensor"
)

// RAdamConfig configures RAdam. Zero values of Beta1, Beta2 and Eps mean torch's defaults, 0.9,
// 0.999 and 1e-8.
type RAdamConfig struct {
	LR           float64 // learning rate; required, there is no default
	Beta1, Beta2 float64
	Eps          float64
	// WeightDecay is the factor λ of the L2 penalty λ·p, which is added to the gradient. If
	// DecoupledWeightDecay is true, λ decays the parameter itself instead.
	WeightDecay          float64
	DecoupledWeightDecay bool // decays the parameter, p ← p·(1 - lr·λ), as in AdamW
	Maximize             bool // maximise the function instead of minimising it
}

func (c *RAdamConfig) options() []option {
	return append([]option{{"betas", []*float64{&c.Beta1, &c.Beta2}}, {"eps", &c.Eps}, {"weight_decay", &c.WeightDecay},
		{"decoupled_weight_decay", &c.DecoupledWeightDecay}, {"maximize", &c.Maximize}},
		ignored("foreach", "capturable", "differentiable")...)
}

func (c *RAdamConfig) complete() {
	setDefault(&c.Beta1, 0.9)
	setDefault(&c.Beta2, 0.999)
	setDefault(&c.Eps, 1e-8)
}

func (c *RAdamConfig) check() string {
	return firstMessage(checkBetas(c.Beta1, c.Beta2), checkNotNegative("eps", c.Eps), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *RAdamConfig) clone() config { d := *c; return &d }

func (c *RAdamConfig) rate() float64 { return c.LR }

// RAdam is Adam with a rectified adaptive rate, as torch.optim.RAdam (L. Liu et al.,
// arXiv:1908.03265). In step t, let m̂ = m/(1-β₁ᵗ), ρ∞ = 2/(1-β₂) - 1 and ρₜ = ρ∞ - 2t·β₂ᵗ/(1-β₂ᵗ).
// The rule is
//
//	p ← p - lr·m̂·r·√(1-β₂ᵗ)/(√v + ε) if ρₜ > 5, with r = √((ρₜ-4)(ρₜ-2)ρ∞ / ((ρ∞-4)(ρ∞-2)ρₜ))
//	p ← p - lr·m̂ otherwise
type RAdam struct {
	multi[RAdamConfig, *RAdamConfig]
}

// NewRAdam returns RAdam over params.
func NewRAdam(params []*tensor.Tensor, c RAdamConfig) *RAdam {
	return NewRAdamGroups(With[RAdamConfig]{params, c})
}

// NewRAdamGroups returns RAdam over groups of parameters.
func NewRAdamGroups(groups ...With[RAdamConfig]) *RAdam {
	return &RAdam{newMulti[RAdamConfig, *RAdamConfig]("RAdam", radamRule, (*RAdamConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *RAdam) AddGroup(params []*tensor.Tensor, c RAdamConfig) {
	o.add(With[RAdamConfig]{params, c}, (*RAdamConfig).rate)
}

var radamRule = &rule[RAdamConfig]{
	name:   "radam",
	schema: schema{tensors: []string{"exp_avg", "exp_avg_sq"}},
	uses:   func(*RAdamConfig) []int { return upTo(2) },
	flags: func(c *RAdamConfig) flags {
		return flags{c.Maximize, c.WeightDecay != 0 && !c.DecoupledWeightDecay, c.WeightDecay != 0 && c.DecoupledWeightDecay}
	},
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], f[2], expr.Param(1), expr.Param(0))
		take1, beta2, take2 := expr.Param(2), expr.Param(3), expr.Param(4)
		fix1, root2, eps, lr, rect, adapt := expr.Param(5), expr.Param(6), expr.Param(7), expr.Param(8), expr.Param(9), expr.Param(10)
		m := expr.X(2)
		m = m.Add(g.Sub(m).Mul(take1))
		v := expr.X(3).Mul(beta2).Add(g.Mul(g).Mul(take2))
		step := m.Div(fix1).Mul(lr)
		full := step.Mul(root2.Div(v.Sqrt().Add(eps))).Mul(rect)
		return []*expr.Expr{p.Sub(adapt.Gt(expr.C(0)).Select(full, step)), m, v}
	},
	scalars: func(c *RAdamConfig, lr, t float64, _ *state, _ bool) ([]float64, []scalar) {
		power := exact.Pow(c.Beta2, t)
		fix1, fix2 := 1-exact.Pow(c.Beta1, t), 1-power
		limit := 2/(1-c.Beta2) - 1
		rho := limit - 2*t*power/fix2
		rect, adapt := 1.0, 0.0
		if rho > 5 {
			rect, adapt = math.Sqrt((rho-4)*(rho-2)*limit/((limit-4)*(limit-2)*rho)), 1
		}
		return []float64{1 - lr*c.WeightDecay, c.WeightDecay, 1 - c.Beta1, c.Beta2, 1 - c.Beta2, fix1, math.Sqrt(fix2), c.Eps, lr, rect, adapt}, nil
	},
}
