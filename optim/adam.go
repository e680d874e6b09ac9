package optim

import (
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// AdamConfig sets Adam and AdamW. Zero values of Beta1, Beta2 and Eps take torch's defaults 0.9, 0.999 and 1e-8.
type AdamConfig struct {
	LR           float64 // no default: with 0 a step changes nothing
	Beta1, Beta2 float64
	Eps          float64
	WeightDecay  float64 // Adam: an L2 penalty, added to the gradient; AdamW: decoupled, p ← p·(1 - lr·λ)
}

// Adam is Adam or AdamW as in torch.optim (D. Kingma, J. Ba, arXiv:1412.6980; I. Loshchilov, F. Hutter, arXiv:1711.05101):
// m ← m + (g-m)·(1-β₁); v ← β₂·v + (1-β₂)·g²; p ← p - lr/(1-β₁ᵗ) · m / (√v/√(1-β₂ᵗ) + ε).
type Adam struct {
	base
	c         AdamConfig
	decoupled bool
	state     map[*tensor.Tensor]*moments
	rule      rule
}

type moments struct {
	m, v *tensor.Tensor
	t    int
}

// NewAdam returns Adam over params.
func NewAdam(params []*tensor.Tensor, c AdamConfig) *Adam { return newAdam("Adam", params, c, false) }

// NewAdamW returns AdamW over params: weight decay is decoupled from the gradient. torch's default decay is 0.01; here it is what
// the configuration says, 0 for none.
func NewAdamW(params []*tensor.Tensor, c AdamConfig) *Adam { return newAdam("AdamW", params, c, true) }

func newAdam(name string, params []*tensor.Tensor, c AdamConfig, decoupled bool) *Adam {
	if c.Beta1 == 0 {
		c.Beta1 = 0.9
	}
	if c.Beta2 == 0 {
		c.Beta2 = 0.999
	}
	if c.Eps == 0 {
		c.Eps = 1e-8
	}
	o := &Adam{base: newBase(name, params, c.LR), c: c, decoupled: decoupled, state: map[*tensor.Tensor]*moments{}}
	if c.Beta1 < 0 || c.Beta1 >= 1 || c.Beta2 < 0 || c.Beta2 >= 1 || c.Eps < 0 || c.WeightDecay < 0 {
		panic(&Error{name, "betas must be in [0, 1), eps and weight decay not negative"})
	}
	p, g, m, v := expr.X(0), expr.X(1), expr.X(2), expr.X(3)
	keep, decay := expr.Param(0), expr.Param(1)
	take1, beta2, take2 := expr.Param(2), expr.Param(3), expr.Param(4)
	root2, eps, size := expr.Param(5), expr.Param(6), expr.Param(7)
	if c.WeightDecay != 0 {
		if decoupled {
			p = p.Mul(keep)
		} else {
			g = g.Add(p.Mul(decay))
		}
	}
	m = m.Add(g.Sub(m).Mul(take1))
	v = v.Mul(beta2).Add(g.Mul(g).Mul(take2))
	p = p.Sub(size.Mul(m.Div(v.Sqrt().Div(root2).Add(eps))))
	o.rule = rule{name: "adam", outs: []*expr.Expr{p, m, v}}
	return o
}

// Step changes every parameter that has a gradient.
func (o *Adam) Step() {
	var gs grouping
	for _, p := range o.params {
		g := p.Grad()
		if g == nil {
			continue
		}
		st := o.state[p]
		if st == nil {
			st = &moments{m: zerosLike(p), v: zerosLike(p)}
			o.state[p] = st
		}
		follow(p, st.m, st.v)
		st.t++
		c1, c2 := 1-math.Pow(o.c.Beta1, float64(st.t)), 1-math.Pow(o.c.Beta2, float64(st.t))
		scalars := []float64{1 - o.lr*o.c.WeightDecay, o.c.WeightDecay, 1 - o.c.Beta1, o.c.Beta2, 1 - o.c.Beta2, math.Sqrt(c2), o.c.Eps, o.lr / c1}
		gs.add(p, scalars, []*tensor.Tensor{p, st.m, st.v}, []*tensor.Tensor{p, g, st.m, st.v})
	}
	o.rule.apply(gs.list)
	o.steps++
}
