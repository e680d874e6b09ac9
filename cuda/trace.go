package cuda

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

// timing measures times for a tracer. It holds unused events, and the event (mark) from which times
// are counted. The driver returns the time between two events as a float32 in milliseconds, which
// is inaccurate for long times. A new mark is therefore made every second. Its time is measured
// from the previous mark.
type timing struct {
	mu   sync.Mutex
	idle []cu.Event
	mark *timeMark
}

// timeMark is an event whose time is known, or can be measured from an earlier mark.
type timeMark struct {
	event cu.Event
	// host is the host's time when the event was recorded. It is exact for a mark without a
	// predecessor, because the host waited for that mark's event.
	host time.Duration
	at   time.Duration // time of the event on the clock of device.Now; valid if prev is nil
	// prev is the mark from which the time of this mark must still be measured. It is nil if the
	// time is known.
	prev *timeMark
}

const (
	markEvery = time.Second
	markStale = 10 * time.Second
)

// takeTiming returns an unused event that measures time. The device's context is current.
func (d *Device) takeTiming() (cu.Event, error) {
	p := &d.timing
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle) - 1; n >= 0 {
		e := p.idle[n]
		p.idle = p.idle[:n]
		return e, nil
	}
	return d.api.EventCreate(cu.EventBlockingSync)
}

func (d *Device) putTiming(list ...cu.Event) {
	d.timing.mu.Lock()
	d.timing.idle = append(d.timing.idle, list...)
	d.timing.mu.Unlock()
}

// stamp records an event that measures time on the stream.
func (d *Device) stamp(s *stream) (cu.Event, error) {
	e, err := d.takeTiming()
	if err != nil {
		return 0, err
	}
	if err := d.api.EventRecord(e, s.handle); err != nil {
		d.putTiming(e)
		return 0, err
	}
	return e, nil
}

// currentMark returns the mark from which times are counted, and makes a new mark if necessary. For
// the first mark it waits for the device.
func (d *Device) currentMark() (*timeMark, error) {
	p := &d.timing
	now := device.Now()
	p.mu.Lock()
	m := p.mark
	p.mu.Unlock()
	if m != nil && now-m.host < markEvery {
		return m, nil
	}
	e, err := d.stamp(d.main)
	if err != nil {
		return nil, err
	}
	n := &timeMark{event: e, host: now}
	if m != nil && now-m.host < markStale {
		n.prev = m
	} else {
		if err := d.api.EventSynchronize(e); err != nil {
			return nil, err
		}
		n.host = device.Now()
		n.at = n.host
	}
	runtime.AddCleanup(n, func(e cu.Event) { d.putTiming(e) }, e)
	p.mu.Lock()
	p.mark = n
	p.mu.Unlock()
	return n, nil
}

// markTime returns the time of the mark on the clock of device.Now. The device's context is
// current.
func (d *Device) markTime(m *timeMark) (time.Duration, error) {
	d.timing.mu.Lock()
	prev, at := m.prev, m.at
	d.timing.mu.Unlock()
	if prev == nil {
		return at, nil
	}
	at, err := d.markTime(prev)
	if err != nil {
		return 0, err
	}
	if err := d.api.EventSynchronize(m.event); err != nil {
		return 0, err
	}
	since, err := d.api.EventElapsed(prev.event, m.event)
	if err != nil {
		return 0, err
	}
	d.timing.mu.Lock()
	m.at, m.prev = at+since, nil
	d.timing.mu.Unlock()
	return at + since, nil
}

// interval is the time between two events of a stream.
type interval struct {
	d          *Device
	from       *timeMark
	start, end cu.Event
}

var _ device.Interval = (*interval)(nil)

// Resolve returns the start and end of the work between the two events. It implements
// [device.Interval].
func (i *interval) Resolve() (start, end time.Duration, err error) {
	d := i.d
	if err := d.enter(); err != nil {
		return 0, 0, err
	}
	defer d.leave()
	if err := d.api.EventSynchronize(i.end); err != nil {
		return 0, 0, d.fault("", err)
	}
	at, err := d.markTime(i.from)
	if err != nil {
		return 0, 0, d.fault("", err)
	}
	before, err := d.api.EventElapsed(i.from.event, i.start)
	if err != nil {
		return 0, 0, d.fault("", err)
	}
	took, err := d.api.EventElapsed(i.start, i.end)
	if err != nil {
		return 0, 0, d.fault("", err)
	}
	d.putTiming(i.start, i.end)
	return at + before, at + before + took, nil
}

