package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Queries, keys and values are often the parts of one projection. Their gradients lie in one memory
// then, as they do: that is the gradient of the projection, and nobody has to join them.

// A projection is what queries, keys and values are the parts of: its shape, and where they lie in
// a dense tensor of it, with four dimensions.
type projection struct {
	to shape.Dims
	at [3]shape.Layout
}

// projected returns what the first three of in, of the shapes full, are all parts of; nil if that
// is not one tensor of type t.
func (c *Context) projected(in []*Tensor, full [3]shape.Dims, t dtype.Type) *projection {
	var p projection
	var q partial
	var whole edge
	base := 0 // where the whole begins in memory
	for i, x := range in[:3] {
		n := c.n.inputs[i].partOf()
		if n == nil || !c.Wants(i) || x.dtype != t || x.st != in[0].st || x.layout.Shape != full[i] {
			return nil
		}
		part := *n.f.(*viewFunc).part
		region := part.of(shape.Dense(n.operands[0].shape))
		if i == 0 {
			whole, base = n.inputs[0], x.layout.Offset-region.Offset
			q.part, q.to, p.to = part, n.operands[0], n.operands[0].shape
		}
		a, b := inOrder(x.layout), inOrder(region)
		l, view := x.layout.View(fourDims(full[i]))
		come, end := q.next(part.start, part.start+part.n)
		if !view || n.inputs[0] != whole || part.axis != q.axis || !part.joins || come || end != part.start+part.n ||
			a.Offset != base+b.Offset || a.Shape != b.Shape || a.Strides != b.Strides {
			return nil
		}
		q.cover(piece{start: part.start, n: part.n})
		p.at[i] = shifted(l, -base)
	}
	if len(q.gaps()) > 0 {
		return nil
	}
	return &p
}

// results makes views of a's results, of type t and the shapes full: those in p, or without p dense
// ones.
func (p *projection) results(c *Context, a *device.AttentionGrad, full [3]shape.Dims, t dtype.Type) {
	for i, d := range []*device.View{&a.DQ, &a.DK, &a.DV} {
		switch {
		case p != nil:
			*d = device.View{Type: t, Layout: p.at[i]}
		case c.Wants(i):
			*d = resultOf(t, fourDims(full[i]))
		}
	}
}

// alloc makes the results in one memory, none without p.
func (p *projection) alloc(op string, s *Scope, dev device.Device, t dtype.Type) (d [3]*Tensor) {
	if p == nil {
		return d
	}
	whole := alloc(op, s, dev, t, p.to)
	defer whole.Free() // the parts hold it
	for i := range d {
		d[i] = whole.handle(op, s, p.at[i])
	}
	return d
}

// partOf returns the node of the part that the gradient of e goes to through views, nil if there is
// none.
func (e edge) partOf() *node {
	for e.node != nil {
		v, ok := e.node.f.(*viewFunc)
		switch {
		case !ok:
			return nil
		case v.part != nil:
			return e.node
		}
		e = e.node.inputs[0]
	}
	return nil
}

// inOrder is a layout with its dimensions in the order of memory, joined where they can be: equal
// for the same elements.
func inOrder(l shape.Layout) shape.Layout {
	order := make([]int, l.Shape.Rank())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return l.Strides.At(b) - l.Strides.At(a) })
	r := shape.Layout{Offset: l.Offset}
	for _, i := range order {
		if n := l.Shape.At(i); n != 1 { // the stride of a single entry says nothing
			r.Shape, r.Strides = r.Shape.Append(n), r.Strides.Append(l.Strides.At(i))
		}
	}
	return r.Collapse()
}
