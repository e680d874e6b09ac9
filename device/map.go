package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Map computes Outs[k] = Program(Ins…) element by element. All views have the same shape; broadcast
// operands have strides of 0. For example, a program without operands fills the results with a
// value. The identity program copies elements, also between types and layouts. Params holds the
// bits of the program's scalars, as expr.Encode returns them. A result may be the same view as an
// operand. Every device supports Map.
type Map struct {
	Program   *expr.Program
	Outs, Ins []View
	Params    []uint64
}

// Name returns "map".
func (*Map) Name() string { return "map" }

// Operand returns operand i: the results come first, then the inputs.
func (m *Map) Operand(i int) Operand {
	if i < len(m.Outs) {
		return Operand{"out", &m.Outs[i], true}
	}
	if i -= len(m.Outs); i < len(m.Ins) {
		return Operand{"in", &m.Ins[i], false}
	}
	return Operand{}
}

// Check compares the views with the program.
func (m *Map) Check() (arg, reason string) {
	if m.Program == nil {
		return "program", "nil"
	}
	return checkMap(m.Program, m.Outs, m.Ins, len(m.Params))
}

// Work counts the program's operations for each element.
func (m *Map) Work() Work { return mapWork(m.Program, m.Outs, m.Ins) }

// Clone copies the op.
func (m *Map) Clone() Op {
	return &Map{m.Program, clone(m.Outs), clone(m.Ins), append([]uint64(nil), m.Params...)}
}

func mapWork(p *expr.Program, outs, ins []View) Work {
	if len(outs) == 0 || outs[0].Size() == 0 {
		return Work{}
	}
	return Work{p.Cost() * outs[0].Size(), bytesOf(outs...) + bytesOf(ins...)}
}

func checkMap(p *expr.Program, outs, ins []View, params int) (arg, reason string) {
	if len(outs) != len(p.Out) {
		return "out", fmt.Sprintf("%d views for %d results", len(outs), len(p.Out))
	}
	s := &shape.Dims{}
	if len(outs) > 0 {
		s = &outs[0].Shape
	}
	for i := range outs {
		if outs[i].Type != p.Out[i] || outs[i].Shape != *s {
			return numbered("out", i, len(outs)), wrong(&outs[i], p.Out[i], *s)
		}
	}
	return checkOperands(p, s, ins, params)
}

func checkOperands(p *expr.Program, s *shape.Dims, ins []View, params int) (arg, reason string) {
	if len(ins) != len(p.In) {
		return "in", fmt.Sprintf("%d views for %d operands", len(ins), len(p.In))
	}
	for i := range ins {
		if ins[i].Type != p.In[i] || ins[i].Shape != *s {
			return numbered("in", i, len(ins)), wrong(&ins[i], p.In[i], *s)
		}
	}
	return checkParams(p, params)
}

func checkParams(p *expr.Program, n int) (arg, reason string) {
	if n < len(p.Params) {
		return "params", fmt.Sprintf("%d values for %d parameters", n, len(p.Params))
	}
	return "", ""
}

func numbered(s string, i, n int) string {
	if n == 1 {
		return s
	}
	return fmt.Sprintf("%s %d", s, i)
}
