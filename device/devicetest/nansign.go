package devicetest

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// withSignOfNaNs returns p with one change: where p reads the bits of a float that is NaN, the new
// program reads the bits of nan. Devices may compute NaNs of either sign. A result of p is
// therefore defined only if it is the same for NaNs of both signs. If p reads no bits of floats,
// the result is p.
func withSignOfNaNs(p *expr.Program, nan float64) *expr.Program {
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
			isNumber := push(expr.Instr{Op: expr.OpEq, Type: dtype.Bool, A: c.A, B: c.A, C: -1})
			constant := push(expr.Instr{Op: expr.OpConst, Type: t, A: -1, B: -1, C: -1, Imm: bitsOf(t, nan)})
			c.A = push(expr.Instr{Op: expr.OpSelect, Type: t, A: isNumber, B: c.A, C: constant})
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

// bitsOf returns the bits of x as a float32 or a float64.
func bitsOf(t dtype.Type, x float64) uint64 {
	if t == dtype.F32 {
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(x)
}
