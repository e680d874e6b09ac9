package emu

import (
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// Kind is what an operation in a queue does.
type Kind uint8

// Kinds of operation.
const (
	KindKernel Kind = iota + 1
	KindCopyHtoD
	KindCopyDtoH
	KindCopyDtoD
	KindCopyPeer
	KindMemset
	KindRecord  // of an event
	KindWait    // for an event
	KindMark    // a pool's block begins or ends
	KindGraph   // launch of a graph, the first thing of it
	KindJoin    // of a graph: what came before it is done
	KindMeeting // part of a collective: see Meeting
)

var kindNames = [...]string{KindKernel: "kernel", KindCopyHtoD: "copy host to device", KindCopyDtoH: "copy device to host",
	KindCopyDtoD: "copy on the device", KindCopyPeer: "copy between devices", KindMemset: "memset", KindRecord: "event record", KindWait: "event wait", KindMark: "mark", KindGraph: "graph launch", KindJoin: "join", KindMeeting: "collective"}

// String returns the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Op describes an operation to Config.Latency and Config.Timeline.
type Op struct {
	Kind     Kind
	Name     string // of a kernel or collective, else ""
	Device   int    // that of the stream
	Stream   cu.Stream
	Bytes    uint64 // of a copy, memset or collective, else 0
	From, To int    // of a copy between devices their numbers, of anything else both are Device
	Staged   bool   // of a copy between devices: it goes by way of the host
}

// op is an operation in a stream's queue. Once done it is a point in virtual time that others may
// depend on.
type op struct {
	Op
	stream *stream
	issue  uint64 // position in the order of all calls
	// what must be done first, besides the queue's earlier operations
	after []*op
	// the effect; nil for records and waits. An error ends the context.
	run    func() (time.Duration, error)
	submit time.Duration // the time of the device's host at the call
	end    time.Duration // virtual time of completion, once done
	done   bool
	hollow bool // see stream

	meeting *Meeting // that it is a part of, until that is over
}

// stream is a queue of operations of one context.
type stream struct {
	handle   cu.Stream
	ctx      *context
	blocking bool // takes part in the ordering of the legacy default stream
	weight   int  // how eagerly an adversarial schedule serves it
	queue    []*op
	last     *op  // the newest operation, done or not
	hollow   bool // in meta mode: its work has copied to page-locked memory what has no value
	clock    time.Duration
	closed   bool     // destroyed: goes away when its queue is empty
	capture  *capture // what is queued goes there instead
	by       *device  // of a graph's launch, whose host submits; nil: that of ctx
}

// weights that a stream may get in an adversarial schedule: from one that is only served when
// nothing else can be to one that races ahead.
var weights = [...]int{1, 1, 8, 64}

// enqueue appends an operation to s and returns it. d.mu is held.
func (d *Driver) enqueue(s *stream, o *op) *op {
	if s.capture != nil {
		_ = s.capture.add(d, work{Op: o.Op, run: o.run}) // it keeps its error
		return o
	}
	// Before the append: a call may then still be refused without having run itself. Nothing can
	// run where all wait for parts of a meeting that are still to come.
	for d.pending >= d.cfg.QueueDepth && d.step() {
	}
	d.issue++
	by := s.ctx.dev
	if s.by != nil {
		by = s.by
	}
	o.stream, o.issue, o.submit, o.hollow = s, d.issue, by.host, s.hollow
	o.Device, o.Stream = s.ctx.dev.ordinal, s.handle
	if o.Kind != KindCopyPeer {
		o.From, o.To = o.Device, o.Device
	}
	// The legacy default stream waits for all blocking streams of its context, and they for it.
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
	if d.rng != nil && d.rng.IntN(4) == 0 { // hardware may also be early
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
	return s.queue[0].gathered()
}

// step runs one operation of the driver's choice and reports whether there was one. In plain order
// that is the oldest, whose dependencies are older and therefore done. d.mu is held.
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
		if d.rng.IntN(total) < s.weight { // one of the ready streams, by weight, in one pass
			pick = s
		}
	}
	if pick == nil {
		return false
	}
	d.execute(pick)
	return true
}

// finish runs operations until done holds. d.mu is held.
func (d *Driver) finish(done func() bool) {
	for !done() {
		if !d.step() && !d.strand() {
			// Each wait is for an operation that was issued before it, so some queue is always
			// ready, or stands at a meeting.
			panic("emu: no operation can run: the order of the queues is broken")
		}
	}
}

// drain runs operations until the queues of ctx are empty, as await does. d.mu is held.
func (d *Driver) drain(ctx *context) {
	for _, s := range slices.Clone(d.streams) { // streams whose work is done may go
		if s.ctx == ctx && s.last != nil {
			d.await(s.last)
		}
	}
}

// await runs operations until o is done, and moves the clock of a host there. It is that of the
// device whose context is current, which is the one that the waiting goroutine drives, or of o's
// where none is. d.mu is held.
func (d *Driver) await(o *op) {
	d.finish(func() bool { return o.done })
	dev := o.stream.ctx.dev
	if ctx := d.current[threadID()]; ctx != nil {
		dev = ctx.dev
	}
	dev.host = max(dev.host, o.end)
}

// execute runs the first operation of s. d.mu is held.
func (d *Driver) execute(s *stream) {
	o := s.queue[0]
	if o.meeting != nil {
		d.hold(o.meeting)
		return
	}
	s.queue[0] = nil
	s.queue = s.queue[1:]
	d.pending--
	defer d.reap(s)
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
		start, o.end = c.take(start, cost)
	}
	s.clock = o.end
	if d.cfg.Timeline != nil {
		d.cfg.Timeline(o.Op, start, o.end)
	}
}

// reap forgets a destroyed stream whose work is done. d.mu is held.
func (d *Driver) reap(s *stream) {
	if s.closed && len(s.queue) == 0 {
		d.removeStream(s)
	}
}

// kill ends a context: err is what each later call returns, and pending work is dropped. d.mu is
// held.
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
