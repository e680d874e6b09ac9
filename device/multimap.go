package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// MultiMap runs Program on each group k of contiguous views, Outs[k] and Ins[k], in one launch. An
// optimizer uses it to update all parameters. Params is a contiguous view on the device. Each of
// its 8-byte elements holds the bits of a scalar. The scalars are in device memory, so a program
// may change them between replays of a captured step. Params is absent if the program has no
// scalars.
//
// Found may be absent. It has one F32 element, which is 0 or 1. Found becomes 1 if, before the op,
// the first operand of some group has an infinite or NaN element. A GradScaler uses Found when it
// unscales gradients.
type MultiMap struct {
	Program       *expr.Program
	Outs, Ins     [][]View
	Params, Found View
}

// Name returns "multi-map".
func (*MultiMap) Name() string { return "multi-map" }

// Operand returns operand i. First come the results of all groups and Found, then the inputs of all
// groups and Params.
func (m *MultiMap) Operand(i int) Operand {
	n := len(m.Program.Out)
	if i < n*len(m.Outs) {
		return Operand{"out", &m.Outs[i/n][i%n], true}
	}
	if i -= n * len(m.Outs); i == 0 {
		return Operand{"found", &m.Found, true}
	}
	n = len(m.Program.In)
	if i--; i < n*len(m.Ins) {
		return Operand{"in", &m.Ins[i/n][i%n], false}
	}
	if i == n*len(m.Ins) {
		return Operand{"params", &m.Params, false}
	}
	return Operand{}
}

// Check compares the views of each group with the program.
func (m *MultiMap) Check() (arg, reason string) {
	p := m.Program
	if p == nil {
		return "program", "nil"
	}
	if len(m.Outs) != len(m.Ins) {
		return "outs", fmt.Sprintf("%d groups, but %d groups of operands", len(m.Outs), len(m.Ins))
	}
	if v := &m.Params; !(v.Absent() && len(p.Params) == 0) && (v.Type.Size() != 8 || !v.Contiguous() || v.Size() < len(p.Params)) {
		return "params", fmt.Sprintf("%v of %v, want at least %d contiguous slots of 8 bytes", v.Shape, v.Type, len(p.Params))
	}
	if v := &m.Found; !v.Absent() {
		if v.Type != dtype.F32 || v.Size() != 1 {
			return "found", fmt.Sprintf("%v of shape %v, want one float32", v.Type, v.Shape)
		}
		if len(p.In) == 0 {
			return "program", "it has no operand to look at"
		}
	}
	for k := range m.Outs {
		if arg, reason := checkMap(p, m.Outs[k], m.Ins[k], len(p.Params)); reason != "" {
			return fmt.Sprintf("group %d: %s", k, arg), reason
		}
		for n, list := range [2][]View{m.Outs[k], m.Ins[k]} {
			for i := range list {
				if v := &list[i]; !v.Contiguous() {
					arg := numbered([2]string{"out", "in"}[n], i, len(list))
					return fmt.Sprintf("group %d: %s", k, arg), sparse(v, v.Type, v.Shape)
				}
			}
		}
	}
	return "", ""
}

// Work returns the sum of the work of a [Map] for each group.
func (m *MultiMap) Work() (w Work) {
	for k := range m.Outs {
		w = w.Add(mapWork(m.Program, m.Outs[k], m.Ins[k]))
	}
	if w != (Work{}) {
		w.Bytes += bytesOf(m.Params)
	}
	return w
}

// Clone copies the op.
func (m *MultiMap) Clone() Op {
	c := *m
	c.Outs, c.Ins = make([][]View, len(m.Outs)), make([][]View, len(m.Ins))
	for k := range m.Outs {
		c.Outs[k] = clone(m.Outs[k])
	}
	for k := range m.Ins {
		c.Ins[k] = clone(m.Ins[k])
	}
	return &c
}
