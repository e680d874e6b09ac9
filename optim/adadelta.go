package optim

import (
	"fmt"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdadeltaConfig configures Adadelta. Zero values of Rho and Eps mean torch's defaults, 0.9 and
// 1e-6.
type AdadeltaConfig struct {
	LR          float64 // learning rate, 1 in torch; required, there is no default
	Rho         float64 // weight of the old mean of squares, in [0, 1]
	Eps         float64
	WeightDecay float64 // λ of the L2 penalty λ·p, which is added to the gradient
	Maximize    bool    // maximise the function instead of minimising it
}

func (c *AdadeltaConfig) options() []option {
	return append([]option{{"rho", &c.Rho}, {"eps", &c.Eps}, {"weight_decay", &c.WeightDecay}, {"maximize", &c.Maximize}},
		ignored("foreach", "capturable", "differentiable")...)
}

func (c *AdadeltaConfig) complete() {
	setDefault(&c.Rho, 0.9)
	setDefault(&c.Eps, 1e-6)
}

func (c *AdadeltaConfig) check() string {
	// A Rho above 1 could make the mean of squares negative, and its square root NaN.
	if !(c.Rho >= 0 && c.Rho <= 1) {
		return fmt.Sprintf("rho must be in [0, 1], it is %v", c.Rho)
	}
	return firstMessage(checkNotNegative("eps", c.Eps), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *AdadeltaConfig) clone() config { d := *c; return &d }

func (c *AdadeltaConfig) rate() float64 { return c.LR }

// Adadelta is torch.optim.Adadelta (M. Zeiler, arXiv:1212.5701). It scales the gradient by the
// running root mean square of the steps, divided by that of the gradients:
//
//	v ← ρ·v + (1-ρ)·g²
//	Δ = √(u+ε)/√(v+ε)·g
//	u ← ρ·u + (1-ρ)·Δ²
//	p ← p - lr·Δ
type Adadelta struct {
	multi[AdadeltaConfig, *AdadeltaConfig]
}

// NewAdadelta returns Adadelta over params.
func NewAdadelta(params []*tensor.Tensor, c AdadeltaConfig) *Adadelta {
	return NewAdadeltaGroups(With[AdadeltaConfig]{params, c})
}

// NewAdadeltaGroups returns Adadelta over groups of parameters.
func NewAdadeltaGroups(groups ...With[AdadeltaConfig]) *Adadelta {
	return &Adadelta{newMulti[AdadeltaConfig, *AdadeltaConfig]("Adadelta", adadeltaRule, (*AdadeltaConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *Adadelta) AddGroup(params []*tensor.Tensor, c AdadeltaConfig) {
	o.add(With[AdadeltaConfig]{params, c}, (*AdadeltaConfig).rate)
}

var adadeltaRule = &rule[AdadeltaConfig]{
	name:   "adadelta",
	schema: schema{tensors: []string{"square_avg", "acc_delta"}},
	uses:   func(*AdadeltaConfig) []int { return upTo(2) },
	flags:  func(c *AdadeltaConfig) flags { return flags{c.Maximize, c.WeightDecay != 0} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], false, expr.Param(1), nil)
		lr, rho, take, eps := expr.Param(0), expr.Param(2), expr.Param(3), expr.Param(4)
		v, u := expr.X(2).Mul(rho).Add(g.Mul(g).Mul(take)), expr.X(3)
		delta := u.Add(eps).Sqrt().Div(v.Add(eps).Sqrt()).Mul(g)
		return []*expr.Expr{p.Sub(delta.Mul(lr)), v, u.Mul(rho).Add(delta.Mul(delta).Mul(take))}
	},
	scalars: func(c *AdadeltaConfig, lr, _ float64, _ *state, _ bool) ([]float64, []scalar) {
		return []float64{lr, c.WeightDecay, c.Rho, 1 - c.Rho, c.Eps}, nil
	},
}
