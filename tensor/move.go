package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// MoveTo moves the leaf x itself, and its gradient, to device d. The handle stays valid, so a model
// and its optimizer keep their tensors. Views of x keep the old memory. The elements become
// contiguous. A [Graph] that uses x then refuses to be replayed.
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
		x.useStorageOf(x.copyTo("move_to", x.scope, d, false))
	}
	x.gradMu.Lock()
	defer x.gradMu.Unlock()
	if g := x.grad; g != nil && g.st.dev != d {
		g.useStorageOf(g.copyTo("move_to", g.scope, d, false))
	}
}

// useStorageOf makes x use y's storage and frees y.
func (x *Tensor) useStorageOf(y *Tensor) {
	old := x.st
	y.st.retain()
	x.st, x.layout = y.st, y.layout
	x.recorded.Store(0)
	old.abandoned.Store(true)
	x.st.version.Store(old.version.Load() + 1)
	y.drop()
	old.release()
}

// SetData makes the leaf x use the memory of y, so that both share it, as torch's x.data = y does.
// The handle stays valid, so a model and its optimizer keep their tensors. Views of x keep the old
// memory. y must have x's shape and type, be contiguous, and belong to x's scope or an enclosing
// scope. If x has a gradient, the gradient must be on y's device. A [Graph] that uses x then
// refuses to be replayed.
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
	x.useStorageOf(y.detachedIn(x.scope))
}

// CastInPlace converts the leaf x itself, and its gradient, to type t. The handle stays valid, so a
// model and its optimizer keep their tensors. Views of x keep the old memory and type. If x
// requires a gradient, t must be floating point. The elements become contiguous. A [Graph] that
// uses x then refuses to be replayed.
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
			// h is not part of the graph, so Cast records nothing
			h := y.detachedIn(y.scope)
			defer h.Free()
			y.useStorageOf(h.Cast(t))
			y.dtype = t
		}()
	}
}
