package optim

import "github.com/flambeau-go/flambeau/tensor"

// Like returns a new optimizer with opt's rule and options, for other parameters and without state.
// param returns the parameter that replaces p. Like returns nil for [Muon], [Adafactor] and
// [LBFGS], which do not work element by element, and for optimizers of other packages.
//
// The first step of the new optimizer has the same launches as the first step of opt, so that
// train.Rehearse can use a copy of the model.
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
