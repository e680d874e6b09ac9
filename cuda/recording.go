package cuda

import (
	"bytes"
	"slices"
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

// recording is the work of some streams, kept in Go until Finish makes a graph of it: nothing is
// asked of the driver before, and an end without a result leaves nothing behind. The driver is not
// in its capture mode, so all that it refuses there is allowed meanwhile: events and waits of other
// streams, and memory. Of each stream, a lane, a piece of work comes after the one before it.
//
// Its memory comes from arenas of the pool that have names of their own and not the stream's. What
// is freed there serves the lane again, whose order protects it. It serves nobody else, even when
// the stream has become an ordinary one.
//
// Each device that takes part has a stream of the driver's. Replays are launched on that of the
// first, and the others' streams come before and after each of them: see replayer.start.
type recording struct {
	d    *Device
	s    *stream   // of the first lane
	with []*stream // of the first lane of each other device
	live atomic.Bool
	whom atomic.Pointer[any] // until it is over

	mu    sync.Mutex
	lanes []*lane
	nodes []recorded
	marks map[uint64]recorded // blocks that are in use
	hosts []*pinnedBlock      // that replays copy from or to
}

// recorded is a piece of work.
type recorded struct {
	kind    recordedKind
	lane    int
	number  uint32 // in its lane, from 1
	after   []int  // pieces before, of any lane, that it comes right after
	launch  kernels.Launch
	to      uint64
	from    uint64
	n       uint64
	bytes   []byte         // of constants
	host    unsafe.Pointer // page-locked, of somebody else
	label   string         // of a block
	product *productCall
	link    *peerLink // of a copy from another device
	size    uint64    // of a block, as asked for
}

type recordedKind uint8

const (
	recordedLaunch   recordedKind = iota
	recordedProduct               // of a library
	recordedMove                  // n bytes from from to to
	recordedPeer                  // … which is of another device
	recordedConstant              // bytes to to
	recordedFeed                  // n bytes to to, new for each replay
	recordedHost                  // n bytes from host to to
	recordedSave                  // n bytes from from to host
	recordedBlock                 // of n bytes at to
	recordedFreed
)

// privateArena marks names of arenas that are no stream's.
const privateArena pool.StreamID = 1 << 63

// NewRecording starts a recording on a stream of its own, and one of each other device.
func (d *Device) NewRecording(others ...device.Device) (device.Recording, error) {
	const op = "record"
	list := []*Device{d}
	for _, o := range others {
		own, err := d.peerDevice(op, o)
		if err != nil {
			return nil, err
		}
		if slices.Contains(list, own) {
			return nil, d.refusal(op, "others", own.name+" is given twice")
		}
		list = append(list, own)
	}
	if _, ok := d.api.(cu.Graphs); !ok {
		return nil, &device.RecordError{Device: d.name, Op: "work", Why: "the driver has no graphs"}
	}
	r := &recording{d: d, marks: map[uint64]recorded{}}
	var streams []*stream
	for _, of := range list {
		s, err := of.NewStream(0)
		if err != nil {
			return nil, err
		}
		streams = append(streams, s.(*stream))
	}
	r.s, r.with = streams[0], streams[1:]
	r.live.Store(true)
	for _, s := range streams {
		s.dev.pool.Hold(r.newLane(s).arena)
	}
	return r, nil
}

func (r *recording) Stream() device.Stream { return r.s }

// On returns the first stream of a device.
func (r *recording) On(d device.Device) device.Stream {
	if s := r.on(d); s != nil {
		return s
	}
	return nil
}

func (r *recording) on(d device.Device) *stream {
	for _, s := range r.streams() {
		if device.Device(s.dev) == d {
			return s
		}
	}
	return nil
}

// streams are the driver's, that of the first device first.
func (r *recording) streams() []*stream { return append([]*stream{r.s}, r.with...) }

// partner returns the first stream of a device, or the error of one that takes no part.
func (r *recording) partner(op string, d device.Device) (*stream, error) {
	if s := r.on(d); s != nil {
		return s, nil
	}
	name := "nil"
	if d != nil {
		name = d.Name()
	}
	return nil, r.d.refusal(op, "on", name+" takes no part in the recording")
}

// Recording reports whether what is queued on s is recorded.
func (s *stream) Recording() bool { return s.rec.Load() != nil }

// For says whom the recording is for.
func (r *recording) For(whom any) { r.whom.Store(&whom) }

// RecordedFor returns whom the recording is for that takes what is queued on s.
func (s *stream) RecordedFor() any {
	if l := s.rec.Load(); l != nil {
		if whom := l.r.whom.Load(); whom != nil {
			return *whom
		}
	}
	return nil
}

// arena is the name under which the pool keeps the memory of s.
func (s *stream) arena() pool.StreamID {
	if l := s.rec.Load(); l != nil {
		return l.arena
	}
	return pool.StreamID(s.handle)
}

// arenaStream returns the stream behind an arena, and the lane if it is one's.
func (p *platform) arenaStream(id pool.StreamID) (cu.Stream, *lane) {
	if id&privateArena != 0 {
		if l, ok := p.arenas.Load(id); ok {
			return l.(*lane).s.handle, l.(*lane)
		}
	}
	return cu.Stream(id), nil
}

// Follow makes later work on a stream come after what is queued on another one: memory of that one
// is taken over.
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

// launches records planned launches.
func (l *lane) launches(list []kernels.Launch) error {
	for _, k := range list {
		k.Params = bytes.Clone(k.Params)
		l.record(recorded{kind: recordedLaunch, launch: k})
	}
	return nil
}

// move records a copy on the device.
func (l *lane) move(to, from, n uint64) error {
	l.record(recorded{kind: recordedMove, to: to, from: from, n: n})
	return nil
}

// send records a copy from the host: of page-locked memory, which each replay reads, or of bytes
// that stay as they are.
func (l *lane) send(to uint64, b []byte) error {
	if l.r.d.p.pinned.holds(b) {
		l.record(recorded{kind: recordedHost, to: to, host: unsafe.Pointer(&b[0]), n: uint64(len(b))})
		return nil
	}
	l.record(recorded{kind: recordedConstant, to: to, bytes: bytes.Clone(b), n: uint64(len(b))})
	return nil
}

// keeps has a block of page-locked memory stay what it is until the recording, or what becomes of
// it, is closed, also where its owner gives it back. It reports false when the recording is over.
func (r *recording) keeps(b *pinnedBlock) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live.Load() {
		return false
	}
	if !slices.Contains(r.hosts, b) {
		r.hosts = append(r.hosts, b)
		b.mu.Lock()
		b.graphs++
		b.mu.Unlock()
	}
	return true
}

