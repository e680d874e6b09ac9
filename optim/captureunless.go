package optim

import (
	"encoding/binary"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// Captured steps that the device may leave out.

// mostAhead is how many replays the host queues without knowing whether they have done their step. As many are in the queue anyway.
const mostAhead = 4

// An aheadOf counts, on a device, the captured steps that were done: all there were, while the host knows of some of them only. The difference
// is the row of the scalars that a step takes.
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
	known := g.Feed(dtype.I64, 1, func(to []byte) { binary.NativeEndian.PutUint64(to, uint64(a.known)) })
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

// learn has each replay tell whether its step was left out. plan is called when it is queued, and what it returns when it is known that the
// step was done.
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

// catchUp learns of the replays whose steps are known to be done or left out, before another one is queued. It waits where there are too many
// that are not known, where others than replays, or those of other parameters, are late, for a rule whose scalars go on from step to step, and for the first step of one whose
// state begins with other values than zeros.
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
