package optim

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdagradConfig configures Adagrad. A zero Eps means torch's default, 1e-10.
type AdagradConfig struct {
	LR                 float64 // learning rate; required, there is no default
	LRDecay            float64 // the learning rate of step t is LR / (1 + (t-1)·LRDecay)
	Eps                float64
	WeightDecay        float64 // λ of the L2 penalty λ·p, which is added to the gradient
	InitialAccumulator float64 // initial value of the sums of squares
	Maximize           bool    // maximise the function instead of minimising it
}

func (c *AdagradConfig) options() []option {
	return append([]option{{"lr_decay", &c.LRDecay}, {"eps", &c.Eps}, {"weight_decay", &c.WeightDecay},
		{"initial_accumulator_value", &c.InitialAccumulator}, {"maximize", &c.Maximize}},
		ignored("foreach", "differentiable", "fused")...)
}

func (c *AdagradConfig) complete() {
	setDefault(&c.Eps, 1e-10)
}

func (c *AdagradConfig) check() string {
	return firstMessage(checkNotNegative("the decay of the learning rate", c.LRDecay), checkNotNegative("eps", c.Eps), checkNotNegative("weight decay", c.WeightDecay),
		checkNotNegative("the initial value of the accumulator", c.InitialAccumulator))
}

func (c *AdagradConfig) clone() config { d := *c; return &d }

func (c *AdagradConfig) rate() float64 { return c.LR }

// Adagrad divides the gradient by the root of the sum of all squared gradients so far, as
// torch.optim.Adagrad (J. Duchi et al., "Adaptive Subgradient Methods for Online Learning and
// Stochastic Optimization", JMLR 2011). In step t the rule is
//
//	s ← s + g²
//	p ← p - lr/(1+(t-1)·LRDecay) · g/(√s + ε)
//
// As in torch, the constructor allocates the sums s.
type Adagrad struct {
	multi[AdagradConfig, *AdagradConfig]
}

// NewAdagrad returns Adagrad over params.
func NewAdagrad(params []*tensor.Tensor, c AdagradConfig) *Adagrad {
	return NewAdagradGroups(With[AdagradConfig]{params, c})
}

// NewAdagradGroups returns Adagrad over groups of parameters.
func NewAdagradGroups(groups ...With[AdagradConfig]) *Adagrad {
	return &Adagrad{newMulti[AdagradConfig, *AdagradConfig]("Adagrad", adagradRule, (*AdagradConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *Adagrad) AddGroup(params []*tensor.Tensor, c AdagradConfig) {
	o.add(With[AdagradConfig]{params, c}, (*AdagradConfig).rate)
}

var adagradRule = &rule[AdagradConfig]{
	name:   "adagrad",
	schema: schema{tensors: []string{"sum"}},
	eager:  true,
	uses:   func(*AdagradConfig) []int { return upTo(1) },
	start:  func(c *AdagradConfig, _ float64, _ int) float64 { return c.InitialAccumulator },
	flags:  func(c *AdagradConfig) flags { return flags{c.Maximize, c.WeightDecay != 0} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], false, expr.Param(1), nil)
		rate, eps := expr.Param(0), expr.Param(2)
		sum := expr.X(2).Add(g.Mul(g))
		return []*expr.Expr{p.Sub(rate.Mul(g.Div(sum.Sqrt().Add(eps)))), sum}
	},
	scalars: func(c *AdagradConfig, lr, t float64, _ *state, _ bool) ([]float64, []scalar) {
		return []float64{lr / (1 + (t-1)*c.LRDecay), c.WeightDecay, c.Eps}, nil
	},
}
