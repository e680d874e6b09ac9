package optim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// capturing returns the graph of the capture in which the gradients were computed, or nil if they
// were not captured.
func (b *base) capturing() *tensor.Graph {
	for _, g := range b.groups {
		if c := tensor.CapturingGrads(g.Params...); c != nil {
			b.shard.uncapturable(b.name)
			return c
		}
	}
	return nil
}

// A replayed is a launch of a captured step. Its parameters are in one group, and their scalars are
// equal in each step.
type replayed struct {
	launch
	group   *Group
	changes []change
	places  []place
	// next has the scalars of each parameter's state after the replay that is being queued.
	next [][]scalar
}

// joins reports whether launch l can also update parameter p with state st.
func (l *replayed) joins(g *Group, p *tensor.Tensor, f flags, st *state, operands int, at place) bool {
	return l.group == g && l.dev == p.Device() && l.t == p.Type() && l.flags == f && len(l.ins[0]) == operands &&
		l.changes[0].st.alike(st) && l.places[0].earlier == at.earlier
}

// capture records a step. It allocates missing state once, at capture, on the device's ordinary
// stream. The capture itself does not count as a step, but each replay does. For a replay, the
// scalars are computed from the learning rates and options that are set when the host queues it.
//
// If the tensor unless is not nil, the device may skip steps. When the host queues a replay, it
// does not know yet which of the latest replays were skipped. It therefore provides the scalars for
// each possible number of steps, from which the device chooses by its own count ([aheadOf]).
func (m *multi[C, P]) capture(g *tensor.Graph, unless *tensor.Tensor) {
	var list []*replayed
	before := m.record(g)
	for _, group := range m.groups {
		cfg := (*C)(group.config.(P))
		uses, fl := m.rule.uses(cfg), m.rule.flags(cfg)
		for _, p := range group.Params {
			grad := p.Grad()
			if grad == nil {
				continue
			}
			c := change{p: p, x: p, st: m.stateOf(p, cfg, group.LR)}
			m.prepare(&c, cfg, group.LR, uses)
			c.st.unused = c.st.unused || c.fresh != nil
			g.Adopt(c.st.tensors...)
			m.state[p] = c.st
			outs, ins := []*tensor.Tensor{p}, []*tensor.Tensor{p, grad}
			for _, i := range uses {
				outs, ins = append(outs, c.st.tensors[i]), append(ins, c.st.tensors[i])
			}
			dense(m.name, outs, ins)
			var l *replayed
			for _, o := range list {
				if o.joins(group, p, fl, c.st, len(ins), before.places[p]) {
					l = o
				}
			}
			if l == nil {
				l = &replayed{launch: launch{dev: p.Device(), t: p.Type(), flags: fl}, group: group}
				list = append(list, l)
			}
			l.changes, l.places = append(l.changes, c), append(l.places, before.places[p])
			l.outs, l.ins = append(l.outs, outs), append(l.ins, ins)
		}
	}
	if len(list) == 0 {
		return
	}
	params := before.add(list)
	m.checkSteps(before, params, unless != nil)
	g.Exclude(m.turn)
	g.Check(func() error { return tensor.Try(func() { m.catchUp(unless != nil, params) }) })
	for _, l := range list {
		held := make([][]*tensor.Tensor, len(l.changes))
		for k, c := range l.changes {
			held[k] = slices.Clone(c.st.tensors)
		}
		g.Check(func() error {
			if err := m.unchanged(l, held); err != nil {
				return err
			}
			for _, c := range l.changes {
				m.restart((*C)(l.group.config.(P)), l.group.LR, c.st)
			}
			return nil
		})
	}
	rows := 1
	var ahead *aheadOf
	if unless != nil {
		rows, ahead = mostAhead+before.steps, m.aheadOn(g, list[0].dev)
	}
	for _, l := range list {
		now, _ := m.rule.scalars((*C)(l.group.config.(P)), l.group.LR, l.changes[0].st.step+1, l.changes[0].st, l.changes[0].st.unused)
		l.program = lowered(unlessName(unless, m.rule.name), l.flags, l.t, len(l.ins[0]), guarded(unless, m.rule.program, len(now)))
		width := max(1, len(placeFor(unless, now)))
		table := g.FeedOn(l.dev, dtype.I64, rows*width, func(to []byte) {
			clear(to)
			l.next = l.next[:0]
			for k := range l.changes {
				st := l.stateAt(k, unless != nil)
				_, next := m.rule.scalars((*C)(l.group.config.(P)), l.group.LR, st.step+1, st, st.unused)
				l.next = append(l.next, next)
			}
			st := l.stateAt(0, unless != nil)
			// Row k has the scalars for the case that the device has made k more steps than the
			// host knows of.
			for row := range rows {
				scalars, _ := m.rule.scalars((*C)(l.group.config.(P)), l.group.LR, st.step+1+float64(row), st, st.unused && row == 0)
				l.encode(scalars, to[8*width*row:])
			}
		})
		l.slots = table
		if unless != nil {
			l.slots = ahead.choose(g, table.Reshape(rows, width))
			tensor.Update("unless", differs(unless.Type()), [][]*tensor.Tensor{{l.slots.Narrow(0, width-1, 1)}}, [][]*tensor.Tensor{{unless.Detach().Reshape(1)}}, l.slots, nil)
		}
	}
	for _, l := range list {
		tensor.Update(m.rule.name, l.program, l.outs, l.ins, l.slots, nil)
	}
	count := func() {
		for _, l := range list {
			l.count()
		}
		m.steps++
	}
	if unless == nil {
		g.Then(count)
	} else {
		ahead.count(g, unless)
		m.learn(g, unless, params, func() func() {
			var next [][][]scalar
			for _, l := range list {
				next = append(next, slices.Clone(l.next))
			}
			return func() {
				for i, l := range list {
					l.next = next[i]
				}
				count()
			}
		})
	}
}

