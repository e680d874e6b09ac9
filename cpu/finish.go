package cpu

import (
	"math"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var inf = math.Inf(1)

type castKey struct{ to, from dtype.Type }

var identities sync.Map // maps castKey to *expr.Program

// castProgram returns the program that converts elements from one stored type to another.
func castProgram(to, from dtype.Type) *expr.Program {
	k := castKey{to, from}
	if p, ok := identities.Load(k); ok {
		return p.(*expr.Program)
	}
	p := expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{to}, []dtype.Type{from}, -1)
	identities.Store(k, p)
	return p
}

// zeroProgram returns the program that fills a result of type t with zeros.
func zeroProgram(t dtype.Type) *expr.Program {
	k := castKey{t, dtype.Invalid}
	if p, ok := identities.Load(k); ok {
		return p.(*expr.Program)
	}
	p := expr.MustLower([]*expr.Expr{expr.Bits(t.Compute(), 0)}, []dtype.Type{t}, nil, -1)
	identities.Store(k, p)
	return p
}

// finish applies the reduction's Finish program to the combined values, and stores the results. The
// values have the form in which programs compute, not the form in which elements are stored.
func (d *Device) finish(o *device.Reduce, t dtype.Type, l shape.Layout, values []byte) {
	p, out := o.Finish, &o.Out
	if p == nil {
		p = castProgram(out.Type, t)
	}
	l.Offset = 0
	in := []device.View{{Buf: &buffer{dev: d, mem: values}, Type: t, Layout: l}}[:len(p.In)]
	b := bindings.Get().(*binding)
	b.pl = planFor(p, 0, rawOperands)
	b.params = append(b.params[:0], o.Params...)
	outs := []device.View{*out}
	var space [shape.MaxRank]int
	order := space[:out.Shape.Rank()]
	for i := range order {
		order[i] = i
	}
	b.arrange(out.Shape, order, nil, outs, in)
	for i := range b.ins {
		b.widen(&b.ins[i], width(t))
	}
	b.aliasing()
	d.mapAll(b)
	b.release()
}

// widen sets the size of an access's elements, and scales its strides. While a program computes, a
// truth value takes more bytes than in memory.
func (b *binding) widen(a *access, size int) {
	for k := range b.rank {
		a.stride[k] = a.stride[k] / a.size * size
	}
	a.size = size
	b.cacheStrides(a)
}
