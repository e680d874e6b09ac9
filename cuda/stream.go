package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/callsite"
)

// stream is a non-blocking stream of the driver.
type stream struct {
	dev      *Device
	handle   cu.Stream
	slot     int // index of the record that holds the stream's index errors
	priority int // the driver's priority, where lower is more urgent
	// lane that records the stream's work; nil if it is not being recorded
	rec atomic.Pointer[lane]
	// the recording's first stream on this device, if that is another stream; otherwise nil
	main *stream
	// a bit for the slot of this stream, and for the slot of each stream for which it has waited
	mask atomic.Uint64
}

var (
	_ device.Stream = (*stream)(nil)
	_ device.Event  = (*event)(nil)
)

// idleStream is a driver stream whose Go value is garbage.
type idleStream struct {
	priority int
	handle   cu.Stream
	slot     int
}

// streamPool holds driver streams whose Go values are garbage. A later [Device.NewStream] with the
// same priority reuses them. Streams are never destroyed, because work may be queued on them, and
// blocks of memory depend on their order.
type streamPool struct {
	mu            sync.Mutex
	idle          []idleStream
	next          int // next unused slot for index errors
	least, urgent int // range of the driver's priorities, where lower is more urgent
	made          map[cu.Stream]madeAt
}

// madeAt is the call stack of the call that created a stream.
type madeAt [16]uintptr

// note stores the call stack of the call that created the stream h.
func (p *streamPool) note(h cu.Stream, at madeAt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil {
		p.made = map[cu.Stream]madeAt{}
	}
	p.made[h] = at
}

// streamName describes a stream in words, with the call that created it.
func (d *Device) streamName(h cu.Stream) string {
	if d.main != nil && h == d.main.handle {
		return "the default stream"
	}
	d.streams.mu.Lock()
	at, ok := d.streams.made[h]
	d.streams.mu.Unlock()
	if !ok {
		return fmt.Sprintf("stream %#x", uint64(h))
	}
	n := slices.Index(at[:], 0)
	if n < 0 {
		n = len(at)
	}
	if site := callsite.First(at[:n]); site != "" {
		return fmt.Sprintf("stream %#x, made at %s,", uint64(h), site)
	}
	return fmt.Sprintf("stream %#x, one of the library's own,", uint64(h))
}

func (p *streamPool) put(s idleStream) {
	p.mu.Lock()
	p.idle = append(p.idle, s)
	p.mu.Unlock()
}

// newStream creates a stream with a priority of the driver, where lower is more urgent. The
// device's context is current.
func (d *Device) newStream(priority int) (*stream, error) {
	p := d.streams
	priority = min(max(priority, p.urgent), p.least)
	p.mu.Lock()
	for i, s := range p.idle {
		if s.priority == priority {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			p.mu.Unlock()
			return d.wrap(s), nil
		}
	}
	slot := p.next % indexSlots
	p.next++
	p.mu.Unlock()
	h, err := d.api.StreamCreate(cu.StreamNonBlocking, priority)
	if err != nil {
		return nil, d.fault("", err)
	}
	d.p.owners.Store(h, d)
	return d.wrap(idleStream{priority, h, slot}), nil
}

func (d *Device) wrap(i idleStream) *stream {
	s := &stream{dev: d, handle: i.handle, slot: i.slot, priority: i.priority}
	s.mask.Store(s.own())
	return s
}

// DefaultStream returns the stream that is used if the caller chooses none. It is not the driver's
// legacy stream.
func (d *Device) DefaultStream() device.Stream { return d.main }

// NewStream returns another stream. A higher priority is more urgent; 0 is the default. The
// priority is clamped to [PriorityRange]. The stream lives as long as it is reachable.
func (d *Device) NewStream(priority int) (device.Stream, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	s, err := d.newStream(-priority)
	if err != nil {
		return nil, err
	}
	var at madeAt
	runtime.Callers(2, at[:])
	d.streams.note(s.handle, at)
	runtime.AddCleanup(s, d.streams.put, idleStream{min(max(-priority, d.streams.urgent), d.streams.least), s.handle, s.slot})
	return s, nil
}

// stream returns s as a stream of this package, or the default stream if s is nil.
func (d *Device) stream(op string, s device.Stream) (*stream, error) {
	if s == nil {
		return d.main, nil
	}
	own, ok := s.(*stream)
	if !ok || own == nil {
		return nil, d.refusal(op, "stream", "not a stream of a CUDA device")
	}
	if own.dev != d {
		return nil, d.refusal(op, "stream", fmt.Sprintf("it belongs to %s, not to %s", own.dev.name, d.name))
	}
	return own, nil
}

