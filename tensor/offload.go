package tensor

import (
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// offloadLeast is the size in bytes below which a saved value stays on its device. Moving it would
// cost more than its memory is worth.
const offloadLeast = 4 << 10

// Offload makes ops of a scope keep the values that they save for gradients in the CPU's memory,
// page-locked if pinned is true. Backward copies them back when it needs them. See
// autograd.SaveOnCPU.
func Offload(pinned bool) Option {
	return func(m *modes) { m.saver = &offloader{pinned: pinned, values: map[offloadKey]*offloaded{}} }
}

// An offloader is the packer of [Offload].
type offloader struct {
	pinned bool

	mu     sync.Mutex
	values map[offloadKey]*offloaded
	last   *offloaded // the value that was packed last
}

// offloadKey identifies a value, so that two ops that save the same value share one copy.
type offloadKey struct {
	st      *storage
	version uint32
	layout  shape.Layout
}

// An offloaded value is on the CPU. While Backward needs the value, a copy is on the value's device
// as well.
type offloaded struct {
	offloader *offloader
	key       offloadKey
	st        *storage // the value's memory on the CPU
	dtype     dtype.Type
	dev       device.Device
	previous  *offloaded // the previous packed value, which Backward needs after this one

	// offloader.mu guards the fields below.
	refs     int
	seen     int      // number of nodes that saved the value and have run in this backward pass
	onDevice *storage // the copy's memory on the device; nil if there is no copy there
	dropped  bool
}

// copyStreams holds, for each device, a stream that is used only for copies, so that they run at
// the same time as other work.
var copyStreams struct {
	sync.Mutex
	streams map[device.Device]device.Stream
}

func copyStream(op string, d device.Device) device.Stream {
	copyStreams.Lock()
	defer copyStreams.Unlock()
	if s := copyStreams.streams[d]; s != nil {
		return s
	}
	s, err := d.NewStream(0)
	check(op, err)
	if copyStreams.streams == nil {
		copyStreams.streams = map[device.Device]device.Stream{}
	}
	copyStreams.streams[d] = s
	return s
}

const offloadOp = "save_on_cpu"

// copying opens a scope for copies from and to d. In a capture the copies are recorded on the
// stream of the work that needs them. The memory of a copy is then reused in the order of work on
// that stream.
func copying(s *Scope, d device.Device) *Scope {
	c := s.child()
	c.modes.noGrad, c.modes.saver, c.modes.anomaly = true, nil, 0
	if s.Capture() == nil {
		c.modes.stream = copyStream(offloadOp, d)
	}
	return c
}

// pack copies x to the CPU. It leaves some values where they are: values on the CPU, small values,
// leaves that require a gradient, and views of such leaves. The leaves stay in memory anyway.
// Expanded views stay too, because their copy would be larger than their memory.
func (o *offloader) pack(n *node, _ *saved, x *Tensor) packed {
	size := x.Size() * x.dtype.Size()
	if x.st.buf.Host() != nil || size < offloadLeast || size > x.st.buf.Size() || x.ofLeaf() {
		return nil
	}
	key := offloadKey{x.st, x.st.version.Load(), x.layout}
	o.mu.Lock()
	v := o.values[key]
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
	v = &offloaded{offloader: o, key: key, st: y.st, dtype: x.dtype, dev: x.st.dev, refs: 1}
	o.mu.Lock()
	defer o.mu.Unlock()
	v.previous, o.last = o.last, v
	if o.values[key] == nil {
		o.values[key] = v
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

// unpack copies the value back to the device. It also starts to copy the value that Backward needs
// next, so that this copy runs at the same time as the work on the current value.
func (v *offloaded) unpack(c *Context, _ *saved) *Tensor {
	s := copying(c.scope, v.dev)
	defer s.recycle()
	v.offloader.mu.Lock()
	defer v.offloader.mu.Unlock()
	v.bring(s)
	p := v.previous
	for p != nil && p.dropped {
		p = p.previous
	}
	if v.previous = p; p != nil {
		p.bring(s)
	}
	return handleOf(offloadOp, c.scope, v.onDevice, shape.Dense(v.key.layout.Shape), v.dtype)
}

// bring queues the copy to the device, unless the value is already there.
func (v *offloaded) bring(s *Scope) {
	if v.onDevice != nil {
		return
	}
	h := handleOf(offloadOp, s, v.st, shape.Dense(v.key.layout.Shape), v.dtype)
	y := h.copyTo(offloadOp, s, v.dev, true)
	y.st.retain()
	v.onDevice = y.st
}

func (v *offloaded) passed(*engine) {
	v.offloader.mu.Lock()
	defer v.offloader.mu.Unlock()
	if v.seen++; v.seen >= v.refs {
		v.seen = 0
		v.releaseOnDevice()
	}
}

func (v *offloaded) releaseOnDevice() {
	if v.onDevice != nil {
		v.onDevice.release()
		v.onDevice = nil
	}
}

func (v *offloaded) drop() {
	o := v.offloader
	o.mu.Lock()
	defer o.mu.Unlock()
	if v.seen > 0 { // the node that drops the value has run in this backward pass
		v.seen--
	}
	if v.refs--; v.refs > 0 {
		return
	}
	v.releaseOnDevice()
	v.dropped = true
	v.st.release()
	if o.values[v.key] == v {
		delete(o.values, v.key)
	}
	if o.last == v {
		o.last = v.previous
	}
}

func (v *offloaded) neededNode() *node { return nil }
func (v *offloaded) storage() *storage { return v.st }
