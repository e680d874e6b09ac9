package optim

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// RMSpropConfig configures RMSprop. Zero values of Alpha and Eps mean torch's defaults, 0.99 and
// 1e-8.
type RMSpropConfig struct {
	LR          float64 // learning rate; required, there is no default
	Alpha       float64 // weight of the old mean in the new mean of squares
	Eps         float64
	WeightDecay float64 // λ of the L2 penalty λ·p, which is added to the gradient
	Momentum    float64
	Centered    bool // divides by the standard deviation of the gradient
	Maximize    bool // maximise the function instead of minimising it
}

func (c *RMSpropConfig) options() []option {
	return append([]option{{"momentum", &c.Momentum}, {"alpha", &c.Alpha}, {"eps", &c.Eps}, {"centered", &c.Centered},
		{"weight_decay", &c.WeightDecay}, {"maximize", &c.Maximize}},
		ignored("foreach", "capturable", "differentiable")...)
}

func (c *RMSpropConfig) complete() {
	setDefault(&c.Alpha, 0.99)
	setDefault(&c.Eps, 1e-8)
}

func (c *RMSpropConfig) check() string {
	return firstMessage(checkNotNegative("alpha", c.Alpha), checkNotNegative("eps", c.Eps), checkNotNegative("weight decay", c.WeightDecay), checkNotNegative("momentum", c.Momentum))
}

func (c *RMSpropConfig) clone() config { d := *c; return &d }

func (c *RMSpropConfig) rate() float64 { return c.LR }

// RMSprop divides the gradient by its running root mean square, as torch.optim.RMSprop (G. Hinton,
// "Neural Networks for Machine Learning", lecture 6). The variant Centered is from A. Graves,
// arXiv:1308.0850. The rule is
//
//	v ← α·v + (1-α)·g²
//	d = √v + ε, or √(v - ḡ²) + ε with Centered, where ḡ is the running mean of the gradient
//	p ← p - lr·g/d, or b ← μ·b + g/d and p ← p - lr·b with Momentum
type RMSprop struct {
	multi[RMSpropConfig, *RMSpropConfig]
}

// NewRMSprop returns RMSprop over params.
func NewRMSprop(params []*tensor.Tensor, c RMSpropConfig) *RMSprop {
	return NewRMSpropGroups(With[RMSpropConfig]{params, c})
}

// NewRMSpropGroups returns RMSprop over groups of parameters.
func NewRMSpropGroups(groups ...With[RMSpropConfig]) *RMSprop {
	return &RMSprop{newMulti[RMSpropConfig, *RMSpropConfig]("RMSprop", rmspropRule, (*RMSpropConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *RMSprop) AddGroup(params []*tensor.Tensor, c RMSpropConfig) {
	o.add(With[RMSpropConfig]{params, c}, (*RMSpropConfig).rate)
}

var rmspropRule = &rule[RMSpropConfig]{
	name:   "rmsprop",
	schema: schema{tensors: []string{"square_avg", "momentum_buffer", "grad_avg"}},
	uses: func(c *RMSpropConfig) []int {
		list := []int{0}
		if c.Momentum > 0 {
			list = append(list, 1)
		}
		if c.Centered {
			list = append(list, 2)
		}
		return list
	},
	flags: func(c *RMSpropConfig) flags { return flags{c.Maximize, c.WeightDecay != 0, c.Momentum > 0, c.Centered} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], false, expr.Param(1), nil)
		lr, alpha, take, eps, momentum := expr.Param(0), expr.Param(2), expr.Param(3), expr.Param(4), expr.Param(5)
		v := expr.X(2).Mul(alpha).Add(g.Mul(g).Mul(take))
		outs, square := []*expr.Expr{nil, v}, v
		var mean *expr.Expr
		if f[3] {
			at := 3
			if f[2] {
				at = 4
			}
			mean = expr.X(at)
			mean = mean.Add(g.Sub(mean).Mul(take))
			square = v.Sub(mean.Mul(mean))
		}
		step := g.Div(square.Sqrt().Add(eps))
		if f[2] {
			step = expr.X(3).Mul(momentum).Add(step)
			outs = append(outs, step)
		}
		if f[3] {
			outs = append(outs, mean)
		}
		outs[0] = p.Sub(step.Mul(lr))
		return outs
	},
	scalars: func(c *RMSpropConfig, lr, _ float64, _ *state, _ bool) ([]float64, []scalar) {
		return []float64{lr, c.WeightDecay, c.Alpha, 1 - c.Alpha, c.Eps, c.Momentum}, nil
	},
}