func (s *stream) own() uint64           { return 1 << s.slot }
func (s *stream) Device() device.Device { return s.dev }

// ID returns the driver's handle of the stream.
func (s *stream) ID() uint64 { return uint64(s.handle) }

// Record returns an event that marks the end of the work queued so far.
func (s *stream) Record() (device.Event, error) {
	if l := s.rec.Load(); l != nil {
		return l.mark(), nil
	}
	h, err := s.dev.record(s.handle)
	if err != nil {
		return nil, err
	}
	return &event{s: s, handle: h, mask: s.mask.Load()}, nil
}

// Wait makes later work wait for the event, which may belong to another device. If the event
// belongs to another driver, the host waits for it now.
func (s *stream) Wait(e device.Event) error {
	if x, ok := e.(*Event); ok {
		return x.delayStream(s)
	}
	if m, ok := e.(*recordedEvent); ok && m.joins(s) {
		return nil
	}
	own, ok := e.(*event)
	switch {
	case e == nil:
		return nil
	case !ok || own.s.dev.p != s.dev.p:
		return e.Wait()
	case own.released.Load():
		return errReleased
	}
	if err := s.dev.enter(); err != nil {
		return err
	}
	defer s.dev.leave()
	if err := s.dev.api.StreamWaitEvent(s.handle, own.handle); err != nil {
		return s.dev.fault("", err)
	}
	if own.s.dev == s.dev {
		s.follow(own.mask)
	}
	return nil
}

// follow records that later work of s runs after the work of other streams: those whose slots have
// a bit in mask. A wait for s then also reports the index errors of these streams.
func (s *stream) follow(mask uint64) {
	s.mask.Or(mask)
	if s.main != nil {
		s.main.mask.Or(mask)
	}
}

// Synchronize waits for the work queued so far.
func (s *stream) Synchronize() error {
	if t := device.Tracing(); t != nil {
		defer s.dev.tracedWait(t, s, "stream synchronize")()
	}
	return s.synchronize()
}

func (s *stream) synchronize() error {
	if err := s.dev.enter(); err != nil {
		return err
	}
	defer s.dev.leave()
	return s.await(func() error { return s.dev.api.StreamSynchronize(s.handle) })
}

var errReleased = errors.New("cuda: the event has been released")

// event is an event of the driver that marks the end of some work of a stream.
type event struct {
	s        *stream
	handle   cu.Event
	mask     uint64
	released atomic.Bool
}

// Done reports whether the work before the event is done. It returns true if the device has failed.
func (e *event) Done() bool { return e.released.Load() || e.s.dev.done(e.handle) }

