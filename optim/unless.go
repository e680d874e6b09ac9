package optim

import (
	"encoding/binary"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// Steps that the device leaves out, of gradients that have overflowed: see package amp.

// A lateStep is a step of which the host does not know yet whether the device has done it or left
// it out.
type lateStep struct {
	found        *tensor.LateItem
	replayed     bool             // of a captured step
	params       []*tensor.Tensor // of it
	done, undone func()
}

// settle finds out about steps that are late, so that counts and states are right. It waits for
// them if they are still under way: at the next step, when the device has had the time of a forward
// and a backward pass.
func (b *base) settle() {
	for len(b.late) > 0 {
		b.settleOne()
	}
}

func (b *base) settleOne() {
	l := b.late[0]
	out := l.found.Item() != 0 // should it panic, the step is still late
	b.late = b.late[1:]
	if out {
		l.undone()
	} else {
		l.done()
	}
}

// StepUnless is Step that is left out if found, a number on the device, is not 0: parameters, state
// and the count of steps stay as they are. The device decides, and the host learns of it with the
// next step, or when it asks for the state: it does not wait here. In a capture each replay is such
// a step, with what it finds itself.
func (m *multi[C, P]) StepUnless(found *tensor.Tensor) {
	if found == nil || found.Size() != 1 {
		m.bad("StepUnless needs a tensor of one number")
	}
	if g := m.capturing(); g != nil {
		m.settle()
		m.capture(g, found)
		return
	}
	if g := tensor.Capturing(found); g != nil {
		e := tensor.NewError(m.name, tensor.ErrCapture, "what StepUnless depends on is being captured, and the gradients are not")
		e.Hint = "call Backward in the capture, or StepUnless after a replay"
		panic(e)
	}
	m.step(found)
}

// StepUnless is [Muon.Step], left out if found is not 0. Its kernels are too many to run them in
// vain: the host reads the number, and waits for it. In a capture the device decides.
func (o *Muon) StepUnless(found *tensor.Tensor) {
	if found == nil || found.Size() != 1 {
		o.bad("StepUnless needs a tensor of one number")
	}
	if g := o.capturing(); g != nil {
		o.capture(g, found)
		return
	}
	if found.Item() == 0 {
		o.Step()
	}
}

// placeFor adds a Param for the number that a step depends on; its value comes on the device.
func placeFor(unless *tensor.Tensor, scalars []float64) []float64 {
	if unless == nil {
		return scalars
	}
	return append(scalars[:len(scalars):len(scalars)], 0)
}

func unlessName(unless *tensor.Tensor, name string) string {
	if unless == nil {
		return name
	}
	return name + " unless"
}

// guarded is the rule whose results are the old values unless the Param number at is 0.
func guarded(unless *tensor.Tensor, rule func(flags) []*expr.Expr, at int) func(flags) []*expr.Expr {
	if unless == nil {
		return rule
	}
	return func(f flags) []*expr.Expr {
		stays := expr.Param(at, dtype.I64).Ne(expr.C(0))
		outs := append([]*expr.Expr(nil), rule(f)...)
		for i, y := range outs {
			old := expr.X(0)
			if i > 0 {
				old = expr.X(i + 1) // behind the gradient
			}
			outs[i] = stays.Select(old, y)
		}
		return outs
	}
}

// guard puts the number that a packed launch depends on in its slot. Groups that are not dense are
// launched with scalars of the host, which has to read it for them.
func (l *launch) guard(s *tensor.Scope, unless *tensor.Tensor) {
	if unless == nil {
		return
	}
	at := len(l.scalars) - 1
	l.slots.Narrow(0, at, 1).Copy(unless.In(s).To(l.dev).Reshape(1).NeScalar(0))
	for k := range l.outs {
		for _, t := range append(append([]*tensor.Tensor(nil), l.outs[k]...), l.ins[k]...) {
			if !t.IsContiguous() {
				if unless.Item() != 0 {
					l.bits[at] = 1
				}
				return
			}
		}
	}
}

// decideLater notes what a step changes in the host's memory: it waits until the device's decision
// is known.
func (m *multi[C, P]) decideLater(found *tensor.LateItem, changes []change) {
	late := &lateStep{found: found}
	had := make([]bool, len(changes))
	for i, c := range changes {
		had[i] = m.state[c.p] != nil
		m.state[c.p] = c.st
	}
	late.done = func() {
		for _, c := range changes {
			c.st.step++
			c.st.unused = false
			if c.next != nil {
				c.st.scalars = c.next
			}
		}
		m.steps++
	}
	late.undone = func() {
		for i, c := range changes {
			for k, t := range c.fresh {
				if t != nil {
					t.Free()
					c.st.tensors[k] = nil
				}
			}
			if !had[i] {
				delete(m.state, c.p)
			}
		}
	}
	m.late = append(m.late, late)
}

// Captured steps that the device may leave out.

// mostAhead is how many replays the host queues without knowing whether they have done their step.
// As many are in the queue anyway.
const mostAhead = 4

// An aheadOf counts, on a device, the captured steps that were done: all there were, while the host
// knows of some of them only. The difference is the row of the scalars that a step takes.
type aheadOf struct {
	done  *tensor.Tensor // int64, of the root scope
	known int64          // by the host
}

// aheadOn returns the count on a device, which is made when it is first needed.
func (b *base) aheadOn(g *tensor.Graph, d device.Device) *aheadOf {
	a := b.ahead[d]
	if a == nil {
		if b.ahead == nil {
			b.ahead = map[device.Device]*aheadOf{}
		}
		a = &aheadOf{done: tensor.Root().On(d).Typed(dtype.I64).Zeros(1)}
		b.ahead[d] = a
	}
	g.Adopt(a.done)
	return a
}

// choose returns the row of table that holds the scalars of this step.
func (a *aheadOf) choose(g *tensor.Graph, table *tensor.Tensor) *tensor.Tensor {
	rows, width := table.Dim(0), table.Dim(1)
	known := g.FeedOn(a.done.Device(), dtype.I64, 1, func(to []byte) { binary.NativeEndian.PutUint64(to, uint64(a.known)) })
	slots := g.Scope().On(a.done.Device()).Typed(dtype.I64).Empty(width)
	ins := []*tensor.Tensor{a.done.In(g.Scope()).Detach().Expand(width), known.Expand(width)}
	for i := range rows {
		ins = append(ins, table.Narrow(0, i, 1).Reshape(width))
	}
	types := make([]dtype.Type, len(ins))
	for i := range types {
		types[i] = dtype.I64
	}
	p := loweredAs(programKey{rule: "choose", operands: rows}, []dtype.Type{dtype.I64}, types, func(flags) []*expr.Expr {
		y := expr.X(2)
		for i := 1; i < rows; i++ {
			y = expr.X(0).Sub(expr.X(1)).Eq(expr.C(float64(i))).Select(expr.X(2+i), y)
		}
		return []*expr.Expr{y}
	})
	tensor.Update("choose", p, [][]*tensor.Tensor{{slots}}, [][]*tensor.Tensor{ins}, slots, nil)
	return slots
}

// count adds 1 unless the step is left out.
func (a *aheadOf) count(g *tensor.Graph, unless *tensor.Tensor) {
	one := unless.Detach().Reshape(1)
	p := loweredAs(programKey{rule: "count unless", t: unless.Type()}, []dtype.Type{dtype.I64}, []dtype.Type{dtype.I64, unless.Type()}, func(flags) []*expr.Expr {
		return []*expr.Expr{expr.X(1).Ne(expr.C(0)).Select(expr.X(0), expr.X(0).Add(expr.C(1)))}
	})
	tensor.Update("count", p, [][]*tensor.Tensor{{a.done}}, [][]*tensor.Tensor{{a.done, one}}, g.Scope().On(one.Device()).Typed(dtype.I64).Empty(1), nil)
}

// differs is the program whose result is whether its operand is not 0.
func differs(t dtype.Type) *expr.Program {
	return loweredAs(programKey{rule: "differs", t: t}, []dtype.Type{dtype.I64}, []dtype.Type{t}, func(flags) []*expr.Expr {
		return []*expr.Expr{expr.X(0).Ne(expr.C(0)).Select(expr.C(1), expr.C(0))}
	})
}

// learn has each replay tell whether its step was left out. plan is called when it is queued, and
// what it returns when it is known that the step was done.
func (b *base) learn(g *tensor.Graph, unless *tensor.Tensor, params []*tensor.Tensor, plan func() (done func())) {
	told := g.Scope().On(unless.Device()).Typed(unless.Type()).Empty(1).Copy(unless.Detach().Reshape(1))
	a := b.ahead[unless.Device()]
	g.Then(func() {
		done := plan()
		b.late = append(b.late, &lateStep{found: told.ItemLater(), replayed: true, params: params, undone: func() {}, done: func() {
			if a != nil {
				a.known++
			}
			done()
		}})
	})
}

// catchUp learns of the replays whose steps are known to be done or left out, before another one is
// queued. It waits where there are too many that are not known, and where others than replays, or
// those of other parameters, are late. It waits for a rule whose scalars go on from step to step.
// And it waits for the first step of a rule whose state begins with other values than zeros.
func (m *multi[C, P]) catchUp(unless bool, params []*tensor.Tensor) {
	wait := !unless || m.rule.begin != nil
	for _, l := range m.late {
		wait = wait || !l.replayed || !slices.Equal(l.params, params)
	}
	if m.rule.start != nil {
		for _, st := range m.state {
			wait = wait || st.unused
		}
	}
	for len(m.late) > 0 && (wait || len(m.late) > mostAhead || m.late[0].found.Done()) {
		m.settleOne()
	}
}
