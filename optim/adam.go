package optim

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/optim/internal/exact"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdamConfig configures Adam and AdamW. Zero values of Beta1, Beta2 and Eps mean torch's defaults,
// 0.9, 0.999 and 1e-8.
type AdamConfig struct {
	LR           float64 // learning rate; required, there is no default
	Beta1, Beta2 float64
	Eps          float64
	// WeightDecay is λ. Adam adds the L2 penalty λ·p to the gradient. AdamW decays the parameter
	// itself: p ← p·(1 - lr·λ).
	WeightDecay float64
	// AMSGrad replaces v in Adam's rule by the largest v so far (S. Reddi et al., "On the
	// Convergence of Adam and Beyond").
	AMSGrad  bool
	Maximize bool // maximise the function instead of minimising it

	decoupled bool
}

func (c *AdamConfig) options() []option {
	return append([]option{{"betas", []*float64{&c.Beta1, &c.Beta2}}, {"eps", &c.Eps}, {"weight_decay", &c.WeightDecay},
		{"amsgrad", &c.AMSGrad}, {"maximize", &c.Maximize}, {"decoupled_weight_decay", &c.decoupled}},
		ignored("foreach", "capturable", "differentiable", "fused")...)
}

func (c *AdamConfig) complete() {
	setDefault(&c.Beta1, 0.9)
	setDefault(&c.Beta2, 0.999)
	setDefault(&c.Eps, 1e-8)
}

func (c *AdamConfig) check() string {
	return firstMessage(checkBetas(c.Beta1, c.Beta2), checkNotNegative("eps", c.Eps), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *AdamConfig) clone() config { d := *c; return &d }

func (c *AdamConfig) rate() float64 { return c.LR }

// Adam is Adam or AdamW as in torch.optim (D. Kingma, J. Ba, arXiv:1412.6980; I. Loshchilov, F.
// Hutter, arXiv:1711.05101). In step t the rule is
//
//	m ← m + (g-m)·(1-β₁)
//	v ← β₂·v + (1-β₂)·g²
//	p ← p - lr/(1-β₁ᵗ) · m / (√v/√(1-β₂ᵗ) + ε)
type Adam struct {
	multi[AdamConfig, *AdamConfig]
	decoupled bool
}

// NewAdam returns Adam over params.
func NewAdam(params []*tensor.Tensor, c AdamConfig) *Adam {
	return NewAdamGroups(With[AdamConfig]{params, c})
}

// NewAdamGroups returns Adam over groups of parameters.
func NewAdamGroups(groups ...With[AdamConfig]) *Adam { return newAdam("Adam", groups, false) }

// NewAdamW returns AdamW over params. In AdamW weight decay is decoupled from the gradient. A
// WeightDecay of 0 means no decay; torch's default is 0.01.
func NewAdamW(params []*tensor.Tensor, c AdamConfig) *Adam {
	return NewAdamWGroups(With[AdamConfig]{params, c})
}

// NewAdamWGroups returns AdamW over groups of parameters.
func NewAdamWGroups(groups ...With[AdamConfig]) *Adam { return newAdam("AdamW", groups, true) }

func newAdam(name string, groups []With[AdamConfig], decoupled bool) *Adam {
	list := append([]With[AdamConfig](nil), groups...)
	for i := range list {
		list[i].Config.decoupled = decoupled
	}
	return &Adam{newMulti[AdamConfig, *AdamConfig](name, adamRule, (*AdamConfig).rate, list), decoupled}
}

// AddGroup adds parameters with a configuration of their own.
func (o *Adam) AddGroup(params []*tensor.Tensor, c AdamConfig) {
	c.decoupled = o.decoupled
	o.add(With[AdamConfig]{params, c}, (*AdamConfig).rate)
}

// LoadStateDict loads a tree made by StateDict or by torch. As in torch, AdamW stays AdamW even if
// the state comes from Adam. Adam changes to decoupled decay if the state comes from AdamW.
func (o *Adam) LoadStateDict(tree map[string]any) error {
	if err := o.base.LoadStateDict(tree); err != nil {
		return err
	}
	for _, g := range o.groups {
		c := g.config.(*AdamConfig)
		c.decoupled = c.decoupled || o.decoupled
	}
	return nil
}

var adamRule = &rule[AdamConfig]{
	name:   "adam",
	schema: schema{tensors: []string{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
	uses: func(c *AdamConfig) []int {
		if c.AMSGrad {
			return upTo(3)
		}
		return upTo(2)
	},
	flags: func(c *AdamConfig) flags {
		return flags{c.Maximize, c.WeightDecay != 0 && !c.decoupled, c.WeightDecay != 0 && c.decoupled, c.AMSGrad}
	},
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], f[2], expr.Param(1), expr.Param(0))
		m, v := expr.X(2), expr.X(3)
		take1, beta2, take2 := expr.Param(2), expr.Param(3), expr.Param(4)
		root2, eps, size := expr.Param(5), expr.Param(6), expr.Param(7)
		m = m.Add(g.Sub(m).Mul(take1))
		v = v.Mul(beta2).Add(g.Mul(g).Mul(take2))
		outs, by := []*expr.Expr{nil, m, v}, v
		if f[3] {
			by = expr.X(4).Max(v)
			outs = append(outs, by)
		}
		outs[0] = p.Sub(size.Mul(m.Div(by.Sqrt().Div(root2).Add(eps))))
		return outs
	},
	scalars: func(c *AdamConfig, lr, t float64, _ *state, _ bool) ([]float64, []scalar) {
		c1, c2 := 1-exact.Pow(c.Beta1, t), 1-exact.Pow(c.Beta2, t)
		return []float64{1 - lr*c.WeightDecay, c.WeightDecay, 1 - c.Beta1, c.Beta2, 1 - c.Beta2, math.Sqrt(c2), c.Eps, lr / c1}, nil
	},
}
