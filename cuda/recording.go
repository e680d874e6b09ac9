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
	"github.com/flambeau-go/flambeau/internal/worklist"
)

var (
	_ device.Recorder        = (*Device)(nil)
	_ device.Recording       = (*recording)(nil)
	_ device.RecordingStream = (*stream)(nil)
	_ pool.Adopter           = backing{}
)

// recording collects the work of its streams in Go until Finish makes a graph of it. It calls the
// driver only in Finish, so a recording that is aborted leaves nothing behind. The driver's own
// capture mode is not used. Calls that it would forbid are therefore allowed: allocations, and
// events and waits of other streams. Each stream of the recording is a lane. The work of one lane
// runs in the order in which it was recorded.
//
// Each lane has its own arena of the pool. Memory that is freed in an arena is reused only by its
// lane, so the lane's order protects the memory. This also holds after the lane's stream has become
// an ordinary stream.
//
// Each device that takes part has a driver stream. Replays are launched on the first device's
// stream. A replay runs after the earlier work of all these streams and before their later work.
type recording struct {
	d      *Device
	s      *stream   // the recording's first stream on its first device
	others []*stream // for each other device, the recording's first stream on it
	live   atomic.Bool
	owner  atomic.Pointer[any] // value that the method For stored; nil after the recording has ended

	mu    sync.Mutex
	lanes []*lane
	nodes []recorded
	// number of recorded nodes that are work, without those for the beginning or end of a block
	pieces int
	marks  map[uint64]recorded // beginnings of the blocks that are in use, by address
	hosts  []*pinnedBlock      // page-locked blocks that replays copy from or to
}

// recorded is one recorded node: work, or the beginning or end of a block of memory.
type recorded struct {
	kind   recordedKind
	lane   int
	number uint32 // index of the node in its lane, counted from 1
	deps   []int  // indices of the earlier nodes, of any lane, that directly precede this node
	// launches of kernels; op is nil if they do not belong to an op
	launches []kernels.Launch
	op       device.Op
	joined   bool // whether op replaces several recorded ops
	// scratch lists memory that the launches use in addition to the operands, in the order of its
	// allocation.
	scratch []worklist.Span
	dst     uint64
	src     uint64
	n       uint64
	bytes   []byte         // bytes that a recordedConstant copies
	host    unsafe.Pointer // page-locked memory of the program that the copy reads or writes
	label   string         // text that names the owner of a block
	product *productCall
	link    *peerLink // state of copies from another device
	size    uint64    // requested size of a block
}

type recordedKind uint8

const (
	recordedLaunch  recordedKind = iota // launches of kernels
	recordedProduct                     // matrix product by a library
	recordedMove                        // copy of n bytes on the device
	recordedPeer                        // copy of n bytes from another device
	// copy of bytes from the host that are the same in each replay
	recordedConstant
	recordedFeed  // copy of n bytes from the host that each replay provides
	recordedHost  // copy of n bytes from page-locked memory of the program
	recordedSave  // copy of n bytes to page-locked memory of the program
	recordedBlock // beginning of a block of n bytes
	recordedFreed
	recordedTakeover // beginning of a block in memory that another block still uses
)

// marks reports whether a node of this kind is the beginning or end of a block, and not work.
func (k recordedKind) marks() bool {
	return k == recordedBlock || k == recordedFreed || k == recordedTakeover
}

// privateArena is a bit of an arena's ID. It is set if the arena belongs to a lane.
const privateArena pool.StreamID = 1 << 63

// NewRecording starts a recording with a new stream on d and a new stream on each of the other
// devices.
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
	r.s, r.others = streams[0], streams[1:]
	r.live.Store(true)
	for _, s := range streams {
		s.dev.pool.Hold(r.newLane(s).arena)
	}
	return r, nil
}

func (r *recording) Stream() device.Stream { return r.s }

// On returns the recording's first stream on a device.
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

// streams returns the recording's first stream on each device.
func (r *recording) streams() []*stream { return append([]*stream{r.s}, r.others...) }

// partner returns the recording's first stream on a device, or an error if the recording has none
// there.
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

// Recording reports whether the work of s is being recorded.
func (s *stream) Recording() bool { return s.rec.Load() != nil }

// For stores the value that identifies the recording's user.
func (r *recording) For(whom any) { r.owner.Store(&whom) }

// RecordedFor returns the value that the method For stored in the recording of s, or nil if there
// is none.
func (s *stream) RecordedFor() any {
	if l := s.rec.Load(); l != nil {
		if whom := l.r.owner.Load(); whom != nil {
			return *whom
		}
	}
	return nil
}

