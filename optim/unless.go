package optim

import (
	"encoding/binary"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// This file has steps that the device skips if gradients have overflowed. Package amp uses them.

// A lateStep is a step whose outcome the host does not know yet: the device may have skipped it.
type lateStep struct {
	found        *tensor.LateItem
	replayed     bool             // whether the step is a replay of a captured step
	params       []*tensor.Tensor // parameters of a captured step
	done, undone func()
}

// settle determines which late steps the device has skipped, and updates counts and states. It
// waits for steps that are still running. In the next step the wait is short, because a forward and
// a backward pass come between the steps.
func (b *base) settle() {
	for len(b.late) > 0 {
		b.settleOne()
	}
}

func (b *base) settleOne() {
	l := b.late[0]
	out := l.found.Item() != 0 // if Item panics, the step stays in the list
	b.late = b.late[1:]
	if out {
		l.undone()
	} else {
		l.done()
	}
}

// StepUnless does the same as Step if foundInf, a tensor with one number, is 0. Otherwise
// parameters, state and the count of steps do not change. The device decides, and StepUnless does
// not wait. The host learns the decision at the next step, or when it reads the state. In a
// capture, each replay is such a step, and reads the number when it runs.
func (m *multi[C, P]) StepUnless(foundInf *tensor.Tensor) {
	if foundInf == nil || foundInf.Size() != 1 {
		m.bad("StepUnless needs a tensor of one number")
	}
	if g := m.capturing(); g != nil {
		m.settle()
		m.capture(g, foundInf)
		return
	}
	if g := tensor.Capturing(foundInf); g != nil {
		e := tensor.NewError(m.name, tensor.ErrCapture, "what StepUnless depends on is being captured, and the gradients are not")
		e.Hint = "call Backward in the capture, or StepUnless after a replay"
		panic(e)
	}
	m.step(foundInf)
}

// StepUnless does the same as [Muon.Step] if foundInf is 0, and otherwise nothing. The host waits
// for the value of foundInf, because a step has many kernels, which would otherwise all be launched
// to do nothing. In a capture the device decides.
func (o *Muon) StepUnless(foundInf *tensor.Tensor) {
	if foundInf == nil || foundInf.Size() != 1 {
		o.bad("StepUnless needs a tensor of one number")
	}
	if g := o.capturing(); g != nil {
		o.capture(g, foundInf)
		return
	}
	if foundInf.Item() == 0 {
		o.Step()
	}
}

// placeFor returns the scalars, followed by room for one more Param if the argument unless is not
// nil. The device sets this Param to 1 if the value of unless is not 0, and to 0 otherwise.
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

// guarded returns a rule whose results are the old values if the Param with index param is not 0.
// If unless is nil, it returns the given rule itself.
func guarded(unless *tensor.Tensor, rule func(flags) []*expr.Expr, param int) func(flags) []*expr.Expr {
	if unless == nil {
		return rule
	}
	return func(f flags) []*expr.Expr {
		stays := expr.Param(param, dtype.I64).Ne(expr.C(0))
		outs := append([]*expr.Expr(nil), rule(f)...)
		for i, y := range outs {
			old := expr.X(0)
			if i > 0 {
				old = expr.X(i + 1) // X(1) is the gradient
			}
			outs[i] = stays.Select(old, y)
		}
		return outs
	}
}

// guard writes a flag after the scalars that a packed launch reads on the device. The flag is 1
// if the value of the tensor unless is not 0. A launch with operands that are not dense takes its
// scalars from the host, so the host reads that value.
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

// decideLater records how a step changes values on the host, such as step counts. The host makes
// these changes when it knows that the device did not skip the step. If the device skipped it, the
// host instead frees the tensors that the step allocated, and removes states that the step added.
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

// The remaining functions are about captured steps that the device may skip in a replay.

// mostAhead is the largest number of replays that the host queues without knowing whether their
// steps were skipped. A larger number would not help, because about as many replays are in the
// queue anyway.
const mostAhead = 4

// An aheadOf counts, on a device, the captured steps that were not skipped. The host may know of
// fewer steps. The difference is the index of the row of scalars that a step uses.
type aheadOf struct {
	done  *tensor.Tensor // number of steps that were not skipped, an int64 in the root scope
	known int64          // number of these steps that the host knows of
}

// aheadOn returns the counter of a device. The first call allocates it.
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

// choose returns the row of table with the scalars of the current step. Each row is for one
// possible number of steps that the host does not know of.
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

// count adds 1 to the number of steps on the device, unless the step is skipped.
func (a *aheadOf) count(g *tensor.Graph, unless *tensor.Tensor) {
	one := unless.Detach().Reshape(1)
	p := loweredAs(programKey{rule: "count unless", t: unless.Type()}, []dtype.Type{dtype.I64}, []dtype.Type{dtype.I64, unless.Type()}, func(flags) []*expr.Expr {
		return []*expr.Expr{expr.X(1).Ne(expr.C(0)).Select(expr.X(0), expr.X(0).Add(expr.C(1)))}
	})
	tensor.Update("count", p, [][]*tensor.Tensor{{a.done}}, [][]*tensor.Tensor{{a.done, one}}, g.Scope().On(one.Device()).Typed(dtype.I64).Empty(1), nil)
}

// differs returns a program whose result is 1 if its operand is not 0, else 0.
func differs(t dtype.Type) *expr.Program {
	return loweredAs(programKey{rule: "differs", t: t}, []dtype.Type{dtype.I64}, []dtype.Type{t}, func(flags) []*expr.Expr {
		return []*expr.Expr{expr.X(0).Ne(expr.C(0)).Select(expr.C(1), expr.C(0))}
	})
}

// learn makes each replay report whether its step was skipped. When the host queues a replay, it
// calls plan. If the step was not skipped, the host later calls done, the function that plan has
// returned.
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

// catchUp settles the replays whose outcome is known, before another replay is queued. In these
// cases it waits for all steps whose outcome is not known:
//
//   - The new replay cannot be skipped, or the rule's scalars depend on the previous step.
//   - One of these steps is not a replay, or is a step of other parameters.
//   - A parameter has made no step yet, and the rule's state does not start from zeros.
//
// If the outcome of more than mostAhead steps is not known, it waits for the oldest ones.
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