// Wait blocks until the work before the event is done, and returns an error of that work.
func (e *event) Wait() error {
	if e.released.Load() {
		return errReleased
	}
	d := e.s.dev
	if t := device.Tracing(); t != nil {
		defer d.tracedWait(t, e.s, "event wait")()
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := d.api.EventSynchronize(e.handle); err != nil {
		return d.fault("", err)
	}
	if x := d.index.takeFault(e.mask); x != nil {
		return x
	}
	return nil
}

// Release gives the event back to the pool of events. Waits that have begun continue.
func (e *event) Release() {
	if !e.released.Swap(true) {
		e.s.dev.recycle(e.handle)
	}
}

type eventPool struct {
	mu   sync.Mutex
	free []cu.Event
}

// record records an event on a stream of this device.
func (d *Device) record(s cu.Stream) (cu.Event, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	p := &d.events
	p.mu.Lock()
	var h cu.Event
	if n := len(p.free) - 1; n >= 0 {
		h = p.free[n]
		p.free = p.free[:n]
	}
	p.mu.Unlock()
	if h == 0 {
		var err error
		if h, err = d.api.EventCreate(cu.EventDisableTiming | cu.EventBlockingSync); err != nil {
			return 0, d.fault("", err)
		}
	}
	if err := d.api.EventRecord(h, s); err != nil {
		d.recycle(h)
		return 0, d.fault("", err)
	}
	return h, nil
}

func (d *Device) recycle(h cu.Event) {
	d.events.mu.Lock()
	d.events.free = append(d.events.free, h)
	d.events.mu.Unlock()
}

// done reports whether an event is done. It returns true if the device has failed.
func (d *Device) done(h cu.Event) bool {
	if d.enter() != nil {
		return true
	}
	defer d.leave()
	ok, err := d.api.EventQuery(h)
	if err != nil {
		_ = d.fault("", err) // a sticky fault is stored in the device, and a later call returns it
		return true
	}
	return ok
}

// Stream is a queue of a GPU's work: torch.cuda.Stream. Every stream of this package's devices
// implements it, so a type assertion turns a [device.Stream] of a GPU into a Stream.
//
// Ops on tensors synchronize streams automatically. An op waits for the streams that wrote its
// operands, and memory is reused only when all streams are done with it. Explicit events and waits
// are for work outside of tensors, and for measurements.
//
// Record is torch's record_event, Wait its wait_event, Synchronize its synchronize. With the option
// tensor.Stream a scope queues its work on a stream (torch's with torch.cuda.stream(s)).
type Stream interface {
	device.Stream
	// Priority returns the priority that was passed to NewStream, clamped to [PriorityRange]. A
	// higher priority is more urgent.
	Priority() int
	// Query reports whether all work queued so far is done, without waiting. The error is a fault
	// of that work, or a *[device.RecordError] while the stream's work is being recorded.
	Query() (done bool, err error)
	// WaitStream makes later work of this stream wait for the work queued on the given stream so
	// far. The host does not wait, except if the given stream belongs to another driver, such as
	// the CPU's.
	WaitStream(other device.Stream) error
}

var _ Stream = (*stream)(nil)

// NewStream returns another stream of a GPU. A higher priority is more urgent; 0 is the default and
// the lowest. The priority is clamped to [PriorityRange]. (In torch and in the driver, lower
// numbers are more urgent: torch's -1 is 1 here.) A priority is a hint and never changes results.
// The stream lives as long as it is reachable. If dev is not a GPU, the error is a
// *[device.OperandError]. Other errors are the driver's.
func NewStream(dev device.Device, priority int) (Stream, error) {
	d, err := gpu("new stream", dev)
	if err != nil {
		return nil, err
	}
	s, err := d.NewStream(priority)
	if err != nil {
		return nil, err
	}
	return s.(*stream), nil
}

// DefaultStream returns the stream on which a GPU's work is queued if a scope chooses none
// (torch.cuda.default_stream). It panics with a *[device.OperandError] if dev is not a GPU.
func DefaultStream(dev device.Device) Stream { return mustGPU("default stream", dev).main }

// PriorityRange returns the lowest and the highest priority of a GPU's streams: 0 and 5 on current
// hardware. It panics with a *[device.OperandError] if dev is not a GPU.
func PriorityRange(dev device.Device) (least, greatest int) {
	d := mustGPU("priority range", dev)
	return -d.streams.least, -d.streams.urgent
}

// String returns a line such as "cuda:0 stream 0x10050, priority 1".
func (s *stream) String() string {
	if l := s.rec.Load(); l != nil && l.index > 0 {
		return fmt.Sprintf("%s stream %#x, fork %d of a recording", s.dev.name, uint64(s.handle), l.index)
	}
	return fmt.Sprintf("%s stream %#x, priority %d", s.dev.name, uint64(s.handle), s.Priority())
}

// Priority returns the stream's priority.
func (s *stream) Priority() int { return -s.priority }

// Query reports whether the work queued so far is done.
func (s *stream) Query() (bool, error) {
	if err := s.refuse("query", "the work does not run yet"); err != nil {
		return false, err
	}
	if err := s.dev.enter(); err != nil {
		return false, err
	}
	defer s.dev.leave()
	done, err := s.dev.api.StreamQuery(s.handle)
	return done, s.dev.fault("", err)
}

// WaitStream makes later work of s wait for the work queued on the given stream so far.
func (s *stream) WaitStream(other device.Stream) error {
	if own, ok := other.(*stream); other == nil || ok && own == nil {
		return s.dev.refusal("wait stream", "stream", "nil is not a stream")
	}
	if other == device.Stream(s) {
		return nil
	}
	if l := s.rec.Load(); l != nil && !l.r.contains(other) {
		return s.refuse("wait stream", "the other stream is not recorded with this one, and replays would not wait for what it does then")
	}
	e, err := other.Record()
	if err != nil {
		return err
	}
	defer e.Release()
	return s.Wait(e)
}