// count increases the step counts of the launch's parameters by one.
func (l *replayed) count() {
	for k, c := range l.changes {
		c.st.step++
		c.st.unused = false
		if l.next[k] != nil {
			c.st.scalars = l.next[k]
		}
	}
}

// dense raises an error for tensors that are not contiguous. Only packed launches, which need
// contiguous tensors, read their scalars from the device. Any other launch would use the scalars of
// the capture in every replay.
func dense(name string, lists ...[]*tensor.Tensor) {
	for _, list := range lists {
		for _, t := range list {
			if !t.IsContiguous() {
				e := tensor.NewError(name, tensor.ErrCapture, "a parameter, its gradient or its state is not contiguous, so that its step gets scalars from the host", t)
				e.Hint = "make the parameter contiguous before the capture, or its gradient by p.SetGrad(p.Grad().Contiguous()) in it"
				panic(e)
			}
		}
	}
}

// unchanged returns an error if the optimizer no longer uses the memory or the program of the
// captured launch l.
func (m *multi[C, P]) unchanged(l *replayed, held [][]*tensor.Tensor) error {
	if f := m.rule.flags((*C)(l.group.config.(P))); f != l.flags {
		return &Error{m.name, "an option that chooses how a step is computed was changed since the step was captured; capture it again"}
	}
	for k, c := range l.changes {
		if m.state[c.p] != c.st || !slices.Equal(c.st.tensors, held[k]) {
			return m.replaced(c.p)
		}
		if first := l.changes[0]; !first.st.alike(c.st) && !m.sameScalars(l, first.st, c.st) {
			return &Error{m.name, fmt.Sprintf("parameters of shapes %v and %v were changed by different numbers of steps since the step was captured, and it has one number for both; capture it again", first.p.Shape(), c.p.Shape())}
		}
	}
	return nil
}

// replaced returns the error of a replay for parameter p, whose state is no longer the captured
// one.
func (b *base) replaced(p *tensor.Tensor) error {
	return &Error{b.name, fmt.Sprintf("the state of a parameter of shape %v was replaced since the step was captured, such as by LoadStateDict; capture it again", p.Shape())}
}

