package optim

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// Steps that the device leaves out, of gradients that have overflowed: see package amp.

// A lateStep is a step of which the host does not know yet whether the device has done it or left it out.
type lateStep struct {
	found        *tensor.LateItem
	replayed     bool             // of a captured step
	params       []*tensor.Tensor // of it
	done, undone func()
}

// settle finds out about steps that are late, so that counts and states are right. It waits for them if they are still under way: at
// the next step, when the device has had the time of a forward and a backward pass.
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

// StepUnless is Step that is left out if found, a number on the device, is not 0: parameters, state and the count of steps stay as they
// are. The device decides, and the host learns of it with the next step, or when it asks for the state: it does not wait here. In a capture each
// replay is such a step, with what it finds itself.
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

// StepUnless is [Muon.Step], left out if found is not 0. Its kernels are too many to run them in vain: the host reads the number, and
// waits for it. In a capture the device decides.
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

// guard puts the number that a packed launch depends on in its slot. Groups that are not dense are launched with scalars of the host, which
// has to read it for them.
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

// decideLater notes what a step changes in the host's memory: it waits until the device's decision is known.
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
