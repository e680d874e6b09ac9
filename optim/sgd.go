package optim

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// SGDConfig configures stochastic gradient descent. A zero field turns off the corresponding part
// of the rule.
type SGDConfig struct {
	LR          float64 // learning rate; required, there is no default
	Momentum    float64
	Dampening   float64
	WeightDecay float64 // L2 penalty, added to the gradient
	Nesterov    bool    // uses Nesterov momentum; requires a nonzero Momentum and no Dampening
	Maximize    bool    // maximise the function instead of minimising it
}

func (c *SGDConfig) options() []option {
	return append([]option{{"momentum", &c.Momentum}, {"dampening", &c.Dampening}, {"weight_decay", &c.WeightDecay},
		{"nesterov", &c.Nesterov}, {"maximize", &c.Maximize}}, ignored("foreach", "differentiable", "fused")...)
}

func (c *SGDConfig) complete() {}

func (c *SGDConfig) check() string {
	if c.Nesterov && (c.Momentum == 0 || c.Dampening != 0) {
		return "Nesterov needs a momentum and no dampening"
	}
	if math.IsNaN(c.Dampening) || math.IsInf(c.Dampening, 0) {
		return fmt.Sprintf("dampening cannot be %v", c.Dampening)
	}
	return firstMessage(checkNotNegative("momentum", c.Momentum), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *SGDConfig) clone() config { d := *c; return &d }

func (c *SGDConfig) rate() float64 { return c.LR }

// SGD is stochastic gradient descent with momentum, as torch.optim.SGD. The rule is
//
//	g ← g + λ·p
//	v ← μ·v + (1-d)·g, or v ← g in the first step
//	p ← p - lr·v, or p ← p - lr·(g + μ·v) with Nesterov
//
// λ is WeightDecay, μ is Momentum, and d is Dampening.
type SGD struct {
	multi[SGDConfig, *SGDConfig]
}

// NewSGD returns SGD over params.
func NewSGD(params []*tensor.Tensor, c SGDConfig) *SGD {
	return NewSGDGroups(With[SGDConfig]{params, c})
}

// NewSGDGroups returns SGD over groups of parameters.
func NewSGDGroups(groups ...With[SGDConfig]) *SGD {
	return &SGD{newMulti[SGDConfig, *SGDConfig]("SGD", sgdRule, (*SGDConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *SGD) AddGroup(params []*tensor.Tensor, c SGDConfig) {
	o.add(With[SGDConfig]{params, c}, (*SGDConfig).rate)
}

var sgdRule = &rule[SGDConfig]{
	name:   "sgd",
	schema: schema{tensors: []string{"momentum_buffer"}, stepless: true, lenient: true},
	uses: func(c *SGDConfig) []int {
		if c.Momentum != 0 {
			return upTo(1)
		}
		return nil
	},
	flags: func(c *SGDConfig) flags { return flags{c.Maximize, c.WeightDecay != 0, c.Momentum != 0, c.Nesterov} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], false, expr.Param(1), nil)
		lr, momentum, take := expr.Param(0), expr.Param(2), expr.Param(3)
		if !f[2] {
			return []*expr.Expr{p.Sub(g.Mul(lr))}
		}
		v := expr.X(2).Mul(momentum).Add(g.Mul(take))
		step := v
		if f[3] {
			step = g.Add(v.Mul(momentum))
		}
		return []*expr.Expr{p.Sub(step.Mul(lr)), v}
	},
	scalars: func(c *SGDConfig, lr, _ float64, _ *state, fresh bool) ([]float64, []scalar) {
		take := 1 - c.Dampening
		if fresh {
			take = 1 // torch initialises the velocity with the gradient
		}
		return []float64{lr, c.WeightDecay, c.Momentum, take}, nil
	},
}
