package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// Event is a mark in a stream that can be set again and can measure time: torch.cuda.Event. It is a
// [device.Event]: a stream waits for it by Wait(e). All methods are safe for concurrent use.
//
// Before the first Record the event counts as done, so a wait for it ends immediately. If the event
// is recorded again, earlier waits still wait for the earlier mark.
type Event struct {
	d      *Device
	timing bool
	handle *eventHandle

	// Waits hold mu for reading, so that Release cannot give the driver's event back during a wait.
	mu   sync.RWMutex
	on   *stream // stream on which Record was last called; nil before the first Record
	mask uint64
	// the last mark, if it was made while the stream was being recorded; otherwise nil
	recorded *recordedEvent
	released bool
}

var _ device.Event = (*Event)(nil)

// eventHandle owns a driver's event. It returns the event to the device's pool once: in Release, or
// when the Event is garbage.
type eventHandle struct {
	once sync.Once
	h    cu.Event
	pool *eventPool
}

func (h *eventHandle) release() {
	h.once.Do(func() {
		h.pool.mu.Lock()
		h.pool.free = append(h.pool.free, h.h)
		h.pool.mu.Unlock()
	})
}

// EventOption is an option of [NewEvent].
type EventOption func(*Event)

// EnableTiming makes an event that stores the time at which its stream reaches it. [Event.Elapsed]
// needs this. Events without timing are a little cheaper.
func EnableTiming() EventOption { return func(e *Event) { e.timing = true } }

// NewEvent returns an event for streams of a GPU. A host that waits for the event sleeps (torch's
// blocking=True). If dev is not a GPU, the error is a *[device.OperandError]. Other errors are the
// driver's.
func NewEvent(dev device.Device, opts ...EventOption) (*Event, error) {
	d, err := gpu("new event", dev)
	if err != nil {
		return nil, err
	}
	e := &Event{d: d}
	for _, o := range opts {
		o(e)
	}
	flags, p := cu.EventDisableTiming|cu.EventBlockingSync, &d.events
	if e.timing {
		flags, p = cu.EventBlockingSync, &d.timers
	}
	e.handle = &eventHandle{pool: p}
	if e.handle.h, err = d.newEvent(p, flags); err != nil {
		return nil, err
	}
	runtime.AddCleanup(e, (*eventHandle).release, e.handle)
	return e, nil
}

// newEvent takes an event from the pool p, or creates one.
func (d *Device) newEvent(p *eventPool, flags cu.EventFlags) (cu.Event, error) {
	p.mu.Lock()
	if n := len(p.free) - 1; n >= 0 {
		h := p.free[n]
		p.free = p.free[:n]
		p.mu.Unlock()
		return h, nil
	}
	p.mu.Unlock()
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	h, err := d.api.EventCreate(flags)
	return h, d.fault("", err)
}

// Record marks the work queued so far on s, a stream of the event's GPU. If s is nil, it uses the
// GPU's default stream. If the work of s is being recorded, the mark belongs to the recording. In
// that case only the recording's streams can wait for the event. A wait of the host or of another
// stream returns a *[device.RecordError], until the event is recorded again on a stream outside of
// the recording.
func (e *Event) Record(s device.Stream) error {
	const op = "record event"
	st, err := e.d.stream(op, s)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.released {
		return errReleased
	}
	if l := st.rec.Load(); l != nil {
		e.on, e.mask, e.recorded = st, 0, l.mark()
		return nil
	}
	if err := e.d.enter(); err != nil {
		return err
	}
	defer e.d.leave()
	if err := e.d.api.EventRecord(e.handle.h, st.handle); err != nil {
		return e.d.fault("", err)
	}
	e.on, e.mask, e.recorded = st, st.mask.Load(), nil
	return nil
}

// Query reports whether the work before the last Record is done, without waiting. If that work
// failed, Query returns its *[device.Fault].
func (e *Event) Query() (done bool, err error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	switch {
	case e.released:
		return false, errReleased
	case e.on == nil:
		return true, nil
	case e.recorded != nil:
		return false, e.checkRecording("query event")
	}
	if err := e.d.enter(); err != nil {
		return false, err
	}
	defer e.d.leave()
	done, err = e.d.api.EventQuery(e.handle.h)
	return done, e.d.fault("", err)
}

