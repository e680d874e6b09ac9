// Package pool is the stream-ordered caching allocator that the drivers share. It takes large
// segments of a device's memory from a Backing and cuts them into blocks. It hands freed blocks out
// again without asking the device.
//
// The contract:
//
//   - A block belongs to the stream it was allocated on. Free makes it reusable at once for that
//     stream (the stream's own order protects earlier work), and for nobody else. A stream that
//     also touched the block is named by Block.Use; then Free records an event there and the block
//     is reusable only when the event is done.
//   - Free and Queue take the generation the owner read after Alloc. A release that names an older
//     generation is counted and ignored, so that a late garbage-collector cleanup can never free
//     the memory of the block's next owner.
//   - Queue is what such cleanups call. It takes no lock, does not allocate and does not block; the
//     next Alloc, Stats, Snapshot, Largest or Empty carries the release out.
//   - At the limit an allocation climbs a ladder before it fails: the Pressure hook, a garbage
//     collection and the releases that it queues, waiting for events, returning unused segments, a
//     segment of just the size asked. One goroutine climbs at a time; while it does, whatever
//     others free is offered to it first, and others that miss the cache queue behind it. No lock
//     of the pool but the ladder's own is held while it collects or waits.
//   - Memory is not cleared: a fresh segment holds what the Backing gave, a reused block what its
//     last owner left.
//   - With Options.Expandable, over a Backing that is an Expander, memory comes as pages in a range
//     of addresses for each stream and class of sizes. Its mapped parts are segments in all that
//     the pool tells; whole free pages go back where free segments do.
//   - While a history is recorded (RecordHistory), every event is kept with its stack in a ring;
//     otherwise that costs one atomic load an allocation. MemorySnapshot gives the history and what
//     the pool holds.
//   - Sizes are bytes. All methods may be called from any goroutine; a Block's accessors only by
//     its owner.
//
// The host is no stream. Blocks that it writes to itself (pinned staging memory) belong to a
// pseudo-stream of its own, whose Record gives an event that is done. Each device copy is a Use.
//
// A Backing must not call the pool from its methods, and no lock that they take may be held by a
// caller of the pool. Record, Done, Capacity, the Marker methods and those of an Expander but Unmap
// run under the pool's lock. Alloc, Free, Unmap and Wait run without it.
package pool

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// StreamID names a stream of the pool's device: an in-order queue of work. Zero is an ordinary
// name.
type StreamID uint64

// ErrNoMemory is what an error of Backing.Alloc wraps to say that the device is full: only such
// errors start the ladder.
var ErrNoMemory = errors.New("no memory left on the device")

// Event is a point in a stream's work, made by Backing.Record. Release gives the handle back and is
// called once.
type Event interface{ Release() }

// Backing is where segments come from: one device's raw memory and its streams' events.
type Backing interface {
	// Alloc returns the address of size bytes, aligned to at least Options.Round. An error that
	// wraps ErrNoMemory starts the ladder; any other is passed on to the caller of Pool.Alloc.
	Alloc(size uint64) (addr uintptr, err error)
	// Free takes back a segment. The pool has waited for all work on the segment's streams.
	Free(addr uintptr, size uint64)
	// Capacity returns the device's free and total bytes, zero where unknown.
	Capacity() (free, total uint64)
	// Record returns an event that is done when all work queued so far on the stream is done.
	Record(stream StreamID) (Event, error)
	// Done reports whether the event is done, without waiting. On a device that has failed for good
	// it reports true.
	Done(e Event) bool
	// Wait blocks until the event is done or the device has failed for good.
	Wait(e Event)
}

// Marker is optionally satisfied by a Backing that checks accesses (the emulator): it is told the
// bounds of every block, so that out-of-bounds is exact and reused memory can be poisoned. The
// calls come in the order of the pool's decisions; the stream is the one that owns the block, in
// whose order they take effect.
type Marker interface {
	BlockAllocated(stream StreamID, addr uintptr, requested, rounded uint64, label string)
	BlockFreed(stream StreamID, addr uintptr, rounded uint64)
}

