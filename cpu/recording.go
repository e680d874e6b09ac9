package cpu

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
	"github.com/flambeau-go/flambeau/internal/worklist"
)

var (
	_ device.Recorder  = (*Device)(nil)
	_ device.Recording = (*recording)(nil)
	_ device.HostGuard = (*stream)(nil)
	_ device.Replayer  = (*replayer)(nil)
	_ pool.Adopter     = (*memory)(nil)
)

// recording is a list of the primitives and copies that were queued on its streams. A replay runs
// the whole list in the calling goroutine, in the order in which the program queued the work.
// Streams therefore need not wait for each other, and later work may reuse memory that the program
// has freed.
//
// The memory of a recording comes from an arena of its own in each device's pool. No other work
// gets that memory before the replayer is closed.
type recording struct {
	d     host
	mains []*stream // the first stream of each device; the stream of d comes first
	arena pool.StreamID
	// value that identifies the user of the recording, set by the method For; nil if not set
	owner atomic.Pointer[any]

	mu      sync.Mutex
	live    bool
	streams []*stream
	items   []item
	feeds   [][]byte // host memory that a replay fills, one slice for each feed
}

// item is one piece of recorded work: a primitive, or a copy of bytes. A feed is a copy from memory
// that each replay fills.
type item struct {
	op       device.Op // nil for a copy
	dst, src []byte
	callers  []uintptr // stack of the call that queued the work, for errors in replays
}

// arenas is the number of the last arena. Recordings use arenas from number 1 on, and ordinary work
// uses arena 0.
var arenas atomic.Uint64

// host is a CPU device with or without memory: *Device or *meta.
type host interface {
	device.Device
	memoryPool() *pool.Pool
	newStream() *stream
}

func (d *Device) memoryPool() *pool.Pool { return d.pool }
func (d *meta) memoryPool() *pool.Pool   { return d.pool }

func (d *Device) newStream() *stream { return &stream{dev: d, id: d.next.Add(1)} }
func (d *meta) newStream() *stream   { return &stream{dev: d, id: d.next.Add(1)} }

// NewRecording starts a recording with a new stream on d and on each of the given devices. All of
// these must be other ranks of the CPU.
func (d *Device) NewRecording(others ...device.Device) (device.Recording, error) {
	list := []host{d}
	for _, o := range others {
		own, ok := o.(*Device)
		switch {
		case !ok || own == nil:
			name := "nil"
			if o != nil {
				name = o.Name()
			}
			return nil, operandError(d.name, "record", "others", name+" is not a device of the CPU")
		case slices.Contains(list, host(own)):
			return nil, operandError(d.name, "record", "others", own.name+" is given twice")
		}
		list = append(list, own)
	}
	return newRecording(list), nil
}

// NewRecording starts a recording whose replays compute nothing.
func (d *meta) NewRecording(others ...device.Device) (device.Recording, error) {
	if len(others) > 0 {
		return nil, operandError(d.Name(), "record", "others", "a CPU without memory is recorded alone")
	}
	return newRecording([]host{d}), nil
}

func newRecording(list []host) *recording {
	r := &recording{d: list[0], live: true, arena: pool.StreamID(arenas.Add(1))}
	for _, of := range list {
		r.mains = append(r.mains, r.newStream(of))
		of.memoryPool().Hold(r.arena)
	}
	return r
}

func (r *recording) newStream(d host) *stream {
	s := d.newStream()
	s.rec.Store(r)
	r.streams = append(r.streams, s)
	return s
}

func (r *recording) Stream() device.Stream { return r.mains[0] }

// On returns the recording's first stream of a device.
func (r *recording) On(d device.Device) device.Stream {
	if s, err := r.partner("", d); err == nil {
		return s
	}
	return nil
}

// Fork returns another stream on the device. Its work becomes part of the same list.
func (r *recording) Fork(on device.Device) (device.Stream, error) {
	s, err := r.partner("fork", on)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live {
		return nil, r.refusal("fork", "the recording is over")
	}
	return r.newStream(s.dev), nil
}

// partner returns the recording's first stream of the device on. It returns an error if the device
// is not part of the recording.
func (r *recording) partner(op string, on device.Device) (*stream, error) {
	for _, s := range r.mains {
		if device.Device(s.dev) == on {
			return s, nil
		}
	}
	name := "nil"
	if on != nil {
		name = on.Name()
	}
	return nil, operandError(r.d.Name(), op, "on", name+" takes no part in the recording")
}

func (r *recording) refusal(op, why string) error {
	return &device.RecordError{Device: r.d.Name(), Op: op, Why: why, Stream: r.mains[0]}
}

// For stores the value that identifies the recording's user.
func (r *recording) For(whom any) { r.owner.Store(&whom) }

// Recording reports whether the work of s is being recorded.
func (s *stream) Recording() bool { return s.rec.Load() != nil }

// RecordedFor returns the value that For has stored in the recording of s. It returns nil if there
// is none.
func (s *stream) RecordedFor() any {
	if r := s.rec.Load(); r != nil {
		if whom := r.owner.Load(); whom != nil {
			return *whom
		}
	}
	return nil
}

// Guard returns a buffer with the memory of b. While s is recorded, the buffer's method Host
// panics.
func (s *stream) Guard(b device.Buffer) device.Buffer {
	own, ok := b.(*buffer)
	if !ok || own == nil || !s.Recording() {
		return b
	}
	return &buffer{dev: own.dev, mem: own.mem, guard: s, life: own.life}
}

