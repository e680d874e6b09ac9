package optim

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// SGDConfig sets stochastic gradient descent. The zero value of a field leaves that part out.
type SGDConfig struct {
	LR          float64 // no default: with 0 a step changes nothing
	Momentum    float64
	Dampening   float64
	WeightDecay float64 // L2 penalty, added to the gradient
	Nesterov    bool    // needs Momentum and no Dampening
}

// SGD is stochastic gradient descent with momentum, as torch.optim.SGD:
// g ← g + λ·p; v ← μ·v + (1-d)·g (at first v ← g); p ← p - lr·v, or with Nesterov p - lr·(g + μ·v).
type SGD struct {
	base
	c        SGDConfig
	velocity map[*tensor.Tensor]*tensor.Tensor
	rule     rule
}

// NewSGD returns the optimizer of params.
func NewSGD(params []*tensor.Tensor, c SGDConfig) *SGD {
	o := &SGD{base: newBase("SGD", params, c.LR), c: c, velocity: map[*tensor.Tensor]*tensor.Tensor{}}
	if c.Momentum < 0 || c.WeightDecay < 0 {
		panic(&Error{"SGD", "momentum and weight decay cannot be negative"})
	}
	if c.Nesterov && (c.Momentum == 0 || c.Dampening != 0) {
		panic(&Error{"SGD", "Nesterov needs a momentum and no dampening"})
	}
	p, g, v := expr.X(0), expr.X(1), expr.X(2)
	lr, decay, momentum, take := expr.Param(0), expr.Param(1), expr.Param(2), expr.Param(3)
	if c.WeightDecay != 0 {
		g = g.Add(p.Mul(decay))
	}
	o.rule.name = "sgd"
	if c.Momentum == 0 {
		o.rule.outs = []*expr.Expr{p.Sub(g.Mul(lr))}
		return o
	}
	v = v.Mul(momentum).Add(g.Mul(take))
	step := v
	if c.Nesterov {
		step = g.Add(v.Mul(momentum))
	}
	o.rule.outs = []*expr.Expr{p.Sub(step.Mul(lr)), v}
	return o
}

// Step changes every parameter that has a gradient.
func (o *SGD) Step() {
	var gs grouping
	for _, p := range o.params {
		g := p.Grad()
		if g == nil {
			continue
		}
		if o.c.Momentum == 0 {
			gs.add(p, []float64{o.lr, o.c.WeightDecay}, []*tensor.Tensor{p}, []*tensor.Tensor{p, g})
			continue
		}
		take := 1 - o.c.Dampening
		v := o.velocity[p]
		if v == nil {
			v = zerosLike(p)
			o.velocity[p] = v
			take = 1 // torch starts the velocity at the gradient itself
		}
		follow(p, v)
		gs.add(p, []float64{o.lr, o.c.WeightDecay, o.c.Momentum, take}, []*tensor.Tensor{p, v}, []*tensor.Tensor{p, g, v})
	}
	o.rule.apply(gs.list)
	o.steps++
}
