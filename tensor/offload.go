package tensor

import (
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// offloadLeast is the size in bytes under which a saved value stays where it is: moving it costs
// more than it takes.
const offloadLeast = 4 << 10

// Offload makes ops of a scope keep what they save for gradients in the memory of the CPU,
// page-locked with pinned. They bring it back for Backward. autograd.SaveOnCPU says more about it.
func Offload(pinned bool) Option {
	return func(m *modes) { m.saver = &offloader{pinned: pinned, at: map[offloadKey]*offloaded{}} }
}

// An offloader is the packer of [Offload].
type offloader struct {
	pinned bool

	mu   sync.Mutex
	at   map[offloadKey]*offloaded
	last *offloaded // packed last
}

// offloadKey says what a value is: two ops that save one tensor share a copy.
type offloadKey struct {
	st      *storage
	version uint32
	layout  shape.Layout
}

// An offloaded value lies on the CPU, and while Backward needs it on its device as well.
type offloaded struct {
	of     *offloader
	key    offloadKey
	st     *storage // on the CPU
	dtype  dtype.Type
	dev    device.Device
	before *offloaded // packed before: Backward comes to it next

	// Under of.mu.
	refs int
	seen int      // how many nodes this run has passed
	back *storage // on the device again, nil if it is not
	gone bool
}

// copyStreams has a stream of its own for the copies of each device, so that they run beside its
// work.
var copyStreams struct {
	sync.Mutex
	of map[device.Device]device.Stream
}

func copyStream(op string, d device.Device) device.Stream {
	copyStreams.Lock()
	defer copyStreams.Unlock()
	if s := copyStreams.of[d]; s != nil {
		return s
	}
	s, err := d.NewStream(0)
	check(op, err)
	if copyStreams.of == nil {
		copyStreams.of = map[device.Device]device.Stream{}
	}
	copyStreams.of[d] = s
	return s
}

const offloadOp = "save_on_cpu"

// copying opens a scope for copies from and to d. In a capture they are recorded among the work
// that needs them: their memory comes free by its order.
func copying(s *Scope, d device.Device) *Scope {
	c := s.child()
	c.modes.noGrad, c.modes.saver, c.modes.anomaly = true, nil, 0
	if s.Capture() == nil {
		c.modes.stream = copyStream(offloadOp, d)
	}
	return c
}

// pack copies x to the CPU. What is there anyway stays: leaves and views of them, such as
// parameters, and what is on the CPU; and what is small, or an expanded view, whose copy would be
// larger than its memory.
func (o *offloader) pack(n *node, _ *saved, x *Tensor) packed {
	size := x.Size() * x.dtype.Size()
	if x.st.buf.Host() != nil || size < offloadLeast || size > x.st.buf.Size() || x.ofLeaf() {
		return nil
	}
	key := offloadKey{x.st, x.st.version.Load(), x.layout}
	o.mu.Lock()
	v := o.at[key]
	if v != nil && v.dtype == x.dtype {
		v.refs++
		o.mu.Unlock()
		return v
	}
	o.mu.Unlock()
	if !o.pinned {
		n.scope.uncapturable(offloadOp, "the host would wait for what is moved to memory of the CPU that is not page-locked")
	}
	s := copying(n.scope, x.st.dev)
	defer s.recycle()
	y := x.detachedIn(s).copyTo(offloadOp, s, hostDevice(), o.pinned)
	y.st.retain()
	v = &offloaded{of: o, key: key, st: y.st, dtype: x.dtype, dev: x.st.dev, refs: 1}
	o.mu.Lock()
	defer o.mu.Unlock()
	v.before, o.last = o.last, v
	if o.at[key] == nil {
		o.at[key] = v
	}
	return v
}

// ofLeaf reports whether x is a leaf that requires a gradient, or a view of one.
func (x *Tensor) ofLeaf() bool {
	b := x
	if x.viewed != nil {
		b = x.viewed
	}
	return b.needsGrad && b.node == nil
}

// unpack brings the value back, and the one before it on its way, so that its copy runs beside the
// work that needs this one.
func (v *offloaded) unpack(c *Context, _ *saved) *Tensor {
	s := copying(c.scope, v.dev)
	defer s.recycle()
	v.of.mu.Lock()
	defer v.of.mu.Unlock()
	v.bring(s)
	p := v.before
	for p != nil && p.gone {
		p = p.before
	}
	if v.before = p; p != nil {
		p.bring(s)
	}
	return handleOf(offloadOp, c.scope, v.back, shape.Dense(v.key.layout.Shape), v.dtype)
}

// bring queues the copy to the device.
func (v *offloaded) bring(s *Scope) {
	if v.back != nil {
		return
	}
	h := handleOf(offloadOp, s, v.st, shape.Dense(v.key.layout.Shape), v.dtype)
	y := h.copyTo(offloadOp, s, v.dev, true)
	y.st.retain()
	v.back = y.st
}

func (v *offloaded) passed(*engine) {
	v.of.mu.Lock()
	defer v.of.mu.Unlock()
	if v.seen++; v.seen >= v.refs {
		v.seen = 0
		v.leave()
	}
}

// leave gives the memory on the device up.
func (v *offloaded) leave() {
	if v.back != nil {
		v.back.release()
		v.back = nil
	}
}

func (v *offloaded) drop() {
	o := v.of
	o.mu.Lock()
	defer o.mu.Unlock()
	if v.seen > 0 { // this node has been passed
		v.seen--
	}
	if v.refs--; v.refs > 0 {
		return
	}
	v.leave()
	v.gone = true
	v.st.release()
	if o.at[v.key] == v {
		delete(o.at, v.key)
	}
	if o.last == v {
		o.last = v.before
	}
}

func (v *offloaded) holds() *node      { return nil }
func (v *offloaded) storage() *storage { return v.st }
