package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// actSpec is what a kernel for products does to rounded results on their way to memory.
type actSpec struct {
	act  string     // the key of the activation, "" for none
	pre  bool       // what it is applied to is stored too, as the results are
	with dtype.Type // of its second operand, Invalid for none
}

// suffix is what it adds to a kernel's name.
func (s actSpec) suffix() string {
	name := ""
	if s.act != "" {
		name += "_a" + s.act
	}
	if s.pre {
		name += "_pre"
	}
	if s.with != dtype.Invalid {
		name += "_w" + s.with.String()
	}
	return name
}

// acting is what o does to rounded results.
func (o *ProductOperands) acting() actSpec {
	if o.Act == nil {
		return actSpec{}
	}
	return actSpec{o.Act.Key(), o.Pre.Type != dtype.Invalid, o.With.Type}
}

// likeOut reports whether one distance, of whole 16 bytes, leads from each result to its place in
// p.
func (o *ProductOperands) likeOut(p *Operand) bool {
	return p.Type.Size() == o.Out.Type.Size() && p.Strides == o.Out.Strides && (p.start()-o.Out.start())%16 == 0
}

// activatedInTile reports whether a block can apply the activation as its results leave: in shared
// memory, through which float32 sums of 16-bit factors do not go. Pre lies as Out does, so that one
// distance leads from each result to its place there.
func (o *ProductOperands) activatedInTile() bool {
	return o.Out.Type == o.factor() && !o.tf32() && (o.Pre.Type == dtype.Invalid || o.likeOut(&o.Pre))
}

// activatedBehind plans a product whose activation has a launch of its own.
func activatedBehind(g *GPU, o ProductOperands, scratch Scratch) ([]Launch, error) {
	sums := o
	sums.Act, sums.Pre, sums.With = nil, Operand{}, Operand{}
	if o.Pre.Type != dtype.Invalid {
		sums.Out = o.Pre
	}
	list, err := MatMulSplit(g, sums, scratch)
	if err != nil {
		return nil, err
	}
	in := []Operand{sums.Out}
	if o.With.Type != dtype.Invalid {
		in = append(in, o.With)
	}
	last, err := Map(o.Act, []Operand{o.Out}, in, nil)
	return append(list, last...), err
}

// activation is the state of a kernel that applies one.
type activation struct {
	b    *ptx.Builder
	s    actSpec
	out  dtype.Type
	f    *expr.Program // nil for none
	pre  ptx.Value     // bytes from a result to where it is before the activation
	with gemmOperand   // its second operand
}

// declareActivation takes the program, and the parameters that say where Pre and With are.
func declareActivation(b *ptx.Builder, s actSpec, out dtype.Type, programs []*expr.Program) activation {
	a := activation{b: b, s: s, out: out}
	if s.act != "" {
		a.f = programs[0]
	}
	if s.pre {
		a.pre = b.Param("pre", ptx.S64)
	}
	if s.with != dtype.Invalid {
		a.with = declareMatrices(b, "with", s.with)
	}
	return a
}

// beside loads what With has beside n neighbouring results, as it is stored. Neighbours of more
// than one result are neighbours, as pieces of 16 bytes or more.
func (a *activation) beside(row, col ptx.Value, n int) []ptx.Value {
	if a.s.with == dtype.Invalid {
		return nil
	}
	if n == 1 {
		col = col.Bitcast(ptx.S32).MulWide(a.with.stride2)
	}
	return loadStored(a.with.p.At(row.Bitcast(ptx.S32).MulWide(a.with.stride1)).At(col), a.s.with, n)
}

// apply gives the activation of each of values, rounded results in their computing type, and of
// what stands beside them: what a map computes of it.
func (a *activation) apply(values, beside []ptx.Value) []ptx.Value {
	if a.f == nil {
		return values
	}
	var with []ptx.Value
	if len(beside) > 0 {
		with = widenVector(a.s.with, beside, len(values))
	}
	list := make([]ptx.Value, len(values))
	for i, v := range values {
		list[i] = lower(a.b, a.f, environment{x: func(k int) ptx.Value {
			if k == 1 {
				return with[i]
			}
			return v
		}})[0]
	}
	return list
}