// peer records a copy from another device.
func (l *lane) peer(to, from, n uint64, link *peerLink) error {
	l.record(recorded{kind: recordedPeer, to: to, from: from, n: n, link: link})
	return nil
}

// Feed returns memory that each replay fills at this place.
func (r *recording) Feed(on device.Device, n int, o device.Origin) (device.Buffer, error) {
	s, err := r.partner("feed", on)
	if err != nil {
		return nil, err
	}
	if !r.live.Load() {
		return nil, &device.RecordError{Device: r.d.name, Op: "feed", Why: "the recording is over"}
	}
	if n < 1 {
		return nil, r.d.refusal("feed", "bytes", "at least one byte is wanted")
	}
	b, err := s.dev.Alloc(n, s, o)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := s.rec.Load(); l != nil {
		l.add(recorded{kind: recordedFeed, to: uint64(b.Addr()), n: uint64(n)})
	}
	return b, nil
}

// block records that a block begins or, with freed, ends. It reports false when the recording is
// over.
func (l *lane) block(addr uintptr, requested, rounded uint64, label string, freed bool) bool {
	if l == nil {
		return false
	}
	r := l.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live.Load() {
		return false
	}
	w := recorded{kind: recordedBlock, lane: l.index, to: uint64(addr), n: rounded, size: requested, label: label}
	if freed {
		w.kind = recordedFreed
		delete(r.marks, w.to)
	} else {
		r.marks[w.to] = w
	}
	l.add(w)
	return true
}

// over makes the streams ordinary ones. The blocks in use are told to a checker: until the first
// replay their contents are undefined.
func (r *recording) over() bool {
	r.mu.Lock()
	live := r.live.Swap(false)
	r.mu.Unlock()
	if !live {
		return false
	}
	r.whom.Store(nil)
	var free []heldBlock
	for _, l := range r.lanes {
		l.s.rec.Store(nil)
		free = append(free, l.held...)
		l.held = nil
	}
	if c, ok := r.d.api.(cu.Checker); ok {
		for _, b := range r.marks {
			if s := r.lanes[b.lane].s; s.dev.dead.Load() == nil {
				c.BlockAllocated(s.handle, cu.DevicePtr(b.to), b.size, b.n, b.label)
			}
		}
	}
	r.release(free)
	return true
}

// Abort ends the recording without a result.
func (r *recording) Abort() {
	if r.over() {
		r.retire()
	}
}

// retire makes the memory an ordinary stream's. What the recording's streams had to do is done.
func (r *recording) retire() {
	for _, s := range r.streams() {
		_ = s.Synchronize() // a fault is kept and comes out of the next call
	}
	for _, b := range r.hosts {
		b.mu.Lock()
		b.graphs--
		b.mu.Unlock()
	}
	r.hosts = nil
	for _, l := range r.lanes {
		l.s.dev.counters.end(l.arena)
		l.s.dev.pool.Retire(l.arena, pool.StreamID(l.s.dev.main.handle))
		r.d.p.arenas.Delete(l.arena)
	}
}