// recordingOf returns the recording of a stream, or nil if work on the stream runs at once.
func recordingOf(s device.Stream) *recording {
	if own, ok := s.(*stream); ok && own != nil {
		return own.rec.Load()
	}
	return nil
}

// These are the reasons why operations cannot be recorded.
const (
	hostWaits   = "the host would wait for work that does not run yet"
	uploadsOnce = "replays would copy the bytes of now"
)

// refused returns an error if s is a stream of a recording. The string why says why op cannot be
// recorded. For other streams, refused returns nil.
func refused(s device.Stream, op, why string) error {
	r := recordingOf(s)
	if r == nil {
		return nil
	}
	return &device.RecordError{Device: r.d.Name(), Op: op, Why: why, Stream: s}
}

// Feed returns a buffer that each replay fills at this point of the list.
func (r *recording) Feed(on device.Device, n int, o device.Origin) (device.Buffer, error) {
	s, err := r.partner("feed", on)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, operandError(r.d.Name(), "feed", "bytes", "at least one byte is wanted")
	}
	b, err := s.dev.Alloc(n, s, o)
	if err != nil {
		return nil, err
	}
	filled := make([]byte, n)
	if !r.add(item{dst: b.Host(), src: filled}) {
		b.Free()
		return nil, r.refusal("feed", "the recording is over")
	}
	r.mu.Lock()
	r.feeds = append(r.feeds, filled)
	r.mu.Unlock()
	return b, nil
}

// add appends an item with the caller's stack. It returns false if the recording has ended.
func (r *recording) add(it item) bool {
	var pc [64]uintptr
	it.callers = slices.Clone(pc[:runtime.Callers(3, pc[:])])
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live {
		return false
	}
	r.items = append(r.items, it)
	return true
}

// recordOp records op if s is a stream of a recording. It returns false if s is not.
func recordOp(s device.Stream, op device.Op, told *device.KernelEvent) bool {
	r := recordingOf(s)
	if r == nil || !r.add(item{op: op.Clone()}) {
		return false
	}
	if told != nil {
		told.Recorded = true
	}
	return true
}

// end ends the recording and makes its streams ordinary streams. It returns false if the recording
// has already ended.
func (r *recording) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live {
		return false
	}
	r.live = false
	r.owner.Store(nil)
	for _, s := range r.streams {
		s.rec.Store(nil)
	}
	return true
}

// Abort ends the recording without a result.
func (r *recording) Abort() {
	if r.end() {
		r.retire()
	}
}

// retire gives the recording's memory back to the pools.
func (r *recording) retire() {
	for _, s := range r.mains {
		s.dev.memoryPool().Retire(r.arena, 0)
	}
}

// Finish ends the recording and returns its list.
func (r *recording) Finish() (device.Replayer, error) {
	if !r.end() {
		return nil, r.refusal("finish", "the recording is over")
	}
	g := &replayer{r: r, d: r.d, items: r.items, feeds: r.feeds, recorded: len(r.items)}
	if _, ok := r.d.(*Device); ok {
		g.items, g.saved = r.shortened(r.items)
	}
	if len(r.mains) > 1 {
		g.d = Get()
	}
	r.items, r.feeds = nil, nil
	return g, nil
}

// replayer runs the list of a recording.
type replayer struct {
	r *recording
	// device whose workers run the list; for several ranks the whole CPU, because one rank's work
	// may wait for another's
	d host

	mu    sync.Mutex
	items []item
	feeds [][]byte
	done  bool

	recorded int // number of recorded items, before some of them were combined
	saved    worklist.Savings
}

// Operations returns the number of primitives, copies and feeds that a replay runs.
func (g *replayer) Operations() int { return len(g.items) }

// Recorded returns the number of primitives, copies and feeds that the program queued. Some of them
// may since have been combined.
func (g *replayer) Recorded() int { return g.recorded }

// Replay runs the list and returns when it is done. It stops at the first error, an
// *[device.ReplayError].
func (g *replayer) Replay(fill func(feed int, to []byte)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return &device.RecordError{Device: g.d.Name(), Op: "replay", Why: "the graph is closed"}
	}
	for i, to := range g.feeds {
		fill(i, to)
	}
	for i := range g.items {
		it := &g.items[i]
		var err error
		if it.op == nil {
			transfer(g.d, it.dst, it.src)
		} else {
			err = device.Rerun(g.d, g.d.DefaultStream(), it.op)
		}
		if err != nil {
			return &device.ReplayError{Callers: it.callers, Err: err}
		}
	}
	return nil
}

// Close frees the memory. A second call has no effect.
func (g *replayer) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.done {
		g.done, g.items, g.feeds = true, nil, nil
		g.r.retire()
	}
	return nil
}

// recordedEvent is an event in a recording. The work before it has not run.
type recordedEvent struct {
	r *recording
	s *stream
}

// Done returns false, because the work before the event has not run.
func (e recordedEvent) Done() bool { return false }
func (e recordedEvent) Release()   {}

// Wait returns an error while the recording goes on.
func (e recordedEvent) Wait() error {
	if !e.s.Recording() {
		return nil
	}
	return &device.RecordError{Device: e.r.d.Name(), Op: "wait for an event", Why: "its mark was made in a recording, for the streams of that"}
}

// Follow does nothing, because work on the CPU is done when the call that queued it returns.
func (*memory) Follow(_, _ pool.StreamID) error { return nil }