// Options configures a pool. The zero value is usable: PyTorch's sizes, no limit, no early
// collections.
type Options struct {
	Name   string // the device, as it reads in errors: "cuda:0"
	ErrOOM error  // what OOMError wraps for errors.Is; nil: ErrNoMemory alone

	Round         uint64 // block sizes and addresses are multiples of it; a power of two; 512
	SmallMax      uint64 // sizes up to it are small: cut from small segments only; 1 MiB
	SmallSegment  uint64 // 2 MiB
	MediumMax     uint64 // sizes below it take a MediumSegment; 10 MiB
	MediumSegment uint64 // 20 MiB
	LargeRound    uint64 // larger ones take a segment of their size rounded up to it; 2 MiB
	SplitMin      uint64 // a large block is split when more than this remains; SmallMax

	// Expandable maps pages into ranges of addresses, where the backing is an Expander, instead of
	// taking segments. Page is the least size of pages, LargePage that for large blocks; 0: the
	// backing's granularity.
	Expandable      bool
	Page, LargePage uint64

	Limit uint64 // most bytes of segments; 0: no limit
	// the same as a fraction of Capacity's total, in (0, 1]; 0: none. The smaller of both holds
	Fraction float64

	// StreamName says which stream one is, as it reads in errors: "the default stream"; nil: by its
	// number.
	StreamName func(StreamID) string

	// Pressure is called on the ladder, without locks of the pool except the ladder's: owners of
	// caches let go of memory. It may call Free and Queue, never Alloc or Empty.
	Pressure func()

	// GCRatio > 0 starts garbage collections in the background, as device memory is invisible to
	// Go's pacer. One starts when the live bytes whose Origin is Collected exceed (1 + GCRatio) ×
	// what was live after the previous such collection, as GOGC does for the heap. Never below
	// GCMinBytes (64 MiB), never twice within GCInterval (50 ms).
	GCRatio    float64
	GCMinBytes uint64
	GCInterval time.Duration

	// how long the ladder waits for cleanups after its collection; 20 ms
	CollectWait time.Duration
	// runs a collection and returns when its cleanups have begun; for tests
	GC  func()
	Now func() time.Time // for tests
}