// Done is Query without the error. It also returns true if the work before the last Record failed,
// or if the event was released.
func (e *Event) Done() bool {
	done, err := e.Query()
	return done || err != nil
}

// Wait blocks the caller until the work before the last Record is done (torch's synchronize). It
// returns a fault or an index error of that work.
func (e *Event) Wait() error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	switch {
	case e.released:
		return errReleased
	case e.on == nil:
		return nil
	case e.recorded != nil:
		return e.checkRecording("wait for an event")
	}
	if t := device.Tracing(); t != nil {
		defer e.d.tracedWait(t, nil, "event wait")()
	}
	if err := e.d.enter(); err != nil {
		return err
	}
	defer e.d.leave()
	if err := e.d.api.EventSynchronize(e.handle.h); err != nil {
		return e.d.fault("", err)
	}
	if x := e.d.index.takeFault(e.mask); x != nil {
		return x
	}
	return nil
}

// delayStream makes later work of s wait for the work before the last Record of e.
func (e *Event) delayStream(s *stream) error {
	if e == nil {
		return nil
	}
	if e.d.p != s.dev.p {
		return e.Wait()
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	switch {
	case e.released:
		return errReleased
	case e.on == nil:
		return nil
	case e.recorded != nil:
		if !e.recorded.joins(s) {
			return e.checkRecording("wait for an event")
		}
		return nil
	case s.Recording():
		return s.refuse("wait for an event", "its mark is not recorded, and replays would not wait for a later one")
	}
	if err := s.dev.enter(); err != nil {
		return err
	}
	defer s.dev.leave()
	if err := s.dev.api.StreamWaitEvent(s.handle, e.handle.h); err != nil {
		return s.dev.fault("", err)
	}
	if e.d == s.dev {
		s.follow(e.mask)
	}
	return nil
}

// checkRecording returns the error of a wait or a query for an event whose last mark was made in a
// recording: only streams of that recording may wait for such a mark. The argument op is the name
// of the wait or query.
func (e *Event) checkRecording(op string) error {
	return &device.RecordError{Device: e.d.name, Op: op, Why: "its mark was made in a recording, for the streams of that"}
}

// Elapsed returns the GPU's time between e and end, with a resolution of about half a microsecond.
// (torch's elapsed_time returns milliseconds.) Both events must be made with [EnableTiming],
// recorded, and done. Otherwise the error is a *[device.OperandError]. An emulated GPU returns the
// time of its cost model.
func (e *Event) Elapsed(end *Event) (time.Duration, error) {
	const op = "elapsed"
	if end == nil || end.d != e.d {
		return 0, e.d.refusal(op, "end", "not an event of "+e.d.name)
	}
	for _, x := range []struct {
		e   *Event
		arg string
	}{{e, "start"}, {end, "end"}} {
		done, err := x.e.Query()
		why := ""
		switch {
		case err != nil:
			return 0, err
		case !x.e.timing:
			why = "it takes no time: make it with cuda.EnableTiming()"
		case x.e.stream() == nil:
			why = "it was never recorded"
		case !done:
			why = "its stream has not got there yet: wait for it"
		}
		if why != "" {
			return 0, e.d.refusal(op, x.arg, why)
		}
	}
	if err := e.d.enter(); err != nil {
		return 0, err
	}
	defer e.d.leave()
	t, err := e.d.api.EventElapsed(e.handle.h, end.handle.h)
	if errors.Is(err, cu.ErrNotReady) { // another goroutine has recorded the event again
		return 0, e.d.refusal(op, "end", "its stream has not got there yet: wait for it")
	}
	return t, e.d.fault("", err)
}

func (e *Event) stream() *stream {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.on
}

// Release gives the driver's event back. Without Release, the garbage collector gives it back
// later. Waits that have begun continue.
func (e *Event) Release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.released = true
	e.handle.release()
}

// String returns a line such as "event of cuda:0, with timing".
func (e *Event) String() string {
	if e.timing {
		return fmt.Sprintf("event of %s, with timing", e.d.name)
	}
	return fmt.Sprintf("event of %s", e.d.name)
}
