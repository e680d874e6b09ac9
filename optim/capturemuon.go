package optim

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// feed has each replay bring the scalars of a launch to the device.
func (l *launch) feed(g *tensor.Graph, n int, scalars func() []float64) {
	l.slots = g.Feed(dtype.I64, max(1, n), func(to []byte) {
		clear(to)
		l.encode(scalars(), to)
	})
}

// capture records a step. Rates, momentum and weight decay are those that hold when a replay is queued; what chooses kernels stays as it is, and a
// replay finds if it was changed.
func (o *Muon) capture(g *tensor.Graph, unless *tensor.Tensor) {
	g.Exclude(o.turn)
	g.Check(func() error {
		return tensor.Try(func() {
			for len(o.late) > 0 && (len(o.late) > mostAhead || o.late[0].found.Done()) {
				o.settleOne()
			}
		})
	})
	for _, group := range o.groups {
		o.captureGroup(g, group, unless)
	}
	if unless == nil {
		g.Then(func() { o.steps++ })
		return
	}
	o.learn(g, unless, nil, func() func() { return func() { o.steps++ } })
}

func (o *Muon) captureGroup(g *tensor.Graph, group *Group, unless *tensor.Tensor) {
	c := group.config.(*MuonConfig)
	var turns []*turn
	for _, p := range group.Params {
		if d := p.Grad(); d != nil {
			dense(o.name, []*tensor.Tensor{p, d})
			turns = append(turns, &turn{change: change{p: p, st: o.state[p]}, c: c, lr: group.LR})
		}
	}
	if len(turns) == 0 {
		return
	}
	g.Scope().Do(func(s *tensor.Scope) {
		momenta := o.gather(s, turns, func(l *launch, t *turn) { l.feed(g, 2, t.momenta) })
		for _, t := range turns {
			g.Adopt(t.st.tensors...)
			o.state[t.p] = t.st
		}
		for _, l := range momenta {
			l.run("muon")
		}
		var last []*launch
		for _, t := range turns {
			u := t.orthogonal(s)
			ins := []*tensor.Tensor{t.p, u, t.next}
			if unless != nil {
				ins = append(ins, t.st.tensors[0])
			}
			n := len(last)
			if last = join(last, t.p, flags{}, t.rates(t.lr), []*tensor.Tensor{t.p, t.st.tensors[0]}, ins); len(last) == n {
				continue
			}
			l := last[n]
			l.program = muonProgram(l.t, unless != nil)
			l.feed(g, 3, func() []float64 { return t.rates(group.LR) })
			if unless != nil {
				tensor.Update("unless", differs(unless.Type()), [][]*tensor.Tensor{{l.slots.Narrow(0, 2, 1)}}, [][]*tensor.Tensor{{unless.Detach().Reshape(1)}}, l.slots, nil)
			}
		}
		for _, l := range last {
			l.run("muon")
		}
	}, tensor.NoGrad())
	was := *c
	held := make([]*tensor.Tensor, len(turns))
	for i, t := range turns {
		held[i] = t.st.tensors[0]
	}
	g.Check(func() error {
		c := group.config.(*MuonConfig)
		now := *c
		now.Momentum, now.WeightDecay, now.LR = was.Momentum, was.WeightDecay, was.LR
		if now != was {
			return &Error{o.name, "an option that chooses how a step is computed was changed since the step was captured; capture it again"}
		}
		for i, t := range turns {
			if o.state[t.p] != t.st || !slices.Equal(t.st.tensors, held[i:i+1]) {
				return o.replaced(t.p)
			}
			t.c = c
		}
		return nil
	})
}