func (o Options) withDefaults() Options {
	def := func(v *uint64, d uint64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Round, 512)
	def(&o.SmallMax, 1<<20)
	def(&o.SmallSegment, 2<<20)
	def(&o.MediumMax, 10<<20)
	def(&o.MediumSegment, 20<<20)
	def(&o.LargeRound, 2<<20)
	def(&o.SplitMin, o.SmallMax)
	def(&o.GCMinBytes, 64<<20)
	if o.GCInterval == 0 {
		o.GCInterval = 50 * time.Millisecond
	}
	if o.CollectWait == 0 {
		o.CollectWait = 20 * time.Millisecond
	}
	if o.GC == nil {
		o.GC = collect
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Name == "" {
		o.Name = "the device"
	}
	return o
}

// check returns what is wrong with the sizes, for New's panic.
func (o Options) check() error {
	multiple := func(v uint64) bool { return v%o.Round == 0 }
	switch {
	case bits.OnesCount64(o.Round) != 1:
		return fmt.Errorf("option Round %d is not a power of two", o.Round)
	case !multiple(o.SmallMax) || !multiple(o.SmallSegment) || !multiple(o.MediumSegment) || !multiple(o.LargeRound):
		return fmt.Errorf("options SmallMax %d, SmallSegment %d, MediumSegment %d and LargeRound %d must be multiples of Round %d",
			o.SmallMax, o.SmallSegment, o.MediumSegment, o.LargeRound, o.Round)
	case o.SmallSegment < o.SmallMax || o.SmallSegment/o.Round > 1<<16:
		return fmt.Errorf("option SmallSegment %d must be at least SmallMax %d and at most 65536 times Round %d", o.SmallSegment, o.SmallMax, o.Round)
	case o.MediumSegment < o.MediumMax:
		return fmt.Errorf("option MediumSegment %d is below MediumMax %d", o.MediumSegment, o.MediumMax)
	case o.Fraction < 0 || o.Fraction > 1 || o.Fraction != o.Fraction:
		return fmt.Errorf("option Fraction %v is outside [0, 1]", o.Fraction)
	}
	return nil
}

// Pool hands out blocks of one device's memory. Make one with New.
type Pool struct {
	backing Backing
	marker  Marker // nil: the backing does not want to know
	o       Options

	mu        sync.Mutex
	limit     uint64 // 0: none
	arenas    []*arena
	last      *arena // the arena of the last allocation
	segments  []*segment
	spare     *Block // recycled Block structs, linked by next
	reserving uint64 // bytes being asked of the backing, outside the lock
	stats     Stats

	events     []*eventQueue // one per foreign stream that ever delayed a free
	pending    int           // events in them
	deferred   []*Block      // freed, but their events are not yet recorded
	paused     int           // PauseEvents depth
	eventIssue error         // the last error of Record that still has consequences

	queue       atomic.Pointer[Block] // what Queue pushed, linked by Block.queueNext
	staleQueued atomic.Uint64

	ladderMu sync.Mutex    // held by the one goroutine on the ladder or in Empty; taken before mu
	waiter   *request      // the allocation on the ladder, under mu
	wake     chan struct{} // capacity 1: something was freed or queued while hungry
	hungry   atomic.Bool

	collectable     uint64 // live bytes whose Origin is Collected
	collectableEver uint64 // all that ever were
	gcNext          uint64 // collectable above which a background collection starts
	gcLast          time.Time
	gcRunning       bool

	history   *history // nil: not recording
	freeStack *stack   // of the Free that is being carried out
	recording atomic.Pointer[history]

	expander   Expander // nil: the backing has no virtual memory
	expandable bool
	spaces     []*space
}

// New returns an empty pool over b. It panics when the sizes in o contradict each other.
func New(b Backing, o Options) *Pool {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		panic(fmt.Errorf("pool: New for %s: %w", o.Name, err))
	}
	p := &Pool{backing: b, o: o, wake: make(chan struct{}, 1), gcNext: o.GCMinBytes}
	p.marker, _ = b.(Marker)
	if p.expander, _ = b.(Expander); o.Expandable && !p.SetExpandable(true) {
		panic(fmt.Errorf("pool: New for %s: %w", o.Name, errNoVirtual))
	}
	p.limit = o.Limit
	if o.Fraction > 0 {
		if _, total := b.Capacity(); total > 0 {
			p.limit = smallerLimit(p.limit, uint64(o.Fraction*float64(total)))
		}
	}
	return p
}

func smallerLimit(a, b uint64) uint64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// SetLimit changes the most bytes of segments the pool may hold, 0 for no limit. What it already
// holds above that stays until Empty or the ladder returns it.
func (p *Pool) SetLimit(bytes uint64) {
	p.mu.Lock()
	p.limit = bytes
	p.mu.Unlock()
}

// Limit returns what SetLimit said.
func (p *Pool) Limit() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// sentinel is an object whose cleanup tells that the runtime has begun to run cleanups. The pointer
// field keeps it out of the tiny allocator, which would let it share a slot with live objects.
type sentinel struct{ _ *sentinel }

// collect runs a garbage collection and returns when the cleanups that it found have begun to run:
// on a busy machine their goroutine may start late. It gives up after a second.
func collect() {
	began := make(chan struct{})
	plantSentinel(began)
	runtime.GC()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-began:
	case <-t.C:
	}
}

//go:noinline
func plantSentinel(began chan struct{}) {
	runtime.AddCleanup(new(sentinel), func(c chan struct{}) { close(c) }, began)
}
