package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// MoveTo moves the leaf x itself to device d, with its gradient: the handle stays valid, so that a
// model and its optimizer keep their tensors. Views of x stay where they are, on the old memory.
// The elements become contiguous. A [Graph] that uses x refuses to be replayed from then on.
func (x *Tensor) MoveTo(d device.Device) {
	x.use("move_to")
	if d == nil {
		fail("move_to", ErrDevice, []*Tensor{x}, "the device is nil")
	}
	if x.node != nil {
		fail("move_to", ErrGrad, []*Tensor{x}, "only leaves can be moved; use To for a result")
	}
	b := x.base()
	if b != x {
		fail("move_to", ErrScope, []*Tensor{x}, "this is a handle of another tensor, made by In; move that one")
	}
	if x.st.dev != d {
		x.become(x.copyTo("move_to", x.scope, d, false))
	}
	x.gradMu.Lock()
	defer x.gradMu.Unlock()
	if g := x.grad; g != nil && g.st.dev != d {
		g.become(g.copyTo("move_to", g.scope, d, false))
	}
}

// become takes over y's storage; y is left freed.
func (x *Tensor) become(y *Tensor) {
	old := x.st
	y.st.retain()
	x.st, x.layout = y.st, y.layout
	x.recorded.Store(0)
	old.left.Store(true)
	x.st.version.Store(old.version.Load() + 1)
	y.drop()
	old.release()
}

// SetData makes the leaf x have the memory of y, which both have then: torch's x.data = y. The
// handle stays valid, so that a model and its optimizer keep their tensors; views of x keep the old
// memory. y has x's shape and type, lies contiguous, and belongs to x's scope or to one around it;
// a gradient that x has is on y's device. A [Graph] that uses x refuses to be replayed from then
// on.
func (x *Tensor) SetData(y *Tensor) {
	const op = "set_data"
	x.use(op)
	y.use(op)
	in := []*Tensor{x, y}
	switch {
	case x.node != nil || y.node != nil:
		fail(op, ErrGrad, in, "only a leaf has data that can be set, and only to those of a leaf; Detach makes one")
	case x.base() != x:
		fail(op, ErrScope, in, "this is a handle of another tensor, made by In; set the data of that one")
	case x.Shape() != y.Shape():
		fail(op, ErrShape, in, "the data have shape %v, the tensor has %v", y.Shape(), x.Shape())
	case x.dtype != y.dtype:
		fail(op, ErrType, in, "the data are of type %v, the tensor is of %v", y.dtype, x.dtype)
	case !y.layout.Contiguous():
		fail(op, ErrValue, in, "the data do not lie contiguous; use Contiguous")
	case !y.scope.encloses(x.scope):
		fail(op, ErrScope, in, "the data belong to %v, which may end before the tensor", y.scope)
	}
	if x.st == y.st && x.layout == y.layout {
		return
	}
	x.gradMu.Lock()
	defer x.gradMu.Unlock()
	if g := x.grad; g != nil && g.st.dev != y.st.dev {
		fail(op, ErrDevice, []*Tensor{x, y, g}, "the gradient is on %s, the data are on %s", g.st.dev.Name(), y.st.dev.Name())
	}
	x.become(y.detachedIn(x.scope))
}

// CastInPlace converts the leaf x itself to type t, with its gradient: the handle stays valid, so
// that a model and its optimizer keep their tensors. Views of x keep the old memory and type. A
// leaf that requires a gradient stays of floating point type. The elements become contiguous. A
// [Graph] that uses x refuses to be replayed from then on.
func (x *Tensor) CastInPlace(t dtype.Type) {
	const op = "cast_in_place"
	x.use(op)
	if x.node != nil {
		fail(op, ErrGrad, []*Tensor{x}, "only leaves can be converted in place; use Cast for a result")
	}
	if x.base() != x {
		fail(op, ErrScope, []*Tensor{x}, "this is a handle of another tensor, made by In; convert that one")
	}
	if !t.IsFloat() && x.needsGrad {
		fail(op, ErrType, []*Tensor{x}, "only floating point tensors have gradients, not %v", t)
	}
	x.gradMu.Lock()
	defer x.gradMu.Unlock()
	for _, y := range []*Tensor{x, x.grad} {
		if y == nil || y.dtype == t {
			continue
		}
		func() {
			h := y.detachedIn(y.scope) // without a graph
			defer h.Free()
			y.become(h.Cast(t))
			y.dtype = t
		}()
	}
}
