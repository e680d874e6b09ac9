package optim

import "github.com/flambeau-go/flambeau/tensor"

// Like returns a new optimizer of opt's kind and options for other parameters, without any state:
// with gives the one in the place of each of opt's. It is nil for a kind that is not made of a rule
// for each element ([Muon], [Adafactor], [LBFGS], [SparseAdam], and those of others).
//
// A step of it launches what the first step of opt would launch, so that a training can be
// rehearsed on a copy of the model.
func Like(opt Optimizer, with func(p *tensor.Tensor) *tensor.Tensor) Optimizer {
	if o, ok := opt.(interface {
		like(with func(p *tensor.Tensor) *tensor.Tensor) Optimizer
	}); ok {
		return o.like(with)
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
