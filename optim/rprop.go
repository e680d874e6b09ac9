package optim

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// RpropConfig configures resilient backpropagation. Zero values mean torch's defaults: 0.5 and 1.2
// for the factors, 1e-6 and 50 for the bounds of a step size.
type RpropConfig struct {
	// LR is the initial step size of every element. It is required, there is no default.
	LR                float64
	EtaMinus, EtaPlus float64 // factors by which a step size shrinks and grows
	MinStep, MaxStep  float64 // bounds of a step size
	Maximize          bool    // maximise the function instead of minimising it
}

func (c *RpropConfig) options() []option {
	return append([]option{{"etas", []*float64{&c.EtaMinus, &c.EtaPlus}}, {"step_sizes", []*float64{&c.MinStep, &c.MaxStep}}, {"maximize", &c.Maximize}},
		ignored("foreach", "differentiable", "capturable")...)
}

func (c *RpropConfig) complete() {
	setDefault(&c.EtaMinus, 0.5)
	setDefault(&c.EtaPlus, 1.2)
	setDefault(&c.MinStep, 1e-6)
	setDefault(&c.MaxStep, 50)
}

func (c *RpropConfig) check() string {
	return firstMessage(checkEtas(c.EtaMinus, c.EtaPlus), checkNotNegative("the least step", c.MinStep), checkNotNegative("the largest step", c.MaxStep))
}

func (c *RpropConfig) clone() config { d := *c; return &d }

func (c *RpropConfig) rate() float64 { return c.LR }

// Rprop uses only the sign of the gradient, and keeps a step size for each element. The step size
// grows while the sign stays the same and shrinks when the sign changes. In the step in which the
// sign changes, the element is not updated. Rprop is torch.optim.Rprop (M. Riedmiller, H. Braun, "A
// Direct Adaptive Method for Faster Backpropagation Learning: The RPROP Algorithm", 1993).
type Rprop struct {
	multi[RpropConfig, *RpropConfig]
}

// NewRprop returns Rprop over params.
func NewRprop(params []*tensor.Tensor, c RpropConfig) *Rprop {
	return NewRpropGroups(With[RpropConfig]{params, c})
}

// NewRpropGroups returns Rprop over groups of parameters.
func NewRpropGroups(groups ...With[RpropConfig]) *Rprop {
	return &Rprop{newMulti[RpropConfig, *RpropConfig]("Rprop", rpropRule, (*RpropConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *Rprop) AddGroup(params []*tensor.Tensor, c RpropConfig) {
	o.add(With[RpropConfig]{params, c}, (*RpropConfig).rate)
}

var rpropRule = &rule[RpropConfig]{
	name:   "rprop",
	schema: schema{tensors: []string{"prev", "step_size"}},
	uses:   func(*RpropConfig) []int { return upTo(2) },
	start:  func(_ *RpropConfig, lr float64, i int) float64 { return []float64{0, lr}[i] },
	flags:  func(c *RpropConfig) flags { return flags{c.Maximize} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], false, false, nil, nil)
		minus, plus, least, largest := expr.Param(0), expr.Param(1), expr.Param(2), expr.Param(3)
		zero := expr.C(0)
		turn := g.Mul(expr.X(2))
		factor := turn.Gt(zero).Select(plus, turn.Lt(zero).Select(minus, expr.C(1)))
		size := expr.X(3).Mul(factor).Max(least).Min(largest)
		g = turn.Lt(zero).Select(zero, g)
		return []*expr.Expr{p.Sub(sign(g).Mul(size)), g, size}
	},
	scalars: func(c *RpropConfig, _, _ float64, _ *state, _ bool) ([]float64, []scalar) {
		return []float64{c.EtaMinus, c.EtaPlus, c.MinStep, c.MaxStep}, nil
	},
}

// sign returns -1, 0 or 1. As in torch it is 0 for NaN, so an element whose gradient is NaN does
// not change.
func sign(x *expr.Expr) *expr.Expr {
	zero := expr.C(0)
	return x.Gt(zero).Select(expr.C(1), x.Lt(zero).Select(expr.C(-1), zero))
}

func checkEtas(minus, plus float64) string {
	if !(0 < minus && minus < 1 && plus > 1) || math.IsInf(plus, 1) {
		return fmt.Sprintf("the factors must be 0 < η⁻ < 1 < η⁺, they are %v and %v", minus, plus)
	}
	return ""
}
