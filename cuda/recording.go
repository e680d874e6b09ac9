package cuda

import (
	"bytes"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

var (
	_ device.Recorder        = (*Device)(nil)
	_ device.Recording       = (*recording)(nil)
	_ device.RecordingStream = (*stream)(nil)
	_ pool.Adopter           = backing{}
)

// recording is the work of one stream, kept in Go until Finish makes a graph of it: nothing is asked of the driver before, and an end without
// a result leaves nothing behind. The driver is not in its capture mode, so all that it refuses there is allowed meanwhile: events and waits
// of other streams, and memory. Each piece of work comes after the one before it, as in the stream.
//
// Its memory comes from an arena of the pool that has the recording's name and not the stream's: what is freed there serves the recording
// again, whose order protects it, and nobody else, even when the stream has become an ordinary one.
type recording struct {
	d     *Device
	s     *stream
	arena pool.StreamID
	live  atomic.Bool

	mu    sync.Mutex
	nodes []recorded
	feeds int
	marks map[uint64]recorded // blocks that are in use
}

// recorded is a piece of work.
type recorded struct {
	kind   recordedKind
	launch kernels.Launch
	to     uint64
	from   uint64
	n      uint64
	bytes  []byte         // of constants
	host   unsafe.Pointer // page-locked, of somebody else
	label  string         // of a block
	size   uint64         // of a block, as asked for
}

type recordedKind uint8

const (
	recordedLaunch   recordedKind = iota
	recordedMove                  // n bytes from from to to
	recordedConstant              // bytes to to
	recordedFeed                  // n bytes to to, new for each replay
	recordedHost                  // n bytes from host to to
	recordedBlock                 // of n bytes at to
	recordedFreed
)

// privateArena marks names of arenas that are no stream's.
const privateArena pool.StreamID = 1 << 63

// NewRecording starts a recording on a stream of its own.
func (d *Device) NewRecording() (device.Recording, error) {
	s, err := d.NewStream(0)
	if err != nil {
		return nil, err
	}
	if _, ok := d.api.(cu.Graphs); !ok {
		return nil, &device.RecordError{Device: d.name, Op: "work", Why: "the driver has no graphs"}
	}
	r := &recording{d: d, s: s.(*stream), arena: privateArena | pool.StreamID(d.p.recordings.Add(1)), marks: map[uint64]recorded{}}
	r.live.Store(true)
	d.p.arenas.Store(r.arena, r)
	d.pool.Hold(r.arena)
	r.s.rec.Store(r)
	return r, nil
}

func (r *recording) Stream() device.Stream { return r.s }

// Recording reports whether what is queued on s is recorded.
func (s *stream) Recording() bool { return s.rec.Load() != nil }

// arena is the name under which the pool keeps the memory of s.
func (s *stream) arena() pool.StreamID {
	if r := s.rec.Load(); r != nil {
		return r.arena
	}
	return pool.StreamID(s.handle)
}

// arenaStream returns the stream behind an arena, and its recording if it is a recording's.
func (p *platform) arenaStream(id pool.StreamID) (cu.Stream, *recording) {
	if id&privateArena != 0 {
		if r, ok := p.arenas.Load(id); ok {
			return r.(*recording).s.handle, r.(*recording)
		}
	}
	return cu.Stream(id), nil
}

// Follow makes later work on a stream come after what is queued on another one: memory of that one is taken over.
func (b backing) Follow(id, before pool.StreamID) error {
	e, err := b.Record(before)
	if err != nil {
		return err
	}
	defer e.Release()
	h, _ := b.d.p.arenaStream(id)
	if p := e.(poolEvent); p.h != 0 {
		if err := b.d.enter(); err != nil {
			return err
		}
		defer b.d.leave()
		return b.d.fault("", b.d.api.StreamWaitEvent(h, p.h))
	}
	return nil
}

// refuse returns the error for what cannot be recorded, nil where s is not being recorded.
func (s *stream) refuse(op, why string) error {
	if s.rec.Load() == nil {
		return nil
	}
	return &device.RecordError{Device: s.dev.name, Op: op, Why: why, Stream: s}
}

const hostWaits = "the host would wait for work that does not run yet"

func (r *recording) add(w recorded) {
	r.mu.Lock()
	r.nodes = append(r.nodes, w)
	r.mu.Unlock()
}

// launches records planned launches.
func (r *recording) launches(list []kernels.Launch) error {
	for _, l := range list {
		l.Params = bytes.Clone(l.Params)
		r.add(recorded{kind: recordedLaunch, launch: l})
	}
	return nil
}

// move records a copy on the device.
func (r *recording) move(to, from, n uint64) error {
	r.add(recorded{kind: recordedMove, to: to, from: from, n: n})
	return nil
}

// send records a copy from the host: of page-locked memory, which each replay reads, or of bytes that stay as they are.
func (r *recording) send(to uint64, b []byte) error {
	if r.d.p.pinned.holds(b) {
		r.add(recorded{kind: recordedHost, to: to, host: unsafe.Pointer(&b[0]), n: uint64(len(b))})
		return nil
	}
	r.add(recorded{kind: recordedConstant, to: to, bytes: bytes.Clone(b), n: uint64(len(b))})
	return nil
}

// Feed returns memory that each replay fills at this place.
func (r *recording) Feed(n int, o device.Origin) (device.Buffer, error) {
	if !r.live.Load() {
		return nil, &device.RecordError{Device: r.d.name, Op: "feed", Why: "the recording is over"}
	}
	if n < 1 {
		return nil, &ViewError{"feed", "bytes", "at least one byte is wanted"}
	}
	b, err := r.d.Alloc(n, r.s, o)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = append(r.nodes, recorded{kind: recordedFeed, to: uint64(b.Addr()), n: uint64(n)})
	r.feeds++
	return b, nil
}

// block records that a block begins or, with freed, ends. It reports false when the recording is over.
func (r *recording) block(addr uintptr, requested, rounded uint64, label string, freed bool) bool {
	if r == nil || !r.live.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := recorded{kind: recordedBlock, to: uint64(addr), n: rounded, size: requested, label: label}
	if freed {
		w.kind = recordedFreed
		delete(r.marks, w.to)
	} else {
		r.marks[w.to] = w
	}
	r.nodes = append(r.nodes, w)
	return true
}

// over makes the stream an ordinary one. The blocks in use are told to a checker: until the first replay their contents are undefined.
func (r *recording) over() bool {
	if !r.live.Swap(false) {
		return false
	}
	r.s.rec.Store(nil)
	if c, ok := r.d.api.(cu.Checker); ok && r.d.dead.Load() == nil {
		for _, b := range r.marks {
			c.BlockAllocated(r.s.handle, cu.DevicePtr(b.to), b.size, b.n, b.label)
		}
	}
	return true
}

// Abort ends the recording without a result.
func (r *recording) Abort() {
	if r.over() {
		r.retire()
	}
}

// retire makes the memory an ordinary stream's. What the recording's stream had to do is done.
func (r *recording) retire() {
	_ = r.s.Synchronize() // a fault is kept and comes out of the next call
	r.d.pool.Retire(r.arena, pool.StreamID(r.d.main.handle))
	r.d.p.arenas.Delete(r.arena)
}

// recordedEvent is a mark in a recorded stream.
type recordedEvent struct{ s *stream }

func (e *recordedEvent) Done() bool { return false }
func (e *recordedEvent) Release()   {}

// Wait refuses while the mark has no time.
func (e *recordedEvent) Wait() error {
	if err := e.s.refuse("wait for an event", "it marks work that is only recorded, and the one who waits is not recorded with it"); err != nil {
		return err
	}
	return e.s.Synchronize()
}
