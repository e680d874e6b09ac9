package optim

import (
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// Several steps of one optimizer in a capture, and parameters that do not take part in all.

// A place is which step of a parameter it is in a capture.
type place struct {
	earlier int       // steps of it before
	from    *replayed // the last of them
	at      int       // its index there
}

// recorded is what was captured of an optimizer's steps in a graph so far.
type recorded struct {
	graph  *tensor.Graph
	steps  int
	places map[*tensor.Tensor]place // of the next step
	params []*tensor.Tensor         // of the last step
	unless bool                     // the last step may be left out
}

// within returns what was recorded in the capture so far.
func (b *base) within(g *tensor.Graph) *recorded {
	if b.recorded == nil || b.recorded.graph != g {
		r := &recorded{graph: g, places: map[*tensor.Tensor]place{}}
		b.recorded = r
		g.Ended(func(bool) error {
			if b.recorded == r {
				b.recorded = nil
			}
			return nil
		})
	}
	return b.recorded
}

// add takes a step in, and returns its parameters.
func (r *recorded) add(list []*replayed) (params []*tensor.Tensor) {
	r.steps++
	for _, l := range list {
		for k, c := range l.of {
			r.places[c.p] = place{r.places[c.p].earlier + 1, l, k}
			params = append(params, c.p)
		}
	}
	return params
}

// together refuses steps of one capture whose scalars nobody can know when a replay is queued, as it depends on whether one before is left out.
func (m *multi[C, P]) together(r *recorded, params []*tensor.Tensor, unless bool) {
	if r.steps > 1 && (unless || r.unless) {
		why := ""
		switch {
		case unless != r.unless:
			why = "of the steps in the capture some may be left out and others not"
		case m.rule.begin != nil:
			why = "the numbers that a step may be left out of go on from step to step, and it is the second one in the capture"
		case !slices.Equal(r.params, params):
			why = "the steps in the capture, which may be left out, are of different parameters"
		}
		if why != "" {
			e := tensor.NewError(m.name, tensor.ErrCapture, why)
			e.Hint = "capture one step, and replay it for each"
			panic(e)
		}
	}
	r.params, r.unless = params, unless
}

// stateAt returns the state of a parameter before the step that a replay queues. Where steps may be left out it is that before the replay: the rows of the
// scalars are for the rest.
func (l *replayed) stateAt(k int, unless bool) *state {
	st, at := l.of[k].st, l.nth[k]
	if at.earlier == 0 || unless {
		return st
	}
	now := *st
	now.step, now.unused = st.step+float64(at.earlier), false
	if next := at.from.next[at.at]; next != nil {
		now.scalars = next
	}
	return &now
}

// alike reports whether the scalars of the steps of both states are the same.
func (st *state) alike(o *state) bool {
	return st.step == o.step && st.unused == o.unused && slices.Equal(st.scalars, o.scalars)
}

// sameScalars reports whether the steps that a replay may come to have the same scalars for states that are not alike: those of a rule
// which does not count its steps.
func (m *multi[C, P]) sameScalars(l *replayed, a, b *state) bool {
	cfg := (*C)(l.group.config.(P))
	for row := range mostAhead + l.nth[0].earlier + 1 {
		fresh := func(st *state) bool { return st.unused && row == 0 }
		x, _ := m.rule.scalars(cfg, l.group.LR, a.step+1+float64(row), a, fresh(a))
		y, _ := m.rule.scalars(cfg, l.group.LR, b.step+1+float64(row), b, fresh(b))
		if len(x) != len(y) || !equal(x, y) {
			return false
		}
	}
	return true
}
