package devicetest

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// withNaNsNegated returns p with one change: where p reads the bits of a float that is NaN, the
// result reads the bits of its negative. Devices may compute NaNs of either sign. So a result of p
// is defined only if this change does not alter it. A program that reads no bits is returned as it
// is.
func withNaNsNegated(p *expr.Program) *expr.Program {
	q := &expr.Program{Out: p.Out, In: p.In, Params: p.Params}
	at := make([]int32, len(p.Code)) // the new indices of instructions
	push := func(c expr.Instr) int32 {
		q.Code = append(q.Code, c)
		return int32(len(q.Code) - 1)
	}
	changed := false
	for i, c := range p.Code {
		for k, operand := range [...]*int32{&c.A, &c.B, &c.C} {
			if k < c.Op.Arity() {
				*operand = at[*operand]
			}
		}
		if c.Op == expr.OpBitcast && q.Code[c.A].Type.IsFloat() {
			t := q.Code[c.A].Type
			number := push(expr.Instr{Op: expr.OpEq, Type: dtype.Bool, A: c.A, B: c.A, C: -1})
			negative := push(expr.Instr{Op: expr.OpNeg, Type: t, A: c.A, B: -1, C: -1})
			c.A = push(expr.Instr{Op: expr.OpSelect, Type: t, A: number, B: c.A, C: negative})
			changed = true
		}
		at[i] = push(c)
	}
	if !changed {
		return p
	}
	for _, o := range p.Outs {
		q.Outs = append(q.Outs, at[o])
	}
	return q
}
