package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// MoveTo moves the leaf x itself to device d, with its gradient: the handle stays valid, so that a model and its optimizer
// keep their tensors. Views of x stay where they are, on the old memory. The elements become contiguous. A [Graph] that uses x refuses to be
// replayed from then on.
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

// CastInPlace converts the leaf x itself to type t, with its gradient: the handle stays valid, so that a model and its optimizer keep
// their tensors. Views of x keep the old memory and type. A leaf that requires a gradient stays of floating point type. The elements
// become contiguous. A [Graph] that uses x refuses to be replayed from then on.
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
