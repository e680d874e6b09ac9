package optim

import "github.com/flambeau-go/flambeau/tensor"

// Like returns a new optimizer with opt's rule and options, for other parameters and without state.
// param returns the parameter that replaces p. Like returns nil for [Muon], [Adafactor], [LBFGS],
// and optimizers of other packages. All other optimizers work element by element.
//
// The first step of the new optimizer has the same launches as the first step of opt. So a training
// can be rehearsed on a copy of the model.
func Like(opt Optimizer, param func(p *tensor.Tensor) *tensor.Tensor) Optimizer {
	if o, ok := opt.(interface {
		like(param func(p *tensor.Tensor) *tensor.Tensor) Optimizer
	}); ok {
		return o.like(param)
	}
	return nil
}

func (m *multi[C, P]) like(with func(p *tensor.Tensor) *tensor.Tensor) Optimizer {
	n := &multi[C, P]{base: newBase(m.name, m.schema), rule: m.rule}
	n.splits, n.needs = m.splits, m.needs
	for _, g := range m.groups {
		params := make([]*tensor.Tensor, len(g.Params))
		for i, p := range g.Params {
			params[i] = with(p)
		}
		n.groups = append(n.groups, &Group{Params: params, LR: g.LR, optimizer: g.optimizer, config: g.config.clone()})
	}
	return n
}