// restart sets st to the initial values for the present options and learning rate, if a capture
// has allocated st and no step has used it.
func (m *multi[C, P]) restart(cfg *C, lr float64, st *state) {
	if !st.unused {
		return
	}
	for i := range st.scalars {
		st.scalars[i] = st.scalars[i].round(m.rule.begin(cfg, lr, i))
	}
	for i, t := range st.tensors {
		if t != nil && m.rule.start != nil {
			tensor.Do(func(s *tensor.Scope) { t.In(s).Fill(m.rule.start(cfg, lr, i)) }, tensor.NoGrad())
		}
	}
}

// encode writes the scalars to a slice of bytes, as the program reads them.
func (l *launch) encode(scalars []float64, to []byte) {
	for i, v := range scalars {
		if i < len(l.program.Params) && l.program.Params[i] != dtype.Invalid {
			binary.NativeEndian.PutUint64(to[8*i:], expr.Encode(l.program.Params[i], v))
		}
	}
}

// constants returns the numbers v as a tensor on dev, in scope s. In a capture, all replays use
// these numbers.
func constants(s *tensor.Scope, dev device.Device, v []int64) *tensor.Tensor {
	g := s.Capture()
	if g == nil {
		return s.On(dev).From(v)
	}
	return g.FeedOn(dev, dtype.I64, len(v), func(to []byte) {
		for i, x := range v {
			binary.NativeEndian.PutUint64(to[8*i:], uint64(x))
		}
	})
}

// A capture may contain several steps of one optimizer, and a parameter may take part in only some
// of them.

// A place is the position of a parameter's next step among the steps that a capture has recorded.
type place struct {
	earlier int       // number of earlier steps of the parameter in this capture
	launch  *replayed // launch of the parameter's latest step in this capture, or nil
	index   int       // index of the parameter in launch
}

// recorded describes the steps of an optimizer that a capture has recorded so far.
type recorded struct {
	graph  *tensor.Graph
	steps  int
	places map[*tensor.Tensor]place // position of the next step, for each parameter
	params []*tensor.Tensor         // parameters of the latest recorded step
	unless bool                     // whether the latest recorded step has a tensor unless, by which the device may skip it
}

// record returns the record of capture g, which is made at the first step.
func (b *base) record(g *tensor.Graph) *recorded {
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

// add records a step with the given launches, and returns the parameters that it updates.
func (r *recorded) add(list []*replayed) (params []*tensor.Tensor) {
	r.steps++
	for _, l := range list {
		for k, c := range l.changes {
			r.places[c.p] = place{r.places[c.p].earlier + 1, l, k}
			params = append(params, c.p)
		}
	}
	return params
}

// checkSteps raises an error if a capture has several steps, and the scalars of a step depend on
// whether the device skips an earlier step. When the host queues a replay, it does not know the
// device's decision.
func (m *multi[C, P]) checkSteps(r *recorded, params []*tensor.Tensor, unless bool) {
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

// stateAt returns the state of parameter k before the step of l, in the replay that is being
// queued. If the device may skip steps, it returns the state before the replay, because the rows of
// scalars cover later steps.
func (l *replayed) stateAt(k int, unless bool) *state {
	st, at := l.changes[k].st, l.places[k]
	if at.earlier == 0 || unless {
		return st
	}
	now := *st
	now.step, now.unused = st.step+float64(at.earlier), false
	if next := at.launch.next[at.index]; next != nil {
		now.scalars = next
	}
	return &now
}

// alike reports whether the next steps from both states have the same scalars.
func (st *state) alike(o *state) bool {
	return st.step == o.step && st.unused == o.unused && slices.Equal(st.scalars, o.scalars)
}

// sameScalars reports whether two states that are not alike have the same scalars in the next steps
// of a replay. They do if the scalars of the rule do not depend on the step count.
func (m *multi[C, P]) sameScalars(l *replayed, a, b *state) bool {
	cfg := (*C)(l.group.config.(P))
	for row := range mostAhead + l.places[0].earlier + 1 {
		fresh := func(st *state) bool { return st.unused && row == 0 }
		x, _ := m.rule.scalars(cfg, l.group.LR, a.step+1+float64(row), a, fresh(a))
		y, _ := m.rule.scalars(cfg, l.group.LR, b.step+1+float64(row), b, fresh(b))
		if !equal(x, y) {
			return false
		}
	}
	return true
}
