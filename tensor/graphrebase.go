package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// In-place ops in a graph work as in torch, where this is called rebasing history. An in-place op
// gives the tensor that it changes a new position in the graph. If that tensor is a view, its base
// has changed too. The base's new value is its old value with the view's elements replaced. A node
// with spliceFunc records this, and the view becomes a view of the new value. All other views of
// the base have changed as well. The method synced gives them their new position when they are used
// next. A view compares its count of recorded writes with the base's count, to notice the change.

// synced updates x's position in the graph and reports whether that was possible.
func (x *Tensor) synced() bool {
	n, b := x.st.recorded.Load(), x.viewed
	switch r := x.recorded.Load(); {
	case r == n:
		return true
	case r == detached && (b == nil || b.st != x.st || b.recorded.Load() == detached):
		// A detached x needs no update, unless its base has joined a graph since x was detached.
		return true
	}
	if b == nil || b.st != x.st || x.freed.Load() || x.scope.modes.noGrad || !b.scope.encloses(x.scope) {
		return false
	}
	x.gradMu.Lock() // several goroutines that read x may try to record it at the same time
	defer x.gradMu.Unlock()
	if x.recorded.Load() == n {
		return true
	}
	if b.recorded.Load() != n {
		return false
	}
	x.recordView(b, n)
	return true
}

// recordView records x as a view of b's current value. n is the number of recorded writes to b's
// memory.
func (x *Tensor) recordView(b *Tensor, n uint32) {
	if b.needsGrad {
		y := &Tensor{st: x.st, layout: x.layout, dtype: x.dtype, scope: x.scope, made: x.made}
		record(y, &viewFunc{name: "as_strided", vjp: stridedVJP(b.layout, x.layout)}, []*Tensor{b}, nil)
		x.setNode(y.node)
	} else {
		x.setNode(nil)
	}
	x.recorded.Store(n)
}

// rebasable panics unless x, a view of b, may be changed in place by an op in scope s that records
// a graph.
func (x *Tensor) rebasable(op string, s *Scope, b *Tensor, all []*Tensor) {
	switch {
	case b.scope != s:
		e := newError(op, ErrScope, all, "the result would hang the graph of "+s.String()+" on a tensor of "+b.scope.String()+", of which the one changed in place is a view")
		panic(e.hint("use NoGrad, or an op that returns a new tensor"))
	case b.layout.Overlaps():
		panic(newError(op, ErrShape, all, "the tensor changed in place is a view of an expanded one: several elements share one place").hint("use Clone first"))
	case b.recorded.Load() != b.st.recorded.Load() && b.recorded.Load() != detached:
		e := newError(op, ErrInPlace, all, "the tensor changed in place is a view of one whose memory was modified by an in-place operation with a gradient through another handle")
		panic(e.hint("use an op that returns a new tensor"))
	}
}

// usableBase returns the tensor that x is a view of. It returns nil if x is not a view, or if the
// program can no longer use that tensor.
func (x *Tensor) usableBase() *Tensor {
	b := x.viewed
	if b == nil || b.st != x.st || b.freed.Load() && b.scope != x.scope {
		return nil
	}
	return b
}

// replace stores y in x, in place. It moves y's position in the graph to x and frees y. The caller
// has checked that x may be written.
func (x *Tensor) replace(op string, s *Scope, y *Tensor) {
	x.store(op, s, y)
	if y.node != nil {
		x.rebase(op, y.node)
	} else { // the op has no gradient
		x.overwritten(op, s, x)
	}
	y.Free()
}

// rebase makes n the node of x, which has been changed in place, and updates x's base.
func (x *Tensor) rebase(op string, n *node) {
	b := x.usableBase()
	if b == nil {
		x.viewed = nil
		x.setNode(n)
		x.recorded.Store(x.st.recorded.Add(1))
		return
	}
	y := &Tensor{st: x.st, layout: x.layout, dtype: x.dtype, scope: x.scope, node: n, needsGrad: true}
	changed := &Tensor{st: b.st, layout: b.layout, dtype: b.dtype, scope: x.scope, made: n.made}
	record(changed, &spliceFunc{op, b.layout, x.layout}, []*Tensor{b, y}, nil)
	b.setNode(changed.node)
	writes := x.st.recorded.Add(1)
	b.recorded.Store(writes)
	x.gradMu.Lock()
	defer x.gradMu.Unlock()
	x.recordView(b, writes)
}

