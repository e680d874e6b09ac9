package tensor

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Tensor is a handle on a strided view of a storage. It is used by pointer; a copied struct is
// refused.
type Tensor struct {
	self   *Tensor // guards against copies
	st     *storage
	layout shape.Layout
	dtype  dtype.Type
	scope  *Scope
	freed  atomic.Bool
	gone   string // why it was freed, where that is not plain
	op     string // that made it, for messages
	made   *site  // nil unless its call site was recorded

	// the storage's count of recorded writes when this handle took its place in the graph, or
	// detached
	recorded  atomic.Uint32
	needsGrad bool
	frozen    bool    // of a leaf: SetRequiresGrad(false) was said of it last
	node      *node   // how it was computed; nil for a leaf
	leaf      *Tensor // the leaf whose handle this is (made by In), nil: itself
	// the tensor that this is a view of, directly or through other views; nil for none
	viewed *Tensor
	hooks  atomic.Pointer[hooks]

	gradMu sync.Mutex
	grad   *Tensor

	castWith atomic.Pointer[castGroup] // of a leaf: what it was last cast together with
}

// use panics unless x may be an operand of op.
func (x *Tensor) use(op string) {
	switch {
	case x == nil:
		panic(newError(op, ErrValue, nil, "an operand is nil").hint("a batch of several inputs has no X: batch.Tensor gives them by name"))
	case x.self != x:
		fail(op, ErrValue, nil, "an operand is a copy of a Tensor struct: use tensors by pointer")
	case x.freed.Load():
		if x.scope != nil && x.scope.parent != nil && x.scope.isClosed() {
			panic(x.scope.closedError(op, x))
		}
		if x.gone != "" {
			panic(newError(op, ErrFreed, []*Tensor{x}, "the tensor "+x.gone).hint("x.In(s) lends a tensor to a scope, s.From(x) gives it away"))
		}
		panic(newError(op, ErrFreed, []*Tensor{x}, "the tensor was freed").hint("Free it after its last use, or take a Clone before"))
	}
}

// detached marks a handle that reads whatever value is there and has no place in the graph.
const detached = ^uint32(0)

// current panics if x's memory was changed through another handle by an in-place op that recorded a
// gradient, and x cannot take the place of its value in the graph.
func (x *Tensor) current(op string) {
	if !x.synced() {
		e := newError(op, ErrInPlace, []*Tensor{x}, "the memory was modified by an in-place operation with a gradient through another handle, of which this one does not know")
		panic(e.hint("take it again from the tensor that was changed, or use an op that returns a new tensor"))
	}
}

// drop gives up the handle's count, once.
func (x *Tensor) drop() {
	if !x.freed.Swap(true) {
		x.st.release()
	}
}

// Free drops the handle: its memory goes back to the pool unless views or the graph still need it.
// Using x afterwards panics with an error that wraps [ErrFreed]. It is torch's del. Freeing twice
// is allowed.
func (x *Tensor) Free() {
	if x != nil && x.self == x {
		x.drop()
	}
}

// Shape returns the sizes of the dimensions.
func (x *Tensor) Shape() shape.Dims { return x.layout.Shape }

// Dim returns the size of dimension i; negative i count from the end.
func (x *Tensor) Dim(i int) int { return x.layout.Shape.At(x.axis("dim", i)) }

// Rank returns the number of dimensions.
func (x *Tensor) Rank() int { return x.layout.Shape.Rank() }

// Size returns the number of elements.
func (x *Tensor) Size() int { return x.layout.Size() }

// Strides returns the distance, in elements, between neighbours in each dimension.
func (x *Tensor) Strides() shape.Dims { return x.layout.Strides }

// Type returns the element type.
func (x *Tensor) Type() dtype.Type { return x.dtype }

// Device returns where x lives.
func (x *Tensor) Device() device.Device { return x.st.dev }

