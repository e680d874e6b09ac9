package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// actSpec describes the activation that a product kernel applies to rounded results before it
// stores them.
type actSpec struct {
	act  string     // key of the activation's program; "" for no activation
	pre  bool       // whether the results before the activation are stored as well
	with dtype.Type // type of the activation's second operand; Invalid if it has none
}

// suffix returns the part of a kernel's name that describes the activation.
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

func (o *ProductOperands) acting() actSpec {
	if o.Act == nil {
		return actSpec{}
	}
	return actSpec{o.Act.Key(), o.Pre.Type != dtype.Invalid, o.With.Type}
}

// likeOut reports whether p has the strides and the element size of Out, and lies a multiple of 16
// bytes away from Out.
func (o *ProductOperands) likeOut(p *Operand) bool {
	return p.Type.Size() == o.Out.Type.Size() && p.Strides == o.Out.Strides && (p.start()-o.Out.start())%16 == 0
}

// activatedInTile reports whether a block can apply the activation before it stores its results. It
// cannot for float32 sums of 16-bit factors, because these do not pass through shared memory. If
// Pre is present, likeOut must be true for it.
func (o *ProductOperands) activatedInTile() bool {
	return o.Out.Type == o.factor() && !o.tf32() && (o.Pre.Type == dtype.Invalid || o.likeOut(&o.Pre))
}

// activatedSeparately plans a product whose activation is a separate launch.
func activatedSeparately(g *GPU, o ProductOperands, scratch Scratch) ([]Launch, error) {
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

// activation holds what is needed to emit an activation in a kernel.
type activation struct {
	b    *ptx.Builder
	s    actSpec
	out  dtype.Type
	f    *expr.Program // program of the activation; nil if there is no activation
	pre  ptx.Value     // distance in bytes from an element of the result to its element of Pre
	with gemmOperand   // second operand of the activation
}

// declareActivation declares parameters for the addresses of Pre and With. The result also holds
// the activation's program.
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

// loadWith loads the n elements of With for n neighbouring results, in their stored type. If n is
// more than 1, these elements are neighbours in memory.
func (a *activation) loadWith(row, col ptx.Value, n int) []ptx.Value {
	if a.s.with == dtype.Invalid {
		return nil
	}
	if n == 1 {
		col = col.Bitcast(ptx.S32).MulWide(a.with.stride2)
	}
	return loadStored(a.with.p.At(row.Bitcast(ptx.S32).MulWide(a.with.stride1)).At(col), a.s.with, n)
}

// apply applies the activation to values, the rounded results of the product in their computing
// type. The argument withValues holds the elements of the operand With for these results. The
// activated values have the same bits as the results of a [Map] launch.
func (a *activation) apply(values, withValues []ptx.Value) []ptx.Value {
	if a.f == nil {
		return values
	}
	var with []ptx.Value
	if len(withValues) > 0 {
		with = widenVector(a.s.with, withValues, len(values))
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