// spliceFunc replaces the elements of a base that lie in one of its views. Its Forward is never
// called, because an in-place op has written the elements already.
type spliceFunc struct {
	op         string
	base, view shape.Layout
}

func (f *spliceFunc) Name() string { return f.op }

// Forward is never called: Tensor.rebase records the op.
func (f *spliceFunc) Forward(*Context, []*Tensor) *Tensor {
	panic("tensor: " + f.op + " is done in place")
}

// VJP copies g into a flat tensor with the base's layout. In this tensor the view's elements are
// the gradient of the view's new value. The other elements are the gradient of the base's old
// value.
func (f *spliceFunc) VJP(c *Context, g *Tensor) []*Tensor {
	lo, n := storageOf(f.base, f.view)
	flat := g.spread(f.op, f.base, lo, n)
	var before, put *Tensor
	if c.Wants(0) {
		mask := c.Scope().On(g.st.dev).Typed(dtype.Bool).Zeros(n)
		mask.handle(f.op, c.Scope(), shifted(f.view, -lo)).fill(1)
		// These elements are -0 instead of 0, because the gradient through the view is added to
		// them: -0 + x keeps the sign of a zero x.
		before = flat.MaskedFill(mask, math.Copysign(0, -1)).strided(shifted(f.base, -lo))
	}
	if c.Wants(1) {
		put = flat.strided(shifted(f.view, -lo))
	}
	return []*Tensor{before, put}
}

// storageOf returns the first element, and the number of elements, of the range of storage that two
// layouts cover.
func storageOf(a, b shape.Layout) (lo, n int) {
	lo, hi, ok := a.Span()
	if l, h, other := b.Span(); other {
		if !ok {
			lo, hi = l, h
		}
		lo, hi, ok = min(lo, l), max(hi, h), true
	}
	if !ok {
		return 0, 0
	}
	return lo, hi - lo + 1
}

func shifted(l shape.Layout, n int) shape.Layout {
	if l.Offset += n; l.Size() == 0 {
		l.Offset = 0
	}
	return l
}

// spread returns a flat tensor of n elements that has the elements of x at the positions of layout
// l, shifted by -lo, and 0 elsewhere. Elements at the same position are added.
func (x *Tensor) spread(op string, l shape.Layout, lo, n int) *Tensor {
	switch l = shifted(l, -lo); {
	case l.Size() == n && l.Contiguous():
		return x.Contiguous().reshape(shape.Of(n))
	case l.Overlaps():
		flat := x.reshape(shape.Of(x.Size()))
		return Apply(scatterFunc{0, shape.Of(n), op + ".grad", false}, flat, positions(x.scope, x, l.Shape, l.Strides, l.Offset))
	}
	return Apply(&putFunc{op + ".grad", n, l}, x)
}

// strided returns a view of the contiguous x with layout l. The offset in l counts from x's first
// element.
func (x *Tensor) strided(l shape.Layout) *Tensor { return x.asStrided(shifted(l, x.layout.Offset)) }

// putFunc writes its operand into n zeros at the positions of layout l. No two elements share a
// position.
type putFunc struct {
	op string
	n  int
	l  shape.Layout
}

func (f *putFunc) Name() string { return f.op }

func (f *putFunc) Forward(c *Context, in []*Tensor) *Tensor {
	s := c.Scope()
	y := s.On(in[0].st.dev).Typed(in[0].dtype).Zeros(f.n)
	y.handle(f.op, s, f.l).store(f.op, s, in[0])
	return y
}

func (f *putFunc) VJP(_ *Context, g *Tensor) []*Tensor {
	return []*Tensor{g.Contiguous().strided(f.l)}
}

func (x *Tensor) asStrided(l shape.Layout) *Tensor {
	return x.view("as_strided", l, stridedVJP(x.layout, l))
}

// stridedVJP returns the VJP of a view. base is the layout of a tensor, and l is the layout of its
// view. The VJP computes the tensor's gradient from the view's gradient.
func stridedVJP(base, l shape.Layout) func(c *Context, g *Tensor) *Tensor {
	return func(c *Context, g *Tensor) *Tensor {
		lo, n := storageOf(base, l)
		return g.spread("as_strided", l, lo, n).strided(shifted(base, -lo))
	}
}
