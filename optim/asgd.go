package optim

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/optim/internal/exact"
	"github.com/flambeau-go/flambeau/tensor"
)

// ASGDConfig configures averaged stochastic gradient descent. Zero values of Lambd, Alpha and T0
// mean torch's defaults, 1e-4, 0.75 and 1e6.
type ASGDConfig struct {
	LR          float64 // learning rate; required, there is no default
	Lambd       float64 // λ, the decay
	Alpha       float64 // exponent α in the decay of the learning rate
	T0          float64 // step t₀ at which averaging begins
	WeightDecay float64 // λ of the L2 penalty λ·p, which is added to the gradient
	Maximize    bool    // maximise the function instead of minimising it
}

func (c *ASGDConfig) options() []option {
	return append([]option{{"lambd", &c.Lambd}, {"alpha", &c.Alpha}, {"t0", &c.T0}, {"weight_decay", &c.WeightDecay}, {"maximize", &c.Maximize}},
		ignored("foreach", "differentiable", "capturable")...)
}

func (c *ASGDConfig) complete() {
	setDefault(&c.Lambd, 1e-4)
	setDefault(&c.Alpha, 0.75)
	setDefault(&c.T0, 1e6)
}

func (c *ASGDConfig) check() string {
	return firstMessage(checkNotNegative("lambd", c.Lambd), checkNotNegative("alpha", c.Alpha), checkNotNegative("t0", c.T0), checkNotNegative("weight decay", c.WeightDecay))
}

func (c *ASGDConfig) clone() config { d := *c; return &d }

func (c *ASGDConfig) rate() float64 { return c.LR }

// ASGD is averaged stochastic gradient descent, as torch.optim.ASGD (B. Polyak, A. Juditsky,
// "Acceleration of Stochastic Approximation by Averaging", 1992). Step t changes the parameter p
// and its average a, which the state dict calls "ax":
//
//	p ← p·(1-λ·η) - η·g
//	a ← a + (p-a)·μ
//
// The next step has η = lr/(1 + λ·lr·t)^α and μ = 1/max(1, t-t₀). As in torch, η and μ are stored
// in float32.
type ASGD struct {
	multi[ASGDConfig, *ASGDConfig]
}

// NewASGD returns ASGD over params.
func NewASGD(params []*tensor.Tensor, c ASGDConfig) *ASGD {
	return NewASGDGroups(With[ASGDConfig]{params, c})
}

// NewASGDGroups returns ASGD over groups of parameters.
func NewASGDGroups(groups ...With[ASGDConfig]) *ASGD {
	return &ASGD{newMulti[ASGDConfig, *ASGDConfig]("ASGD", asgdRule, (*ASGDConfig).rate, groups)}
}

// AddGroup adds parameters with a configuration of their own.
func (o *ASGD) AddGroup(params []*tensor.Tensor, c ASGDConfig) {
	o.add(With[ASGDConfig]{params, c}, (*ASGDConfig).rate)
}

var asgdRule = &rule[ASGDConfig]{
	name:   "asgd",
	schema: schema{tensors: []string{"ax"}, scalars: []string{"eta", "mu"}},
	uses:   func(*ASGDConfig) []int { return upTo(1) },
	begin:  func(_ *ASGDConfig, lr float64, i int) float64 { return []float64{lr, 1}[i] },
	flags:  func(c *ASGDConfig) flags { return flags{c.Maximize, c.WeightDecay != 0} },
	program: func(f flags) []*expr.Expr {
		p, g := decayed(f[0], f[1], false, expr.Param(1), nil)
		keep, eta, mu, copied := expr.Param(0), expr.Param(2), expr.Param(3), expr.Param(4)
		p = p.Mul(keep).Sub(g.Mul(eta))
		a := expr.X(2)
		return []*expr.Expr{p, copied.Gt(expr.C(0)).Select(p, a.Add(p.Sub(a).Mul(mu)))}
	},
	scalars: func(c *ASGDConfig, lr, t float64, st *state, _ bool) ([]float64, []scalar) {
		eta, mu := st.scalars[0], st.scalars[1]
		copied := 0.0
		if mu.v == 1 {
			copied = 1
		}
		params := []float64{1 - c.Lambd*eta.v, c.WeightDecay, eta.v, mu.v, copied}
		eta.v = float64(float32(lr / exact.Pow(1+c.Lambd*lr*t, c.Alpha)))
		mu.v = float64(float32(1 / max(1, t-c.T0)))
		return params, []scalar{eta, mu}
	},
}
