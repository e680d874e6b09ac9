// Package calls finds the named functions that a lowered program contains as primitives. The CPU
// driver can then run each function with one kernel ([asm.Function]) instead of dozens of
// primitives.
//
// A match is exact: the instructions between argument and result are those of the function's
// formula. The kernel therefore gives the same bits. If lowering has simplified some of these
// instructions, or merged them with other instructions, there is no match, and the primitives run.
package calls

import (
	"cmp"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Call says that a value of a program is a function of another value: the function named Name,
// applied to the value Arg, gives the value Root. Both values are float32.
type Call struct {
	Name      string
	Root, Arg int32
}

// Find returns the calls in p that are not inside another call, sorted by Root. It finds only
// functions for which hasKernel returns true, and whose kernel was generated from the function's
// current formula. Values between Arg and Root may be used elsewhere too; [Live] says which values
// are still needed.
func Find(p *expr.Program, hasKernel func(name string) bool) []Call {
	var found []Call
	inside := make([]bool, len(p.Code)) // for each value, whether it belongs to a call found before
	for v := len(p.Code) - 1; v >= 0; v-- {
		if p.Code[v].Type != dtype.F32 || inside[v] {
			continue
		}
		for _, f := range patterns() {
			if made := asm.Formula(f.name); !hasKernel(f.name) || made != "" && made != f.key {
				continue
			}
			m := matcher{pattern: f.code, code: p.Code, at: make([]int32, len(f.code)), arg: -1}
			for i := range m.at {
				m.at[i] = -1
			}
			if m.match(f.root, int32(v)) && m.arg >= 0 {
				found = append(found, Call{f.name, int32(v), m.arg})
				for i, x := range m.at {
					if x >= 0 && x != m.arg && f.code[i].Op != expr.OpConst {
						inside[x] = true
					}
				}
				break
			}
		}
	}
	slices.SortFunc(found, func(a, b Call) int { return cmp.Compare(a.Root, b.Root) })
	return found
}

// Live reports, for each value of p, whether it is still needed if kernels compute the calls.
func Live(p *expr.Program, found []Call) []bool {
	arg := map[int32]int32{}
	for _, c := range found {
		arg[c.Root] = c.Arg
	}
	live := make([]bool, len(p.Code))
	for _, o := range p.Outs {
		live[o] = true
	}
	for v := len(p.Code) - 1; v >= 0; v-- {
		if !live[v] {
			continue
		}
		if a, ok := arg[int32(v)]; ok {
			live[a] = true
			continue
		}
		c := p.Code[v]
		for k, o := range [3]int32{c.A, c.B, c.C} {
			if k < c.Op.Arity() {
				live[o] = true
			}
		}
	}
	return live
}

// pattern is the formula of a function.
type pattern struct {
	name, key string
	code      []expr.Instr
	root      int32
}

// patterns returns the formulas of the functions with one float32 argument. Longer formulas come
// first, because some contain shorter ones.
var patterns = sync.OnceValue(func() []pattern {
	var all []pattern
	for name, f := range expr.Funcs() {
		if f.Arity != 1 {
			continue
		}
		p, err := expr.Lower([]*expr.Expr{expr.Call(name, expr.X(0))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
		if err != nil || len(p.Outs) != 1 {
			continue // the function has no float32 formula
		}
		all = append(all, pattern{name, p.Key(), p.Code, p.Outs[0]})
	}
	slices.SortFunc(all, func(a, b pattern) int {
		return cmp.Or(cmp.Compare(len(b.code), len(a.code)), cmp.Compare(a.name, b.name))
	})
	return all
})

// matcher compares a pattern with a part of a program.
type matcher struct {
	pattern, code []expr.Instr
	at            []int32 // for each value of the pattern, the value of the program that it matches
	trail         []int32 // matched values of the pattern, in the order in which they were matched
	arg           int32
}

func (m *matcher) match(i, v int32) bool {
	if m.at[i] >= 0 {
		return m.at[i] == v
	}
	f, c := m.pattern[i], m.code[v]
	if f.Op == expr.OpX {
		if c.Type != f.Type {
			return false
		}
		m.arg = v
		m.set(i, v)
		return true
	}
	if f.Op != c.Op || f.Type != c.Type || f.Imm != c.Imm {
		return false
	}
	operands, mark := f.Op.Arity(), len(m.trail)
	if operands == 0 || m.match(f.A, c.A) && (operands < 2 || m.match(f.B, c.B)) && (operands < 3 || m.match(f.C, c.C)) {
		m.set(i, v)
		return true
	}
	m.undo(mark)
	// Lowering may have swapped the operands of a commutative operation.
	if commutes(f.Op) && m.match(f.A, c.B) && m.match(f.B, c.A) && (operands < 3 || m.match(f.C, c.C)) {
		m.set(i, v)
		return true
	}
	m.undo(mark)
	return false
}

func (m *matcher) set(i, v int32) {
	m.at[i] = v
	m.trail = append(m.trail, i)
}

func (m *matcher) undo(mark int) {
	for _, i := range m.trail[mark:] {
		m.at[i] = -1
		if m.pattern[i].Op == expr.OpX {
			m.arg = -1
		}
	}
	m.trail = m.trail[:mark]
}

func commutes(op expr.Op) bool {
	switch op {
	case expr.OpAdd, expr.OpMul, expr.OpMin, expr.OpMax, expr.OpEq, expr.OpNe, expr.OpAnd, expr.OpOr, expr.OpXor, expr.OpFMA, expr.OpMulHi:
		return true
	}
	return false
}
