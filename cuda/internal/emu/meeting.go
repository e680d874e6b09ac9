package emu

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// A Meeting is one operation in several streams, usually of several devices. It stands for the
// kernels of a library's collective: each of these kernels waits on its device for the kernels on
// the other devices. A meeting has one part in each of its streams. The parts run together, when
// all are queued and each is at the head of its stream. Later work in each stream then sees the
// effect. A host that waits for a part whose partners are not queued gets an error. The contexts of
// the queued parts then end, because on hardware all of them would hang.
type Meeting struct {
	name    string
	parts   []*op
	moves   uint64 // number of bytes that each part moves between devices
	effect  func(*Shared) error
	cancel  bool
	waiting int // number of parts that are not queued yet
}

// NewMeeting returns a meeting with the given number of parts, each of which moves the given number
// of bytes between devices. The function effect gets the memory of all devices, and must not call
// the driver. If it returns an error, the contexts of all parts end. In meta mode it is not called.
func NewMeeting(name string, parts int, bytes uint64, effect func(*Shared) error) *Meeting {
	return &Meeting{name: name, parts: make([]*op, parts), moves: bytes, effect: effect, waiting: parts}
}

// Meet queues parts of a meeting: part number parts[i] on streams[i], for each i.
func (d *Driver) Meet(m *Meeting, parts []int, streams []cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "Meet"
	list := make([]*stream, len(streams))
	for i, h := range streams {
		s, err := d.streamOf(call, h)
		switch {
		case err != nil:
			return err
		case m.parts[parts[i]] != nil || slices.Contains(parts[:i], parts[i]):
			return fail(call, cu.ErrInvalidValue, "part %d of %s is queued twice", parts[i], m.name)
		}
		list[i] = s
	}
	for i, s := range list {
		o := &op{Op: Op{Kind: KindMeeting, Name: m.name, Bytes: m.moves}}
		if !m.cancel {
			o.meeting = m
		}
		m.parts[parts[i]] = d.enqueue(s, o)
		m.waiting--
	}
	return nil
}

// Cancel cancels a meeting that has not run yet. Its parts then do nothing, like the kernels of a
// library whose communicator is aborted.
func (d *Driver) Cancel(m *Meeting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.cancel = true
	for _, o := range m.parts {
		if o != nil {
			o.meeting = nil
		}
	}
}

// meetingReady reports whether the operation's meeting, if any, allows it to run. All parts of the
// meeting must be queued, and each must be at the head of its stream.
func (o *op) meetingReady() bool {
	m := o.meeting
	if m == nil {
		return true
	}
	if m.waiting > 0 {
		return false
	}
	for _, p := range m.parts {
		if len(p.stream.queue) == 0 || p.stream.queue[0] != p || slices.ContainsFunc(p.after, func(a *op) bool { return !a.done }) {
			return false
		}
	}
	return true
}

// runMeeting runs a meeting. The caller holds d.mu.
func (d *Driver) runMeeting(m *Meeting) {
	// All parts start when the last part is ready.
	var start time.Duration
	for _, o := range m.parts {
		start = max(start, o.stream.clock, o.submit)
		for _, a := range o.after {
			start = max(start, a.end)
		}
	}
	var err error
	if m.parts[0].stream.ctx.dev.mem != nil {
		err = m.effect(&Shared{d, KindMeeting, m.name})
	}
	cost := d.cfg.Cost.Launch + perSecond(m.moves, d.cfg.Cost.PeerBytes)
	if d.cfg.Latency != nil {
		slowest := time.Duration(0)
		for _, o := range m.parts {
			slowest = max(slowest, d.cfg.Latency(o.Op))
		}
		cost += slowest
	}
	end := start
	for _, o := range m.parts { // all parts end when the slowest part ends
		_, e := o.stream.ctx.dev.engines[engineCompute].reserve(start, cost)
		end = max(end, e)
	}
	for _, o := range m.parts {
		s := o.stream
		s.queue[0] = nil
		s.queue = s.queue[1:]
		d.pending--
		o.done, o.after, o.meeting, o.end = true, nil, nil, end
		s.clock = end
		if d.cfg.Timeline != nil {
			d.cfg.Timeline(o.Op, start, end)
		}
		d.removeClosed(s)
	}
	if err != nil {
		for _, o := range m.parts {
			d.kill(o.stream.ctx, &cu.Error{Call: "cuLaunchKernel", Result: cu.ErrIllegalAddress, Cause: err})
		}
	}
}

// A MeetingError says which part of a collective waits in vain, and which parts are missing. The
// missing parts were not queued, or can never run.
type MeetingError struct {
	Name   string
	Device int
	Why    string
}

