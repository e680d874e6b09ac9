package cpu

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// truths is a word whose four bytes are four true values.
const truths = 0x01010101

// inWords returns a program that computes p for four truth values at once, one in each byte of a
// word. It returns nil if p cannot be computed in this way.
func inWords(p *expr.Program) *expr.Program {
	e, all := make([]*expr.Expr, len(p.Code)), expr.C(truths)
	for i, c := range p.Code {
		// every value must be 0 or 1, even if its type is an integer
		if c.Type.IsFloat() || c.Op == expr.OpConst && c.Imm > 1 || c.Op == expr.OpNot && c.Type != dtype.Bool {
			return nil
		}
		switch c.Op {
		case expr.OpX:
			e[i] = expr.X(int(c.Imm))
		case expr.OpConst:
			e[i] = expr.C(float64(c.Imm * truths))
		case expr.OpCvt:
			e[i] = e[c.A]
		case expr.OpAnd:
			e[i] = e[c.A].And(e[c.B])
		case expr.OpOr:
			e[i] = e[c.A].Or(e[c.B])
		case expr.OpXor, expr.OpNe:
			e[i] = e[c.A].Xor(e[c.B])
		case expr.OpEq:
			e[i] = e[c.A].Xor(e[c.B]).Xor(all)
		case expr.OpNot:
			e[i] = e[c.A].Xor(all)
		default:
			return nil
		}
	}
	in := make([]dtype.Type, len(p.In))
	for i := range in {
		if in[i] = dtype.I32; p.In[i] != dtype.Bool {
			return nil
		}
	}
	return expr.MustLower([]*expr.Expr{e[p.Outs[0]]}, []dtype.Type{dtype.I32}, in, -1)
}

// truth runs p on truth values, four at a time, with the program that inWords makes of p. If there
// is no such program, or if the operands are unsuitable, truth does nothing and returns false. For
// example, all operands must be contiguous.
func (d *Device) truth(p *expr.Program, outs, ins []device.View) bool {
	const operands = 4
	n := outs[0].Size()
	if len(outs) > 1 || len(ins) >= operands || n < 64 || outs[0].Type != dtype.Bool {
		return false
	}
	var words, rest [operands]device.View
	row := outs[0].Shape.Contiguous()
	whole := n / 4 * 4
	for i := range 1 + len(ins) {
		v := &outs[0]
		if i > 0 {
			v = &ins[i-1]
		}
		if v.Type != dtype.Bool || v.Strides != row || v.Offset%4 != 0 || i > 0 && overlap(&outs[0], v, n) {
			return false
		}
		words[i] = device.View{Buf: v.Buf, Type: dtype.I32, Layout: shape.Dense(shape.Of(n / 4))}
		words[i].Offset = v.Offset / 4
		rest[i] = device.View{Buf: v.Buf, Type: dtype.Bool, Layout: shape.Dense(shape.Of(n - whole))}
		rest[i].Offset = v.Offset + whole
	}
	pl := planFor(p, 0, stored)
	pl.wordsOnce.Do(func() { pl.words = inWords(p) })
	if pl.words == nil {
		return false
	}
	k := 1 + len(ins)
	d.elementwise(pl.words, words[:1], words[1:k], nil)
	d.elementwise(p, rest[:1], rest[1:k], nil)
	return true
}
