package emu

import (
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// event is an event with the point in a stream's queue at which it was last recorded.
type event struct {
	ctx    *context
	timing bool
	point  *op // operation that was queued for the last record; nil before the first record
}

// StreamCreate creates a stream. The priority has no effect, because it never guarantees an order
// in CUDA.
func (d *Driver) StreamCreate(f cu.StreamFlags, priority int) (cu.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuStreamCreateWithPriority"
	ctx, err := d.currentContext(call)
	if err != nil {
		return 0, err
	}
	if f != cu.StreamDefault && f != cu.StreamNonBlocking {
		return 0, fail(call, cu.ErrInvalidValue, "flags %#x", uint32(f))
	}
	s := &stream{handle: cu.Stream(d.handle()), ctx: ctx, blocking: f == cu.StreamDefault, weight: d.weight(), clock: ctx.dev.host}
	d.byHandle[s.handle] = s
	d.streams = append(d.streams, s)
	return s.handle, nil
}

// StreamDestroy invalidates the handle. Pending work of the stream still runs.
func (d *Driver) StreamDestroy(h cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuStreamDestroy"
	if h == 0 {
		return fail(call, cu.ErrInvalidHandle, "the default stream cannot be destroyed")
	}
	s, err := d.streamOf(call, h)
	if err != nil {
		return err
	}
	s.closed = true
	d.removeClosed(s)
	return nil
}

func (d *Driver) removeStream(s *stream) {
	if d.byHandle[s.handle] == s {
		delete(d.byHandle, s.handle)
	}
	d.streams = slices.DeleteFunc(d.streams, func(t *stream) bool { return t == s })
}

// StreamSynchronize completes the stream's work.
func (d *Driver) StreamSynchronize(h cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.streamOf("cuStreamSynchronize", h)
	if err != nil {
		return err
	}
	d.counters.Synchronisations++
	if s.last != nil {
		d.await(s.last)
	}
	return s.ctx.dead
}

// StreamQuery reports whether the stream's work has completed. It then runs one pending operation,
// so that a loop of queries ends.
func (d *Driver) StreamQuery(h cu.Stream) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.streamOf("cuStreamQuery", h)
	if err != nil {
		return false, err
	}
	return d.poll(s.last), s.ctx.dead
}

// poll reports whether o has run. It returns true if o is nil. If o has not run, poll runs one
// operation, so that a later poll succeeds.
func (d *Driver) poll(o *op) bool {
	if o == nil || o.done {
		return true
	}
	d.step()
	return false
}

// StreamWaitEvent makes later work of the stream wait for the work before the last record of the
// event.
func (d *Driver) StreamWaitEvent(h cu.Stream, e cu.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuStreamWaitEvent"
	s, err := d.streamOf(call, h)
	if err != nil {
		return err
	}
	ev, err := d.eventOf(call, e)
	if err != nil {
		return err
	}
	if ev.point != nil {
		d.enqueue(s, &op{Op: Op{Kind: KindWait}, after: []*op{ev.point}})
	}
	return nil
}

// eventOf returns the event with the given handle. The caller holds d.mu.
func (d *Driver) eventOf(call string, h cu.Event) (*event, error) {
	e := d.events[h]
	if e == nil {
		return nil, fail(call, cu.ErrInvalidHandle, "there is no event %#x", uintptr(h))
	}
	return e, nil
}

// EventCreate makes an event.
func (d *Driver) EventCreate(f cu.EventFlags) (cu.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, err := d.currentContext("cuEventCreate")
	if err != nil {
		return 0, err
	}
	if f&^(cu.EventBlockingSync|cu.EventDisableTiming) != 0 {
		return 0, fail("cuEventCreate", cu.ErrInvalidValue, "flags %#x", uint32(f))
	}
	h := cu.Event(d.handle())
	d.events[h] = &event{ctx: ctx, timing: f&cu.EventDisableTiming == 0}
	return h, nil
}

// EventDestroy invalidates the handle. Waits that are already queued stay valid.
func (d *Driver) EventDestroy(h cu.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.eventOf("cuEventDestroy", h)
	if err != nil {
		return err
	}
	delete(d.events, h)
	return e.ctx.dead
}

// EventRecord sets the event to the end of the work that is queued on the stream so far.
func (d *Driver) EventRecord(h cu.Event, st cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuEventRecord"
	e, err := d.eventOf(call, h)
	if err != nil {
		return err
	}
	s, err := d.streamOf(call, st)
	if err != nil {
		return err
	}
	if s.ctx != e.ctx {
		return fail(call, cu.ErrInvalidHandle, "the event is of device %d, the stream of device %d", e.ctx.dev.ordinal, s.ctx.dev.ordinal)
	}
	e.point = d.enqueue(s, &op{Op: Op{Kind: KindRecord}})
	return nil
}

// EventQuery reports whether the work before the last record has completed, and runs one pending
// operation.
func (d *Driver) EventQuery(h cu.Event) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.eventOf("cuEventQuery", h)
	if err != nil {
		return false, err
	}
	if e.ctx.dead != nil {
		return false, e.ctx.dead
	}
	return d.poll(e.point), e.ctx.dead
}

// EventSynchronize completes the work before the last record of the event. In meta mode it returns
// ErrMeta if that work includes a copy to page-locked memory. A host that waits for such a copy
// wants to read a value, and memory has no values in this mode. A stream may wait for the event
// even then.
func (d *Driver) EventSynchronize(h cu.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuEventSynchronize"
	e, err := d.eventOf(call, h)
	if err != nil {
		return err
	}
	if e.ctx.dead != nil {
		return e.ctx.dead
	}
	d.counters.Synchronisations++
	if e.point != nil {
		d.await(e.point)
		if e.point.afterMetaCopy && e.ctx.dead == nil {
			return metaError(call, "an event behind a copy to pinned memory")
		}
	}
	return e.ctx.dead
}

// EventElapsed returns the virtual time between two completed events of one device.
func (d *Driver) EventElapsed(start, end cu.Event) (time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuEventElapsedTime"
	a, err := d.eventOf(call, start)
	if err != nil {
		return 0, err
	}
	b, err := d.eventOf(call, end)
	if err != nil {
		return 0, err
	}
	switch {
	case a.ctx.dead != nil:
		return 0, a.ctx.dead
	case !a.timing || !b.timing:
		return 0, fail(call, cu.ErrInvalidHandle, "an event was made with EventDisableTiming")
	case a.point == nil || b.point == nil:
		return 0, fail(call, cu.ErrInvalidHandle, "an event was never recorded")
	case a.ctx != b.ctx:
		return 0, fail(call, cu.ErrInvalidHandle, "the events are of devices %d and %d", a.ctx.dev.ordinal, b.ctx.dev.ordinal)
	case !a.point.done || !b.point.done:
		return 0, fail(call, cu.ErrNotReady, "an event has not completed")
	}
	return b.point.end - a.point.end, nil
}
