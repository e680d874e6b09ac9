package emu

import (
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// Kind is the kind of an operation in a stream's queue.
type Kind uint8

// Kinds of operation.
const (
	KindKernel Kind = iota + 1
	KindCopyHtoD
	KindCopyDtoH
	KindCopyDtoD
	KindCopyPeer
	KindMemset
	KindRecord  // a record of an event
	KindWait    // a wait for an event
	KindMark    // the beginning or the end of a pool's block
	KindGraph   // the first operation of a graph's launch
	KindJoin    // a wait for all earlier operations of a graph
	KindMeeting // a part of a Meeting, such as a collective
)

var kindNames = [...]string{KindKernel: "kernel", KindCopyHtoD: "copy host to device", KindCopyDtoH: "copy device to host",
	KindCopyDtoD: "copy on the device", KindCopyPeer: "copy between devices", KindMemset: "memset", KindRecord: "event record", KindWait: "event wait", KindMark: "mark", KindGraph: "graph launch", KindJoin: "join", KindMeeting: "collective"}

// String returns the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Op describes an operation for Config.Latency and Config.Timeline.
type Op struct {
	Kind     Kind
	Name     string // name of a kernel or collective; otherwise ""
	Device   int    // ordinal of the stream's device
	Stream   cu.Stream
	Bytes    uint64 // bytes of a copy, fill or collective; otherwise 0
	From, To int    // ordinals of the devices of a copy between devices; otherwise both are Device
	Staged   bool   // whether a copy between devices goes through the host
}

// op is an operation in a stream's queue. When it has run, later operations may depend on the
// virtual time of its end.
type op struct {
	Op
	stream *stream
	issue  uint64 // index of the operation among all operations
	// operations that must be done before this one, in addition to the earlier operations of its
	// queue
	after []*op
	// the operation's effect; nil for records and waits; if it returns an error, the context ends
	run func() (time.Duration, error)
	// submit is the time of the device's host clock at the call that queued the operation.
	submit        time.Duration
	end           time.Duration // virtual time of completion, valid when the operation has run
	done          bool
	afterMetaCopy bool

	// meeting is the meeting to which the operation belongs. It is nil when the meeting is over.
	meeting *Meeting
}

// stream is a queue of operations of one context.
type stream struct {
	handle   cu.Stream
	ctx      *context
	blocking bool // whether the stream and the legacy default stream wait for each other
	weight   int  // relative frequency with which an adversarial schedule chooses the stream
	queue    []*op
	last     *op // newest operation, whether it has run or not
	// afterMetaCopy says that the stream has copied to page-locked memory in meta mode.
	afterMetaCopy bool
	clock         time.Duration
	// closed says that the stream was destroyed. The driver removes the stream when its queue is
	// empty.
	closed  bool
	capture *capture // capture that receives the work queued on the stream; nil if there is none
	// If the stream belongs to the launch of a graph, by is the device that submits the launch.
	// For other streams by is nil, and the device of ctx submits their work.
	by *device
}

// weights lists the weights that a stream may get in an adversarial schedule. A stream with a small
// weight rarely runs while a stream with a larger one is ready.
var weights = [...]int{1, 1, 8, 64}

// enqueue appends an operation to s and returns it. The caller holds d.mu.
func (d *Driver) enqueue(s *stream, o *op) *op {
	if s.capture != nil {
		_ = s.capture.add(d, work{Op: o.Op, run: o.run}) // the capture stores the error
		return o
	}
	// The loop runs older operations to make room in the queue. It runs before o is appended,
	// because the call may still be refused. If all queues wait for parts of a meeting that are not
	// queued yet, nothing can run.
	for d.pending >= d.cfg.QueueDepth && d.step() {
	}
	d.issue++
	by := s.ctx.dev
	if s.by != nil {
		by = s.by
	}
	o.stream, o.issue, o.submit, o.afterMetaCopy = s, d.issue, by.host, s.afterMetaCopy
	o.Device, o.Stream = s.ctx.dev.ordinal, s.handle
	if o.Kind != KindCopyPeer {
		o.From, o.To = o.Device, o.Device
	}
	// The legacy default stream and the blocking streams of its context wait for each other.
	if def := s.ctx.defaultStream; s == def {
		for _, other := range d.streams {
			if other.ctx == s.ctx && other.blocking && other != s && other.last != nil {
				o.after = append(o.after, other.last)
			}
		}
	} else if s.blocking && def.last != nil {
		o.after = append(o.after, def.last)
	}
	s.queue = append(s.queue, o)
	s.last = o
	d.pending++
	// As on hardware, work may also start immediately.
	if d.rng != nil && d.rng.IntN(4) == 0 {
		d.step()
	}
	return o
}

// ready reports whether the first operation of s may run.
func (s *stream) ready() bool {
	if len(s.queue) == 0 {
		return false
	}
	for _, o := range s.queue[0].after {
		if !o.done {
			return false
		}
	}
	return s.queue[0].meetingReady()
}

// step chooses one operation, runs it, and reports whether there was one. If work runs in the order
// of the calls, step chooses the oldest operation. The operations on which it depends are older, so
// they have run. The caller holds d.mu.
func (d *Driver) step() bool {
	var pick *stream
	total := 0
	for _, s := range d.streams {
		if !s.ready() {
			continue
		}
		if d.rng == nil {
			if pick == nil || s.queue[0].issue < pick.queue[0].issue {
				pick = s
			}
			continue
		}
		total += s.weight
		if d.rng.IntN(total) < s.weight { // chooses one of the ready streams at random, by weight
			pick = s
		}
	}
	if pick == nil {
		return false
	}
	d.execute(pick)
	return true
}

// finish runs operations until the function done returns true. The caller holds d.mu.
func (d *Driver) finish(done func() bool) {
	for !done() {
		if !d.step() && !d.endDeadlocked() {
			// Each operation waits only for operations that were queued earlier. So there is always
			// a queue whose first operation is ready, or waits at a meeting.
			panic("emu: no operation can run: the order of the queues is broken")
		}
	}
}

// drain runs operations until the queues of ctx are empty, and advances the host's clock like
// await. The caller holds d.mu.
func (d *Driver) drain(ctx *context) {
	// The list is copied, because await removes streams.
	for _, s := range slices.Clone(d.streams) {
		if s.ctx == ctx && s.last != nil {
			d.await(s.last)
		}
	}
}

// await runs operations until o is done, and then advances the host clock of a device to the end of
// o. The device is the one whose context is current, or o's device if no context is current. The
// caller holds d.mu.
func (d *Driver) await(o *op) {
	d.finish(func() bool { return o.done })
	dev := o.stream.ctx.dev
	if ctx := d.current[threadID()]; ctx != nil {
		dev = ctx.dev
	}
	dev.host = max(dev.host, o.end)
}

// execute runs the first operation of s. The caller holds d.mu.
func (d *Driver) execute(s *stream) {
	o := s.queue[0]
	if o.meeting != nil {
		d.runMeeting(o.meeting)
		return
	}
	s.queue[0] = nil
	s.queue = s.queue[1:]
	d.pending--
	defer d.removeClosed(s)
	o.done = true
	start := max(s.clock, o.submit)
	for _, a := range o.after {
		start = max(start, a.end)
	}
	o.after = nil
	if s.ctx.dead != nil {
		s.clock, o.end, o.run = start, start, nil
		return
	}
	var cost time.Duration
	if o.run != nil {
		var err error
		cost, err = o.run()
		o.run = nil
		if err != nil {
			s.clock, o.end = start, start
			d.kill(s.ctx, err)
			return
		}
	}
	if d.cfg.Latency != nil {
		cost += max(0, d.cfg.Latency(o.Op))
	}
	o.end = start + cost
	if c := d.engine(o); c != nil {
		start, o.end = c.reserve(start, cost)
	}
	s.clock = o.end
	if d.cfg.Timeline != nil {
		d.cfg.Timeline(o.Op, start, o.end)
	}
}

// removeClosed removes a destroyed stream when its work is done. The caller holds d.mu.
func (d *Driver) removeClosed(s *stream) {
	if s.closed && len(s.queue) == 0 {
		d.removeStream(s)
	}
}

// kill ends a context and drops its pending work. Each later call returns err. The caller holds
// d.mu.
func (d *Driver) kill(ctx *context, err error) {
	if ctx.dead == nil {
		ctx.dead = err
	}
	for _, s := range d.streams {
		if s.ctx != ctx {
			continue
		}
		for _, o := range s.queue {
			o.done, o.end, o.run, o.after = true, s.clock, nil, nil
			d.pending--
		}
		s.queue = nil
	}
}