// timed calls f, which queues work on s. It records one event before the call and another after it.
// It returns no interval if the tracer wants no times, or if events cannot be recorded, as on the
// streams of a recording.
func (d *Device) timed(s *stream, f func() error) (device.Interval, error) {
	i := &interval{d: d}
	ok := false
	if t := device.Tracing(); t != nil && t.Wants().Times && !s.Recording() && d.enter() == nil {
		var err error
		if i.from, err = d.currentMark(); err == nil {
			i.start, err = d.stamp(s)
		}
		ok = err == nil
		d.leave()
	}
	if err := f(); err != nil || !ok {
		return nil, err
	}
	if d.enter() != nil {
		return nil, nil
	}
	defer d.leave()
	var err error
	if i.end, err = d.stamp(s); err != nil {
		return nil, nil
	}
	return i, nil
}

// launch queues planned launches. If event is not nil, it adds a LaunchEvent for each launch.
func (d *Device) launch(s *stream, list []kernels.Launch, event *device.KernelEvent) error {
	if event == nil {
		return d.queue(s, list)
	}
	event.Recorded = s.Recording()
	event.Launches = make([]device.LaunchEvent, len(list))
	for i := range list {
		e := &event.Launches[i]
		d.describe(e, &list[i])
		var err error
		if e.Time, err = d.timed(s, func() error {
			e.Start = device.Now()
			err := d.queue(s, list[i:i+1])
			e.End = device.Now()
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// describe sets the fields of a LaunchEvent that are known before the launch runs.
func (d *Device) describe(e *device.LaunchEvent, l *kernels.Launch) {
	k := d.form(l.Kernel)
	e.Kernel, e.Shared, e.Tensor, e.TF32 = k.Name, k.DynShared, l.Tensor, l.TF32
	for a := range 3 {
		e.Grid[a], e.Block[a] = int(l.Grid[a]), int(k.Block[a])
	}
}

// tellRecorded adds a LaunchEvent for each launch of a recorded op.
func (d *Device) tellRecorded(list []kernels.Launch, event *device.KernelEvent) {
	event.Recorded = true
	event.Launches = make([]device.LaunchEvent, len(list))
	for i := range list {
		e := &event.Launches[i]
		d.describe(e, &list[i])
		e.Start = device.Now()
		e.End = e.Start
	}
}

// replayAs calls start, which launches a graph. It reports the graph to the tracer as one kernel.
// The tracer does not see the work inside.
func (d *Device) replayAs(t device.Tracer, s *stream, operations int, start func() error) error {
	name := fmt.Sprintf("graph of %d operations", operations)
	e := device.LaunchEvent{Kernel: name, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Start: device.Now()}
	var err error
	if e.Time, err = d.timed(s, start); err != nil {
		return err
	}
	e.End = device.Now()
	t.Kernel(device.KernelEvent{Device: d, Stream: s, Primitive: "graph", Start: e.Start, End: e.End, Launches: []device.LaunchEvent{e}})
	return nil
}

// tracedCopy calls the function copy, which queues a copy. It reports the copy to the tracer.
func (d *Device) tracedCopy(t device.Tracer, s *stream, c device.CopyEvent, copy func() error) error {
	c.Device, c.Stream, c.Start, c.Recorded = d, s, device.Now(), s.Recording()
	var err error
	if c.Time, err = d.timed(s, copy); err != nil {
		return err
	}
	c.End = device.Now()
	t.Copy(c)
	return nil
}

// tracedWait returns a function that reports a wait of the host to the tracer. The wait begins now
// and ends when the function is called.
func (d *Device) tracedWait(t device.Tracer, s *stream, call string) func() {
	start := device.Now()
	return func() {
		e := device.SyncEvent{Device: d, Call: call, Start: start, End: device.Now()}
		if s != nil {
			e.Stream = s
		}
		t.Sync(e)
	}
}

// reportMemory reports to a tracer that memory was allocated or freed.
func (d *Device) reportMemory(t device.Tracer, addr uintptr, bytes int, freed, queued bool, o device.Origin) {
	if !t.Wants().Memory {
		return
	}
	in := -1
	if !queued {
		in = int(d.pool.InUse())
	}
	t.Memory(device.MemoryEvent{Device: d, Addr: addr, Bytes: bytes, Freed: freed, Origin: o, InUse: in})
}
