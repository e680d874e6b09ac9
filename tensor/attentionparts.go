package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Queries, keys and values are often parts of one projection. Then their gradients are written into
// one piece of memory, at the offsets of the parts in the projection. This memory is the gradient
// of the projection, so no op has to concatenate the gradients.

// A projection describes the tensor whose parts are queries, keys and values: its shape, and the
// layout of each part in a dense tensor of this shape. The layouts have four dimensions.
type projection struct {
	shape   shape.Dims
	layouts [3]shape.Layout
}

// projected returns the projection whose parts are the first three operands. partShapes holds the
// shapes of the parts. projected returns nil if the three operands are not the parts of one tensor
// of type t.
func (c *Context) projected(operands []*Tensor, partShapes [3]shape.Dims, t dtype.Type) *projection {
	var p projection
	var q partial
	var whole edge
	base := 0 // offset at which the projection begins in memory
	for i, x := range operands[:3] {
		n := c.n.inputs[i].partOf()
		if n == nil || !c.Wants(i) || x.dtype != t || x.st != operands[0].st || x.layout.Shape != partShapes[i] {
			return nil
		}
		part := *n.f.(*viewFunc).part
		region := part.layoutIn(shape.Dense(n.operands[0].shape))
		if i == 0 {
			whole, base = n.inputs[0], x.layout.Offset-region.Offset
			q.part, q.operand, p.shape = part, n.operands[0], n.operands[0].shape
		}
		a, b := inOrder(x.layout), inOrder(region)
		l, view := x.layout.View(fourDims(partShapes[i]))
		come, end := q.next(part.start, part.start+part.n)
		if !view || n.inputs[0] != whole || part.axis != q.axis || !part.joins || come || end != part.start+part.n ||
			a.Offset != base+b.Offset || a.Shape != b.Shape || a.Strides != b.Strides {
			return nil
		}
		q.cover(piece{start: part.start, n: part.n})
		p.layouts[i] = shifted(l, -base)
	}
	if len(q.gaps()) > 0 {
		return nil
	}
	return &p
}

// results sets the views a.DQ, a.DK and a.DV, which are the results of the primitive a. They have
// type t and the layouts in p. If p is nil they are dense, with the shapes partShapes joined to
// four dimensions.
func (p *projection) results(c *Context, a *device.AttentionGrad, partShapes [3]shape.Dims, t dtype.Type) {
	for i, d := range []*device.View{&a.DQ, &a.DK, &a.DV} {
		switch {
		case p != nil:
			*d = device.View{Type: t, Layout: p.layouts[i]}
		case c.Wants(i):
			*d = resultOf(t, fourDims(partShapes[i]))
		}
	}
}

// alloc allocates the three results in one memory. If p is nil, it returns three nils.
func (p *projection) alloc(op string, s *Scope, dev device.Device, t dtype.Type) (d [3]*Tensor) {
	if p == nil {
		return d
	}
	whole := alloc(op, s, dev, t, p.shape)
	defer whole.Free() // the parts keep the memory of whole
	for i := range d {
		d[i] = whole.handle(op, s, p.layouts[i])
	}
	return d
}

// partOf follows the graph back from e through the nodes of views. It returns the first node that
// takes a part of a tensor, or nil if there is none.
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

// inOrder sorts the dimensions of a layout by their order in memory, and joins them where possible.
// Two layouts that address the same elements become equal.
func inOrder(l shape.Layout) shape.Layout {
	order := make([]int, l.Shape.Rank())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return l.Strides.At(b) - l.Strides.At(a) })
	r := shape.Layout{Offset: l.Offset}
	for _, i := range order {
		if n := l.Shape.At(i); n != 1 { // the stride of a dimension of size 1 has no meaning
			r.Shape, r.Strides = r.Shape.Append(n), r.Strides.Append(l.Strides.At(i))
		}
	}
	return r.Collapse()
}
