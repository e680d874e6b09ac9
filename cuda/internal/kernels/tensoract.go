package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// activatedInTile reports whether a block can apply the activation as its results leave. Those of
// 16 bits go through shared memory, where they are rounded. Pre lies as Out does, so that one
// distance leads from each result to its place there.
func (o *ProductOperands) activatedInTile() bool {
	return o.Out.Type.IsHalf() &&
		(o.Pre.Type == dtype.Invalid || o.Pre.Strides == o.Out.Strides && (o.Pre.start()-o.Out.start())%16 == 0)
}

// activatedBehind plans a product whose activation has a launch of its own.
func activatedBehind(g *GPU, o ProductOperands, scratch Scratch) ([]Launch, error) {
	sums := o
	sums.Act, sums.Pre = nil, Operand{}
	if o.Pre.Type != dtype.Invalid {
		sums.Out = o.Pre
	}
	list, err := MatMulSplit(g, sums, scratch)
	if err != nil {
		return nil, err
	}
	last, err := Map(o.Act, []Operand{o.Out}, []Operand{sums.Out}, nil)
	return append(list, last...), err
}

// leave stores rounded results, one or words of two: as they are where that is wanted, and
// activated.
func (g *tensorBuilder) leave(to ptx.Ptr, v ...ptx.Value) {
	store := func(to ptx.Ptr) {
		if len(v) > 1 {
			to.StoreVec(v...)
		} else {
			to.Store(v[0])
		}
	}
	if g.s.pre {
		store(to.AtByte(g.pre))
	}
	if g.act != nil {
		one := len(v) == 1
		v = append([]ptx.Value(nil), v...)
		for i := range v {
			if one {
				v[i] = narrow(g.Builder, g.s.out, g.activated(v[i]))
				continue
			}
			lo, hi := v[i].Split(storage(g.s.out))
			v[i] = g.Pack2(storage(g.s.out), g.activated(lo), g.activated(hi))
		}
	}
	store(to)
}

// activated is the activation of a rounded result, in float32: what a map computes of it.
func (g *tensorBuilder) activated(v ptx.Value) ptx.Value {
	return lower(g.Builder, g.act, environment{x: func(int) ptx.Value { return widen(g.s.out, v) }})[0]
}

// declareActivation takes the program, and the parameter that says where Pre is.
func (g *tensorBuilder) declareActivation(programs []*expr.Program) {
	if g.s.act != "" {
		g.act = programs[0]
	}
	if g.s.pre {
		g.pre = g.Param("pre", ptx.S64)
	}
}
