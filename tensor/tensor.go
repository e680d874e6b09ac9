package tensor

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Tensor is a handle on a strided view of a storage. Use it by pointer only: ops refuse a copy of
// the struct.
type Tensor struct {
	self     *Tensor // the struct's own address, to detect copies
	st       *storage
	layout   shape.Layout
	scope    *Scope
	whyFreed string // reason why x was freed, if an error message should give it
	op       string // name of the op that made x, for messages
	made     *site  // call site of that op, nil if it was not recorded

	freed atomic.Bool
	// the storage's count of recorded writes when this handle got its position in the graph, or the
	// constant detached
	recorded  atomic.Uint32
	dtype     dtype.Type
	needsGrad bool
	frozen    bool    // for a leaf: true if the last call was SetRequiresGrad(false)
	node      *node   // how x was computed; nil for a leaf
	leaf      *Tensor // for a handle that In made: its leaf; nil if the tensor is itself the leaf
	// base of x: the tensor that x views, directly or through other views; nil if x is no view
	viewed *Tensor
	hooks  atomic.Pointer[hooks]

	gradMu sync.Mutex
	grad   *Tensor

	castWith atomic.Pointer[castGroup] // for a leaf: the latest group that it belongs to
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
		if x.whyFreed != "" {
			panic(newError(op, ErrFreed, []*Tensor{x}, "the tensor "+x.whyFreed).hint("x.In(s) lends a tensor to a scope, s.From(x) gives it away"))
		}
		panic(newError(op, ErrFreed, []*Tensor{x}, "the tensor was freed").hint("Free it after its last use, or take a Clone before"))
	}
}

// detached is the value of the field recorded in a handle that is not part of the graph. Such a
// handle reads whatever value the memory has.
const detached = ^uint32(0)

// mustBeCurrent panics if an in-place op with a gradient has changed x's memory through another
// handle, and x cannot move to the new value's position in the graph.
func (x *Tensor) mustBeCurrent(op string) {
	if !x.synced() {
		e := newError(op, ErrInPlace, []*Tensor{x}, "the memory was modified by an in-place operation with a gradient through another handle, of which this one does not know")
		panic(e.hint("take it again from the tensor that was changed, or use an op that returns a new tensor"))
	}
}

// drop releases the handle's count of the storage. Only the first call has an effect.
func (x *Tensor) drop() {
	if !x.freed.Swap(true) {
		x.st.release()
	}
}

// Free drops the handle. Its memory returns to the pool unless views or the graph still need it.
// Using x afterwards panics with an error that wraps [ErrFreed]. It is torch's del. Freeing twice
// is allowed.
func (x *Tensor) Free() {
	if x != nil && x.self == x {
		x.drop()
	}
}

// Shape returns the sizes of the dimensions.
func (x *Tensor) Shape() shape.Dims { return x.layout.Shape }

// Dim returns the size of dimension i. A negative i counts from the end.
func (x *Tensor) Dim(i int) int { return x.layout.Shape.At(x.axis("dim", i)) }

// Rank returns the number of dimensions.
func (x *Tensor) Rank() int { return x.layout.Shape.Rank() }

// Size returns the number of elements.
func (x *Tensor) Size() int { return x.layout.Size() }

// Strides returns the distance, in elements, between neighbours in each dimension.
func (x *Tensor) Strides() shape.Dims { return x.layout.Strides }

// Type returns the element type.
func (x *Tensor) Type() dtype.Type { return x.dtype }

// Device returns the device that x is on.
func (x *Tensor) Device() device.Device { return x.st.dev }

// Scope returns the scope that owns x. To make tensors in it on x's device use [Tensor.New].
func (x *Tensor) Scope() *Scope { return x.scope }

// IsContiguous reports whether the elements are dense in row-major order.
func (x *Tensor) IsContiguous() bool { return x.layout.Contiguous() }

// Version counts the in-place changes of x's storage.
func (x *Tensor) Version() uint32 { return x.st.version.Load() }

// axis resolves a possibly negative dimension, and panics if it is out of range.
func (x *Tensor) axis(op string, i int) int {
	a, ok := shape.Axis(i, x.Rank())
	if !ok {
		fail(op, ErrShape, []*Tensor{x}, "dimension %d is out of range for a tensor of rank %d", i, x.Rank())
	}
	return a
}

// origin describes where x comes from, for messages.
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
	s.addOwned(y, false)
	return y
}

// In returns a handle of x in scope s, which must be inside of x's own scope. If x's scope is
// instead s, or inside of s, In returns x itself. An expression over the handle belongs to s. The
// call does not move x: x stays valid and in its own scope. s.From(x) moves x to s. Gradients reach
// x through the handle.
func (x *Tensor) In(s *Scope) *Tensor {
	x.use("in")
	s.markUsed()
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

// base returns the leaf that x is a handle of, or x.
func (x *Tensor) base() *Tensor {
	if x.leaf != nil {
		return x.leaf
	}
	return x
}

func (x *Tensor) deviceView() device.View {
	return device.View{Buf: x.st.buf, Type: x.dtype, Layout: x.layout}
}

// isParameter reports whether x is like the parameters of layers: a leaf of the root scope that
// requires a gradient.
func (x *Tensor) isParameter() bool {
	return x.needsGrad && x.node == nil && x.base().scope == root
}

// deviceText returns the name of a device. If the device has no memory, the text says that too.
func deviceText(d device.Device) string {
	if d.Info().Meta {
		return d.Name() + " without memory"
	}
	return d.Name()
}

// sameDevice returns the device of all tensors in the list. It panics if they are on several
// devices.
func sameDevice(op string, in []*Tensor) device.Device {
	d := in[0].st.dev
	for _, t := range in[1:] {
		if t.st.dev != d {
			e := newError(op, ErrDevice, in, "operands are on "+deviceText(d)+" and "+deviceText(t.st.dev))
			if d.Info().Meta != t.st.dev.Info().Meta {
				e.hint("a tensor on a device without memory has no values; nn.LoadStateDict gives them to a model that nn.SkipInit left without")
			} else if t.isParameter() != in[0].isParameter() {
				// the tensors are probably a layer's weight and its input
				e.hint("x.To(dev) or nn.Follow(model, x) moves the input, nn.To(model, dev) the model")
			} else {
				e.hint("move one with To, CUDA or CPU")
			}
			panic(e)
		}
	}
	return d
}