// arena returns the ID of the pool's arena that holds the memory of s.
func (s *stream) arena() pool.StreamID {
	if l := s.rec.Load(); l != nil {
		return l.arena
	}
	return pool.StreamID(s.handle)
}

// arenaStream returns the driver's stream for an arena, and the lane if the arena belongs to one.
func (p *platform) arenaStream(id pool.StreamID) (cu.Stream, *lane) {
	if id&privateArena != 0 {
		if l, ok := p.arenas.Load(id); ok {
			return l.(*lane).s.handle, l.(*lane)
		}
	}
	return cu.Stream(id), nil
}

// Follow makes later work of one stream run after the work queued on another stream. The argument
// id is the first stream's arena, and the argument before is the second stream's arena. The first
// stream also takes over the memory of the second stream's arena.
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

// refuse returns the error for an operation that cannot be recorded. It returns nil if s is not
// being recorded.
func (s *stream) refuse(op, why string) error {
	if s.rec.Load() == nil {
		return nil
	}
	return &device.RecordError{Device: s.dev.name, Op: op, Why: why, Stream: s}
}

const hostWaits = "the host would wait for work that does not run yet"

// launches records the launches of an op and the scratch memory that they use. For a program's own
// kernel, which belongs to no op, op is nil.
func (l *lane) launches(op device.Op, list []kernels.Launch, scratch []*pool.Block) {
	if len(list) == 0 {
		return
	}
	w := recorded{kind: recordedLaunch, launches: slices.Clone(list)}
	for i := range w.launches {
		w.launches[i].Params = bytes.Clone(list[i].Params)
	}
	if op != nil {
		w.op = op.Clone()
	}
	for _, b := range scratch {
		w.scratch = append(w.scratch, worklist.Span{Lo: b.Addr(), Hi: b.Addr() + uintptr(b.Size())})
	}
	l.record(w)
}

// move records a copy on the device.
func (l *lane) move(to, from, n uint64) error {
	l.record(recorded{kind: recordedMove, dst: to, src: from, n: n})
	return nil
}

// send records a copy from the host. If b is page-locked memory, each replay reads it again;
// otherwise its bytes are copied now and stay constant.
func (l *lane) send(to uint64, b []byte) error {
	if l.r.d.p.pinned.holds(b) {
		l.record(recorded{kind: recordedHost, dst: to, host: unsafe.Pointer(&b[0]), n: uint64(len(b))})
		return nil
	}
	l.record(recorded{kind: recordedConstant, dst: to, bytes: bytes.Clone(b), n: uint64(len(b))})
	return nil
}

// keeps prevents the reuse of a block of page-locked memory until the recording or its graph is
// closed, even if the block's owner frees it. It returns false and does nothing if the recording
// has ended.
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

// peer records a copy of n bytes from another device.
func (l *lane) peer(dst, src, n uint64, link *peerLink) error {
	l.record(recorded{kind: recordedPeer, dst: dst, src: src, n: n, link: link})
	return nil
}

// Feed returns a buffer that each replay fills with new data at this point of the recording.
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
		l.add(recorded{kind: recordedFeed, dst: uint64(b.Addr()), n: uint64(n)})
	}
	return b, nil
}

// block records the beginning of a block or, if freed is true, its end. It returns false if the
// recording has ended.
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
	w := recorded{kind: recordedBlock, lane: l.index, dst: uint64(addr), n: rounded, size: requested, label: label}
	if freed {
		w.kind = recordedFreed
		delete(r.marks, w.dst)
	} else {
		r.marks[w.dst] = w
	}
	l.add(w)
	return true
}

// finish turns the recording's streams into ordinary streams. It also reports the blocks in use to
// the emulator's checker, because their contents are undefined until the first replay.
func (r *recording) finish() bool {
	r.mu.Lock()
	live := r.live.Swap(false)
	r.mu.Unlock()
	if !live {
		return false
	}
	r.owner.Store(nil)
	var free []heldBlock
	for _, l := range r.lanes {
		l.s.rec.Store(nil)
		free = append(free, l.held...)
		l.held = nil
	}
	if c, ok := r.d.api.(cu.Checker); ok {
		for _, b := range r.marks {
			if s := r.lanes[b.lane].s; s.dev.dead.Load() == nil {
				c.BlockAllocated(s.handle, cu.DevicePtr(b.dst), b.size, b.n, b.label)
			}
		}
	}
	r.release(free)
	return true
}

// Abort ends the recording without making a graph.
func (r *recording) Abort() {
	if r.finish() {
		r.retire()
	}
}

// retire gives the recording's memory to the default streams of the devices. They reuse it after
// the work of the recording's streams.
func (r *recording) retire() {
	for _, s := range r.streams() {
		_ = s.Synchronize() // a sticky fault is stored in the device, and the next call returns it
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
