package expr

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
)

// Inline describes how to merge two programs into one: Program, and a reader program. Some operands
// of the reader are results of Program.
type Inline struct {
	Program *Program
	// Operands holds, for each operand of the reader, its number in the new program. The number ^k,
	// which is negative, stands for result k of Program
	Operands []int
	// Own holds, for each operand of Program, its number in the new program
	Own []int
	// Scalars is the number of the reader's scalars. In the new program, they come before the
	// scalars of Program
	Scalars int
	// Keep lists results of Program that the new program also returns, after the results of the
	// reader
	Keep []int
}

// Inlined returns a program that computes n.Program and p, its reader, together. It has the results
// of p. Its results have the same bits as if both programs ran one after the other. Values that
// n.Program would store are rounded or wrapped to the stored type. The payload of a NaN may differ.
// If n.Program uses the position of an element, positions and shapes must be the same in both
// programs.
func (p *Program) Inlined(n *Inline) *Program {
	q := n.Program
	l := &lowerer{p: &Program{}, y: -1, seen: map[Instr]int32{}, memo: map[emitKey]int32{},
		types: map[*Expr]dtype.Type{}, calls: map[*Expr]*Expr{}}
	l.operands(q.In, n.Own)
	l.operands(p.In, n.Operands)
	l.p.Params = slices.Concat(p.Params, make([]dtype.Type, n.Scalars-len(p.Params)), q.Params)
	inner := l.append(q, func(c Instr) int32 {
		if c.Op == OpX {
			c.Imm = uint64(n.Own[c.Imm])
		} else {
			c.Imm += uint64(n.Scalars)
		}
		return l.push(c)
	})
	outer := l.append(p, func(c Instr) int32 {
		if c.Op == OpX && n.Operands[c.Imm] < 0 {
			k := ^n.Operands[c.Imm]
			return l.stored(inner[q.Outs[k]], q.Out[k])
		} else if c.Op == OpX {
			c.Imm = uint64(n.Operands[c.Imm])
		}
		return l.push(c)
	})
	for i, o := range p.Outs {
		id := outer[o]
		if c := p.Code[o]; c.Op == OpX && n.Operands[c.Imm] < 0 {
			if k := ^n.Operands[c.Imm]; q.Out[k] == p.Out[i] {
				id = inner[q.Outs[k]] // rounds the value as storing does
			}
		}
		l.p.Outs, l.p.Out = append(l.p.Outs, id), append(l.p.Out, p.Out[i])
	}
	for _, k := range n.Keep {
		l.p.Outs, l.p.Out = append(l.p.Outs, inner[q.Outs[k]]), append(l.p.Out, q.Out[k])
	}
	l.prune()
	l.p.finish()
	l.p.words = slices.Concat(q.words, p.words)
	l.p.name = l.p.nameOf(false)
	return l.p
}

// operands declares operands of the given types. Operand i gets the number number[i] in the new
// program.
func (l *lowerer) operands(in []dtype.Type, number []int) {
	for i, k := range number {
		for len(l.p.In) <= k {
			l.p.In = append(l.p.In, dtype.Invalid)
		}
		if k >= 0 {
			l.p.In[k] = in[i]
		}
	}
}

// append adds the code of program p. The function leaf returns the new instruction for an operand
// or scalar of p. The result holds, for each instruction of p, its new number.
func (l *lowerer) append(p *Program, leaf func(Instr) int32) []int32 {
	id := make([]int32, len(p.Code))
	for i, c := range p.Code {
		if c.Op == OpX || c.Op == OpParam {
			id[i] = leaf(c)
			continue
		}
		for k, o := range [...]*int32{&c.A, &c.B, &c.C} {
			if k < c.Op.Arity() {
				*o = id[*o]
			}
		}
		id[i] = l.push(c)
	}
	return id
}

// stored returns an instruction that computes the value of instruction id after a store as type t
// and a load.
func (l *lowerer) stored(id int32, t dtype.Type) int32 {
	c := l.p.Code[id]
	if c.Op == OpX && l.p.In[c.Imm] == t {
		return id
	}
	e := X(0) // the value of instruction id
	l.types[e], l.memo[emitKey{e, c.Type}] = c.Type, id
	switch t {
	case dtype.F16, dtype.BF16:
		e = e.Rounded(t)
	case dtype.U8, dtype.I8, dtype.I16:
		e = e.Cvt(t)
	}
	return l.emit(e, c.Type)
}