// Error returns the meeting, the waiting part and the missing parts.
func (e *MeetingError) Error() string {
	return fmt.Sprintf("emu: %s on device %d can never be done: %s", e.Name, e.Device, e.Why)
}

// endDeadlocked is called when no operation can run. It ends the contexts in which a part of a
// meeting waits at the head of a stream, and reports whether there were any. The caller holds d.mu.
func (d *Driver) endDeadlocked() bool {
	why := map[*context]error{}
	for _, s := range d.streams {
		if len(s.queue) == 0 || s.queue[0].meeting == nil || why[s.ctx] != nil {
			continue
		}
		o := s.queue[0]
		why[s.ctx] = &cu.Error{Call: "cuLaunchKernel", Result: cu.ErrLaunchTimeout,
			Cause: &MeetingError{Name: o.Name, Device: o.Device, Why: o.meeting.missing()}}
	}
	for ctx, err := range why {
		d.kill(ctx, err)
	}
	return len(why) > 0
}

// missing returns a text that names the parts for which a meeting waits.
func (m *Meeting) missing() string {
	var list []string
	for i, o := range m.parts {
		switch {
		case o == nil:
			list = append(list, fmt.Sprintf("part %d is not queued", i))
		case o.done:
			list = append(list, fmt.Sprintf("part %d was dropped with device %d", i, o.Device))
		case o.stream.queue[0] != o:
			list = append(list, fmt.Sprintf("part %d is behind another %s on device %d", i, o.stream.queue[0].Kind, o.Device))
		}
	}
	return strings.Join(list, ", ")
}

// Shared gives access to the memory of all devices. It is the argument of the functions effect of
// [NewMeeting] and [Driver.Foreign].
type Shared struct {
	d    *Driver
	kind Kind
	name string
}

// deviceOf returns the device of an address. The caller holds d.mu.
func (m *Shared) deviceOf(p cu.DevicePtr, n uint64) (*device, error) {
	dev := m.d.deviceAt(p)
	if dev == nil {
		return nil, &AccessError{Kind: m.kind, Addr: uint64(p), Size: n, Why: "it is no memory of a device"}
	}
	return dev, nil
}

// Read returns n bytes at p. If some of them were never written, it returns an error.
func (m *Shared) Read(p cu.DevicePtr, n uint64) ([]byte, error) {
	dev, err := m.deviceOf(p, n)
	if err != nil {
		return nil, err
	}
	b, err := access(m.kind, m.name, dev, p, n)
	if err == nil {
		if e := dev.mem.CheckInitialised(uint64(p), n); e != nil {
			err = &AccessError{Kind: m.kind, Addr: uint64(p), Size: n, Why: e.Error()}
		}
	}
	return b, err
}

// Write returns a slice through which the caller must write all of the n bytes at p.
func (m *Shared) Write(p cu.DevicePtr, n uint64) ([]byte, error) {
	dev, err := m.deviceOf(p, n)
	if err != nil {
		return nil, err
	}
	b, err := access(m.kind, m.name, dev, p, n)
	if err == nil {
		dev.mem.MarkInitialised(uint64(p), n)
	}
	return b, err
}

// Copy copies n bytes. It also copies the record of which bytes are initialised.
func (m *Shared) Copy(dst, src cu.DevicePtr, n uint64) error {
	if dst == src {
		return nil
	}
	to, err := m.deviceOf(dst, n)
	if err != nil {
		return err
	}
	from, err := m.deviceOf(src, n)
	if err != nil {
		return err
	}
	return transfer(m.kind, m.name, to, dst, from, src, n)
}

// CurrentDevice returns the ordinal of the device whose context is current on the calling thread,
// or -1 if there is none.
func (d *Driver) CurrentDevice() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx := d.current[threadID()]; ctx != nil {
		return ctx.dev.ordinal
	}
	return -1
}

// StreamDevice returns the ordinal of the device to which a stream belongs, or -1 if there is no
// such stream.
func (d *Driver) StreamDevice(h cu.Stream) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.byHandle[h]; s != nil && !s.closed {
		return s.ctx.dev.ordinal
	}
	return -1
}

// MemoryDevice returns the ordinal of the device to which the n bytes at p belong, or -1 if there
// is none.
func (d *Driver) MemoryDevice(p cu.DevicePtr, n uint64) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	dev := d.deviceAt(p)
	if dev == nil || d.reach("MemoryDevice", dev, p, n) != nil {
		return -1
	}
	return dev.ordinal
}
