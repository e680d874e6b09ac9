package nn

import (
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

var copyPrograms, addPrograms sync.Map // both map a dtype.Type to an *expr.Program

func programOf(m *sync.Map, t dtype.Type, e *expr.Expr, n int) *expr.Program {
	if p, ok := m.Load(t); ok {
		return p.(*expr.Program)
	}
	in := make([]dtype.Type, n)
	for i := range in {
		in[i] = t
	}
	p, _ := m.LoadOrStore(t, expr.MustLower([]*expr.Expr{e}, []dtype.Type{t}, in, -1))
	return p.(*expr.Program)
}

func sameProgram(t dtype.Type) *expr.Program { return programOf(&copyPrograms, t, expr.X(0), 1) }

func sumProgram(t dtype.Type) *expr.Program {
	return programOf(&addPrograms, t, expr.X(0).Add(expr.X(1)), 2)
}

// VJP goes back through the steps (P. Werbos, Backpropagation through time, 1990). Each step takes
// one kernel and one matrix product. At the end, one matrix product per weight computes the
// weight's gradient.
func (f *recurrence) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	operands := 4
	if f.bias {
		operands += 2
	}
	if f.cell == lstmCell {
		operands++
	}
	if f.proj {
		operands++
	}
	in := make([]*tensor.Tensor, operands)
	for i := range in {
		in[i] = c.Saved(i)
	}
	if c.Scope().GradEnabled() {
		return f.differentiable(c, in, g)
	}
	o := f.named(in)
	rows, n, out, hidden := o.x.Dim(0), o.h0.Dim(0), o.h0.Dim(1), f.hidden
	m := c.Scope().On(o.x.Device()).Typed(o.x.Type())
	tf32 := c.Scope().TF32()
	y, _, _ := f.split(c.Saved(operands), rows, n, out)
	dy, lastH, lastC := f.split(g.Contiguous(), rows, n, out)
	dh := lastH.Clone()
	width := f.cell.gates() * hidden
	dx := m.Empty(rows, width) // gradient with respect to the gates' products with the input
	dt := dx                   // gradient with respect to the gates' products with the state
	outs := []*tensor.Tensor{dh, dx}
	ins := []*tensor.Tensor{y, dy, o.h0, o.whh}
	k := operands + 1
	next := func() *tensor.Tensor {
		k++
		return c.Saved(k - 1)
	}
	var inner, dc, dr, part *tensor.Tensor
	switch f.cell {
	case lstmCell:
		ins = append(ins, next(), next(), o.c0) // the saved gates and states
		dc = lastC.Clone()
		if outs = append(outs, dc); f.proj {
			inner, dr, part = next(), m.Empty(rows, out), m.Empty(n, hidden)
			ins, outs = append(ins, o.whr), append(outs, dr, part)
		}
	case gruCell:
		ins = append(ins, next(), next()) // the saved gates and q
		dt, part = m.Empty(rows, width), m.Empty(n, out)
		outs = append(outs, dt, part)
	}
	list := f.stretches()
	before := m.Empty(rows, out) // for each row, the state before its step
	outs = append(outs, before)
	if rows > 0 {
		program := cellKey{cell: f.cell, t: o.x.Type(), back: true, keeps: f.cell == lstmCell && !f.proj}.program()
		sum, same := sumProgram(o.x.Type()), sameProgram(o.x.Type())
		tensor.Raw(f.Name()+".grad", outs, ins, func(s device.Stream, outs, ins []device.View) error {
			run := &queue{dev: o.x.Device(), s: s, tf32: tf32}
			y, dy, h0, whh := ins[0], ins[1], ins[2], ins[3]
			var to, from []device.View
			parts := func(list []device.View, v device.View) []device.View {
				for k := range f.cell.gates() {
					list = append(list, columnsOf(v, k, hidden))
				}
				return list
			}
			for i := len(list) - 1; i >= 0; i-- {
				p := list[i]
				// earlier returns the states before the step. They are rows of v, which has the
				// states of all steps, or rows of initial, which has the initial states.
				earlier := func(v, initial device.View) device.View {
					if p.prev >= 0 {
						return rowsOf(v, p.prev, p.n)
					}
					return rowsOf(initial, p.lo, p.n)
				}
				to, from = to[:0], from[:0]
				dh, dx, dy := rowsOf(outs[0], p.lo, p.n), rowsOf(outs[1], p.at, p.n), rowsOf(dy, p.at, p.n)
				switch f.cell {
				case lstmCell:
					dc, dm := rowsOf(outs[2], p.lo, p.n), dh
					if f.proj {
						r := rowsOf(outs[3], p.at, p.n)
						dm = rowsOf(outs[4], 0, p.n)
						run.mapTo(sum, []device.View{r}, []device.View{dy, dh})
						run.product(dm, r, ins[7])
					}
					from = append(parts(from, rowsOf(ins[4], p.at, p.n)), earlier(ins[5], ins[6]), rowsOf(ins[5], p.at, p.n), dc, dm)
					if !f.proj {
						from = append(from, dy)
					}
					run.mapTo(program, append(parts(to, dx), dc), from)
					run.product(dh, dx, whh)
				case gruCell:
					dt, part := rowsOf(outs[2], p.at, p.n), rowsOf(outs[3], 0, p.n)
					from = append(parts(from, rowsOf(ins[4], p.at, p.n)), rowsOf(ins[5], p.at, p.n), earlier(y, h0), dh, dy)
					run.mapTo(program, append(parts(parts(to, dx), dt), dh), from)
					run.product(part, dt, whh)
					run.mapTo(sum, []device.View{dh}, []device.View{dh, part})
				default:
					run.mapTo(program, append(to, dx), append(from, rowsOf(y, p.at, p.n), dh, dy))
					run.product(dh, dx, whh)
				}
			}
			before := outs[len(outs)-1]
			for _, p := range joined(list) {
				from := rowsOf(h0, p.lo, p.n)
				if p.prev >= 0 {
					from = rowsOf(y, p.prev, p.n)
				}
				run.mapTo(same, []device.View{rowsOf(before, p.at, p.n)}, []device.View{from})
			}
			return run.err
		})
	}
	grads := make([]*tensor.Tensor, operands)
	give := func(i int, f func() *tensor.Tensor) {
		if c.Wants(i) {
			grads[i] = f()
		}
	}
	give(0, func() *tensor.Tensor { return dx.MatMul(o.wih) })
	give(1, func() *tensor.Tensor { return dh })
	give(2, func() *tensor.Tensor { return dx.T().MatMul(o.x) })
	give(3, func() *tensor.Tensor { return dt.T().MatMul(before) })
	k = 4
	if f.bias {
		give(4, func() *tensor.Tensor { return dx.Sum(0) })
		give(5, func() *tensor.Tensor { return dt.Sum(0) })
		k = 6
	}
	if f.cell == lstmCell {
		give(k, func() *tensor.Tensor { return dc })
		k++
	}
	if f.proj {
		give(k, func() *tensor.Tensor { return dr.T().MatMul(inner) })
	}
	return grads
}

// differentiable computes VJP with recorded ops, so that second derivatives exist.
func (f *recurrence) differentiable(c *tensor.Context, in []*tensor.Tensor, g *tensor.Tensor) []*tensor.Tensor {
	// One operand may be computed from another. Separate views keep the gradients of the operands
	// apart.
	alone := make([]*tensor.Tensor, len(in))
	var wanted []*tensor.Tensor
	for i, x := range in {
		alone[i] = x.View(x.Shape().Slice()...)
		if c.Wants(i) {
			wanted = append(wanted, alone[i])
		}
	}
	grads := make([]*tensor.Tensor, len(in))
	found := tensor.Gradients(f.compose(alone), wanted, tensor.GradOutput(g), tensor.CreateGraph(), tensor.AllowUnused())
	for i, x := range in {
		if !c.Wants(i) {
			continue
		}
		if grads[i] = found[0]; grads[i] == nil {
			grads[i] = x.Detach().ZerosLike()
		}
		found = found[1:]
	}
	return grads
}