// Scope returns the scope that owns x. What is made in it, on x's device, comes from [Tensor.New].
func (x *Tensor) Scope() *Scope { return x.scope }

// IsContiguous reports whether the elements lie densely in row-major order.
func (x *Tensor) IsContiguous() bool { return x.layout.Contiguous() }

// Version counts the in-place changes of x's storage.
func (x *Tensor) Version() uint32 { return x.st.version.Load() }

// axis resolves a possibly negative dimension.
func (x *Tensor) axis(op string, i int) int {
	a, ok := shape.Axis(i, x.Rank())
	if !ok {
		fail(op, ErrShape, []*Tensor{x}, "dimension %d is out of range for a tensor of rank %d", i, x.Rank())
	}
	return a
}

// origin says in words where x comes from.
func (x *Tensor) origin() string {
	k := x.sketch()
	return k.origin()
}

// handle makes another handle on x's storage, with layout l, in scope s.
func (x *Tensor) handle(op string, s *Scope, l shape.Layout) *Tensor {
	y := &Tensor{st: x.st, layout: l, dtype: x.dtype, op: op}
	y.recorded.Store(x.recorded.Load())
	if s.modes.sites {
		y.made = deepSite()
	}
	y.self = y
	x.st.retain()
	s.own(y, false)
	return y
}

// In returns a handle of x in scope s, inside x's own: an expression over it belongs to s. It lends
// x, which stays valid and stays where it is; s.From(x) gives x away. Gradients reach x through the
// handle. If x is as young as s, or younger, it is x itself.
func (x *Tensor) In(s *Scope) *Tensor {
	x.use("in")
	s.asked()
	if x.scope == s {
		return x
	}
	if s.encloses(x.scope) {
		return x
	}
	if !x.scope.encloses(s) {
		panic(newError("in", ErrScope, []*Tensor{x}, fmt.Sprintf("%v is not inside %v, which owns the tensor", s, x.scope)).
			hint("tensor.Do opens a scope inside the root scope; Do and New of the latter open one inside it"))
	}
	x.synced()
	y := x.handle("in", s, x.layout)
	y.op, y.made = x.op, x.made
	y.needsGrad, y.node, y.viewed = x.needsGrad, x.node, x.viewed
	if x.node == nil {
		y.leaf = x.base()
	}
	return y
}

// base returns the leaf that x is a handle of.
func (x *Tensor) base() *Tensor {
	if x.leaf != nil {
		return x.leaf
	}
	return x
}

// deviceView returns the driver's view of x.
func (x *Tensor) deviceView() device.View {
	return device.View{Buf: x.st.buf, Type: x.dtype, Layout: x.layout}
}

// isParameter reports whether x is what layers hold: a leaf of the root scope that requires a
// gradient.
func (x *Tensor) isParameter() bool {
	return x.needsGrad && x.node == nil && x.base().scope == root
}

// deviceText names a device, and tells one without memory from the device of its name.
func deviceText(d device.Device) string {
	if d.Info().Meta {
		return d.Name() + " without memory"
	}
	return d.Name()
}

// sameDevice returns the device that all of in live on.
func sameDevice(op string, in []*Tensor) device.Device {
	d := in[0].st.dev
	for _, t := range in[1:] {
		if t.st.dev != d {
			e := newError(op, ErrDevice, in, "operands are on "+deviceText(d)+" and "+deviceText(t.st.dev))
			if d.Info().Meta != t.st.dev.Info().Meta {
				e.hint("a tensor on a device without memory has no values; nn.LoadStateDict gives them to a model that nn.SkipInit left without")
			} else if t.isParameter() != in[0].isParameter() {
				// a layer's weight and what comes into the layer
				e.hint("x.To(dev) or nn.Follow(model, x) moves the input, nn.To(model, dev) the model")
			} else {
				e.hint("move one with To, CUDA or CPU")
			}
			panic(e)
		}
	}
	return d
}
