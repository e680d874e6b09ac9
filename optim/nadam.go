package optim

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/optim/internal/exact"
	"github.com/flambeau-go/flambeau/tensor"
)

// NAdamConfig configures NAdam. Zero values of Beta1, Beta2, Eps and MomentumDecay mean torch's
// defaults, 0.9, 0.999, 1e-8 and 4e-3.
type NAdamConfig struct {
	LR           float64 // learning rate; required, there is no default
	Beta1, Beta2 float64
	Eps          float64
	// WeightDecay is the factor λ of the L2 penalty λ·p, which is added to the gradient. If
	// DecoupledWeightDecay is true, λ decays the parameter itself instead.
	WeightDecay          float64
	MomentumDecay        float64 // decay ψ of the momentum
	DecoupledWeightDecay bool    // decays the parameter, p ← p·(1 - lr·λ), as in AdamW
	Maximize             bool    // maximise the function instead of minimising it
}

func (c *NAdamConfig) options() []option {
	return append([]option{{"betas", []*float64{&c.Beta1, &c.Beta2}}, {"eps", &c.Eps}, {"weight_decay", &c.WeightDecay}, {"momentum_decay", &c.MomentumDecay},
		{"decoupled_weight_decay", &c.DecoupledWeightDecay}, {"maximize", &c.Maximize}},
		ignored("foreach", "capturable", "differentiable")...)
}

func (c *NAdamConfig) complete() {
	setDefault(&c.Beta1, 0.9)
	setDefault(&c.Beta2, 0.999)
	setDefault(&c.Eps, 1e-8)
	setDefault(&c.MomentumDecay, 4e-3)
}

func (c *NAdamConfig) check() string {
	return firstMessage(checkBetas(c.Beta1, c.Beta2), checkNotNegative("eps", c.Eps), checkNotNegative("weight decay", c.WeightDecay),
		checkNotNegative("momentum decay", c.MomentumDecay))
}

func (c *NAdamConfig) clone() config { d := *c; return &d }

func (c *NAdamConfig) rate() float64 { return c.LR }

// NAdam is Adam with Nesterov's momentum, as torch.optim.NAdam (T. Dozat, "Incorporating Nesterov
// Momentum into Adam", ICLR workshop 2016). In step t the rule is
//
//	μₜ = β₁·(1 - 0.96^(t·ψ)/2)
//	m ← m + (g-m)·(1-β₁)
//	v ← β₂·v + (1-β₂)·g²
//	d = √(v/(1-β₂ᵗ)) + ε
//	p ← p - lr·((1-μₜ)/(1-∏ᵢ₌₁ᵗμᵢ)·g + μₜ₊₁/(1-∏ᵢ₌₁ᵗ⁺¹μᵢ)·m)/d
//
// As in torch, the product of the μᵢ is stored in float32.
type NAdam struct {
	multi[NAdamConfig, *NAdamConfig]
}

// NewNAdam returns NAdam over params.
func NewNAdam(params []*tensor.Tensor, c NAdamConfig) *NAdam {
	return NewNAdamGroups(With[NAdamConfig]{params, c})
}

// NewNAdamGroups returns NAdam over groups of parameters.
func NewNAdamGroups(groups ...With[NAdamConfig]) *NAdam {
	return &NAdam{newMulti[NAdamConfig, *NAdamConfig]("NAdam", nadamRule, (*NAdamConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *NAdam) AddGroup(params []*tensor.Tensor, c NAdamConfig) {
	o.add(With[NAdamConfig]{params, c}, (*NAdamConfig).rate)
}

var nadamRule = &rule[NAdamConfig]{
	name:   "nadam",
	schema: schema{tensors: []string{"exp_avg", "exp_avg_sq"}, scalars: []string{"mu_product"}},
	uses:   func(*NAdamConfig) []int { return upTo(2) },
	begin:  func(*NAdamConfig, float64, int) float64 { return 1 },
	flags: func(c *NAdamConfig) flags {
		return flags{c.Maximize, c.WeightDecay != 0 && !c.DecoupledWeightDecay, c.WeightDecay != 0 && c.DecoupledWeightDecay}
	},
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], f[2], expr.Param(1), expr.Param(0))
		take1, beta2, take2 := expr.Param(2), expr.Param(3), expr.Param(4)
		fix2, eps, byGrad, byMean := expr.Param(5), expr.Param(6), expr.Param(7), expr.Param(8)
		m := expr.X(2)
		m = m.Add(g.Sub(m).Mul(take1))
		v := expr.X(3).Mul(beta2).Add(g.Mul(g).Mul(take2))
		d := v.Div(fix2).Sqrt().Add(eps)
		return []*expr.Expr{p.Add(byGrad.Mul(g.Div(d))).Add(byMean.Mul(m.Div(d))), m, v}
	},
	scalars: func(c *NAdamConfig, lr, t float64, st *state, _ bool) ([]float64, []scalar) {
		mu := c.Beta1 * (1 - 0.5*exact.Pow(0.96, t*c.MomentumDecay))
		next := c.Beta1 * (1 - 0.5*exact.Pow(0.96, (t+1)*c.MomentumDecay))
		product := st.scalars[0].times(mu)
		return []float64{1 - lr*c.WeightDecay, c.WeightDecay, 1 - c.Beta1, c.Beta2, 1 - c.Beta2, 1 - exact.Pow(c.Beta2, t), c.Eps,
			-lr * (1 - mu) / (1 - product.v), -lr * next / (1 - product.v*next)}, []scalar{product}
	},
}
