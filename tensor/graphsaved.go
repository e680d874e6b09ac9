package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Normally an op saves a tensor for its gradient by counting a use of the storage. If the op's
// scope has a packer among its modes, the packer decides what is kept instead. The packer restores
// the value when a VJP asks for it. User hooks, recomputation and offloading are packers.

// A packer replaces the values that ops of a scope save. Several goroutines may call it.
type packer interface {
	// pack returns the value to keep instead of x, which node n saves. nil means x itself.
	pack(n *node, v *saved, x *Tensor) packed
}

// A packed value stands in for a saved tensor.
type packed interface {
	// unpack returns the value as a handle in c's scope that is not part of the graph.
	unpack(c *Context, v *saved) *Tensor
	// passed is called when run e has gone through the node that saved the value.
	passed(e *engine)
	// drop releases the value. It is called once.
	drop()
	// neededNode returns a node of the same scope that this value needs to restore itself, or nil.
	neededNode() *node
	// storage returns memory that the value keeps alive, or nil.
	storage() *storage
}

// save returns the value that node n keeps for t, in a scope with these modes.
func (m *modes) save(n *node, t *Tensor, result bool) saved {
	v := saved{layout: t.layout, dtype: t.dtype, version: t.st.version.Load(), from: edgeOf(t), needs: t.needsGrad, result: result}
	if m.saver != nil {
		if v.packed = m.saver.pack(n, &v, t); v.packed != nil {
			n.packs = true
			return v
		}
	}
	t.st.retain()
	v.st = t.st
	return v
}

func (v *saved) release() {
	if v.packed != nil {
		v.packed.drop()
		return
	}
	v.st.release()
}

// noted adds the memory that n saved to the ledger of s. If the scope is dropped without being
// closed, the garbage collector returns that memory.
func (n *node) noted(s *Scope) {
	for i := range n.saved {
		st := n.saved[i].st
		if p := n.saved[i].packed; p != nil {
			st = p.storage()
		}
		if st != nil {
			s.note(st)
		}
	}
}

// unpacked returns the value of v in c's scope. It is not part of the graph.
func (v *saved) unpacked(c *Context) *Tensor {
	x := v.packed.unpack(c, v)
	x.op = "saved by " + c.n.op
	x.recorded.Store(detached)
	return x
}

// passed tells the packed values of n that run e has gone through n.
func (n *node) passed(e *engine) {
	for i := range n.saved {
		if p := n.saved[i].packed; p != nil && !n.saved[i].released {
			p.passed(e)
		}
	}
}

// SavedTensorsHooks gives a scope hooks for the values that its ops save for gradients, as
// torch.autograd.graph.saved_tensors_hooks does. pack is called with each tensor that an op saves,
// as soon as the op has run. The value that pack returns is kept instead. unpack is called with
// that value whenever a VJP asks for the tensor. It returns a tensor of the same shape, type and
// device. Each call runs in a scope of its own without gradients: x.Scope() for pack, s for unpack.
// Tensors that the hooks make there live as long as the graph needs them, and no longer. The hooks
// must not change x or v in place. The hooks of an inner scope replace those of an outer one.
//
// x is a parameter, or another leaf, if x.IsLeaf() && x.NeedsGrad(). pack may return any value. If
// it returns a tensor, unpack receives another handle of it. Other values are passed on as they
// are. If such a value has a method Free(), the library calls Free when the graph no longer needs
// the value. A panic in pack reaches the caller of the op, and a panic in unpack the caller of
// Backward.
func SavedTensorsHooks(pack func(x *Tensor) any, unpack func(s *Scope, v any) *Tensor) Option {
	return func(m *modes) {
		if pack == nil || unpack == nil {
			fail("saved_tensors_hooks", ErrValue, nil, "pack or unpack is nil")
		}
		m.saver = &userHooks{pack, unpack}
	}
}

// userHooks is the packer of [SavedTensorsHooks].
type userHooks struct {
	packHook   func(x *Tensor) any
	unpackHook func(s *Scope, v any) *Tensor
}

// userValue is the value that a user's pack returned for a saved tensor.
type userValue struct {
	hooks   *userHooks
	value   any      // the value, if pack returned something else than a tensor
	st      *storage // the memory of the value, if pack returned a tensor
	layout  shape.Layout
	dtype   dtype.Type
	version uint32
	dev     device.Device // the device of the saved tensor
}

func (h *userHooks) pack(n *node, _ *saved, x *Tensor) packed {
	s := n.scope.child()
	defer s.recycle()
	s.modes.noGrad, s.modes.saver, s.modes.anomaly = true, nil, 0
	v := &userValue{hooks: h, dev: x.st.dev}
	switch r := h.packHook(x.handleWithGraph(s)).(type) {
	case *Tensor:
		r.use("saved_tensors_hooks")
		r.st.retain()
		v.st, v.layout, v.dtype, v.version = r.st, r.layout, r.dtype, r.st.version.Load()
	default:
		v.value = r
	}
	return v
}

func (u *userValue) unpack(c *Context, v *saved) *Tensor {
	const op = "saved_tensors_hooks"
	s := c.scope.child()
	defer s.recycle()
	s.modes.noGrad, s.modes.saver, s.modes.anomaly = true, nil, 0
	value := u.value
	if u.st != nil {
		if u.st.version.Load() != u.version {
			panic(v.modified(c.n, u.st.version.Load(), u.version))
		}
		value = handleOf(op, s, u.st, u.layout, u.dtype)
	}
	r := u.hooks.unpackHook(s, value)
	r.use(op)
	in := []*Tensor{r}
	switch want := u.dev; {
	case r.layout.Shape != v.layout.Shape:
		fail(op, ErrShape, in, "unpack returned shape %v for what %s saved, which has %v", r.layout.Shape, c.n.op, v.layout.Shape)
	case r.dtype != v.dtype:
		fail(op, ErrType, in, "unpack returned type %v for what %s saved, which has %v", r.dtype, c.n.op, v.dtype)
	case r.st.dev != want:
		fail(op, ErrDevice, in, "unpack returned a tensor on %s for what %s saved, which is on %s", r.st.dev.Name(), c.n.op, want.Name())
	}
	return handleOf(op, c.scope, r.st, r.layout, r.dtype)
}

func (u *userValue) passed(*engine) {}

func (u *userValue) drop() {
	if u.st != nil {
		u.st.release()
	} else if f, ok := u.value.(interface{ Free() }); ok {
		f.Free()
	}
	u.value = nil
}

func (u *userValue) neededNode() *node { return nil }
func (u *userValue) storage() *storage { return u.st }

// handleOf makes a handle in scope s that is not part of the graph.
func handleOf(op string, s *Scope, st *storage, l shape.Layout, t dtype.Type) *Tensor {
	x := &Tensor{st: st, layout: l, dtype: t, op: op}
	x.self = x
	x.recorded.Store(detached)
	st.retain()
	s.addOwned(x, false)
	return x
}
