// Package pool is the stream-ordered caching allocator that the drivers share. It allocates large
// segments of a device's memory from a Backing and cuts them into blocks. Freed blocks are reused
// without a call to the device.
//
// These rules hold:
//
//   - A block belongs to the stream on which it was allocated. After Free only that stream can
//     reuse the block. It can do so immediately, because work on a stream runs in order. If another
//     stream also uses the block, the owner calls Block.Use. Free then records an event on the
//     other stream, and the block is reusable when the event is done.
//   - Free and Queue take the generation that the owner read after Alloc. A release with an older
//     generation is counted and ignored. So a late cleanup of the garbage collector can never free
//     the memory of the block's next owner.
//   - Garbage-collector cleanups call Queue. It takes no lock, does not allocate and does not
//     block. The next Alloc, Stats, Snapshot, Largest or Empty performs the release.
//   - When memory is exhausted, an allocation runs the out-of-memory ladder before it fails. The
//     ladder's steps are the Pressure hook, a garbage collection and the releases that it queues,
//     waiting for events, giving back unused segments, and a segment of exactly the requested size.
//     Only one goroutine at a time is on the ladder. It is the first to get the blocks that other
//     goroutines free. A goroutine whose request the cache cannot serve waits until the ladder is
//     free. During a collection or a wait, only the ladder's lock is held.
//   - The pool does not clear memory. A new segment has the contents that the Backing provides. A
//     reused block has the contents that its last owner left.
//   - With Options.Expandable and a Backing that is an Expander, memory consists of pages in a
//     range of addresses for each stream and size class. The mapped parts count as segments in all
//     reports. The pool gives back whole free pages where it would otherwise give back free
//     segments.
//   - While a history is recorded (RecordHistory), a ring keeps every event with its stack. Without
//     a recording, an allocation costs one atomic load more. MemorySnapshot returns the history and
//     the pool's contents.
//   - Sizes are in bytes. Several goroutines may call all methods at the same time. Only the owner
//     of a Block may call its methods.
//
// The host is not a stream. Page-locked memory, which the host itself writes, therefore belongs to
// a pseudo-stream. Record returns an event for it that is already done. Each device that copies
// such memory calls Use with its stream.
//
// A Backing must not call the pool from its methods. No caller of the pool may hold a lock that
// these methods take. The pool calls Alloc, Free, Unmap and Wait without its lock. It calls Record,
// Done, Capacity, the methods of Marker and the other methods of an Expander with its lock held.
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

// StreamID names a stream of the pool's device. Zero is a valid name.
type StreamID uint64

// ErrNoMemory is wrapped by the error of Backing.Alloc when the device is full. Only such errors
// start the out-of-memory ladder.
var ErrNoMemory = errors.New("no memory left on the device")

// Event is a point in a stream's work, recorded by Backing.Record. The pool calls Release once,
// when it no longer needs the event.
type Event interface{ Release() }

// Backing supplies segments of one device's memory, and events of the device's streams.
type Backing interface {
	// Alloc returns the address of size bytes, aligned at least to Options.Round. An error that
	// wraps ErrNoMemory starts the out-of-memory ladder. Pool.Alloc returns any other error to its
	// caller.
	Alloc(size uint64) (addr uintptr, err error)
	// Free frees a segment. The pool calls it after all work that used the segment.
	Free(addr uintptr, size uint64)
	// Capacity returns the device's free and total bytes, or zero if unknown.
	Capacity() (free, total uint64)
	// Record returns an event that is done when all work queued so far on the stream is done.
	Record(stream StreamID) (Event, error)
	// Done reports whether the event is done, without waiting. On a device that has failed
	// permanently it returns true.
	Done(e Event) bool
	// Wait blocks until the event is done or the device has failed permanently.
	Wait(e Event)
}

// Marker is implemented by a Backing that checks memory accesses (the emulator). The pool tells it
// the bounds of every block. The Backing can then detect accesses out of bounds, and can overwrite
// a block's memory before the block is reused. Each call takes effect at its point in the order of
// the stream that owns the block.
type Marker interface {
	BlockAllocated(stream StreamID, addr uintptr, requested, rounded uint64, label string)
	BlockFreed(stream StreamID, addr uintptr, rounded uint64)
}

// Options configures a pool. The zero value has the sizes of PyTorch's allocator, no limit, and no
// early garbage collections.
type Options struct {
	Name   string // name of the device in error messages: "cuda:0"
	ErrOOM error  // another error that OOMError wraps; may be nil

	// sizes and addresses of blocks are multiples of Round, a power of two; default 512
	Round uint64
	// largest size of small blocks, which are cut only from small segments; default 1 MiB
	SmallMax     uint64
	SmallSegment uint64 // size of a small segment; default 2 MiB
	// largest size of blocks that are cut from a segment of MediumSegment bytes; default 10 MiB
	MediumMax     uint64
	MediumSegment uint64 // size of a medium segment; default 20 MiB
	// A larger block gets its own segment, with a size that is a multiple of LargeRound; default 2
	// MiB
	LargeRound uint64
	SplitMin   uint64 // a large block is split if more bytes than this remain; default SmallMax

	// Expandable makes the pool map pages instead of allocating segments, if the backing is an
	// Expander. Page is the smallest page size for small blocks, and LargePage is the smallest page
	// size for large blocks. 0 means the backing's granularity.
	Expandable      bool
	Page, LargePage uint64

	Limit uint64 // maximum number of bytes in segments; 0 means no limit
	// limit as a fraction of the device's total memory, in (0, 1]; 0 means no fraction. If Limit is
	// set too, the smaller limit applies
	Fraction float64

	// StreamName returns the name of a stream for errors, such as "the default stream". If
	// StreamName is nil, errors name the stream's number.
	StreamName func(StreamID) string

	// Pressure is called as a step of the out-of-memory ladder. The owners of caches then free
	// memory. Pressure may call Free and Queue, but must not call Alloc or Empty.
	Pressure func()

	// If GCRatio > 0, the pool starts garbage collections in the background, because the Go runtime
	// does not see device memory. It counts the bytes of live blocks whose Origin is Collected. A
	// collection starts when these exceed (1 + GCRatio) × the live bytes after the previous
	// collection, as GOGC does for the heap. No collection starts below GCMinBytes (64 MiB), or
	// within GCInterval (50 ms) of the last collection.
	GCRatio    float64
	GCMinBytes uint64
	GCInterval time.Duration

	// longest time that the out-of-memory ladder waits for the cleanups of a garbage collection;
	// default 20 ms
	CollectWait time.Duration
	// function that runs a garbage collection and returns when its cleanups have begun; tests
	// replace it
	GC  func()
	Now func() time.Time // clock; tests replace it
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

// check returns an error if the sizes contradict each other.
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

// Pool allocates blocks of one device's memory. Create one with New.
type Pool struct {
	backing Backing
	marker  Marker // the backing as a Marker; nil if it is not one
	o       Options

	mu        sync.Mutex
	limit     uint64 // largest number of bytes in segments; 0 means no limit
	arenas    []*arena
	lastArena *arena // arena of the stream that allocated last
	segments  []*segment
	spare     *Block // Block structs for reuse, linked by Block.next
	reserving uint64 // number of bytes that the backing is allocating or freeing without the lock
	stats     Stats

	// one queue for each stream; it is made when a freed block first waits for the stream
	events   []*eventQueue
	pending  int      // number of events in all queues
	deferred []*Block // freed blocks whose events are not recorded yet
	paused   int      // nesting depth of PauseEvents
	// last error of Record that still prevents memory from being reused
	eventIssue error

	queue       atomic.Pointer[Block] // list of blocks that Queue added, linked by Block.queueNext
	staleQueued atomic.Uint64

	ladderMu sync.Mutex // held during the ladder and during Empty; taken before mu
	waiter   *request   // request that runs the out-of-memory ladder, guarded by mu
	// channel of capacity 1 through which freed and queued blocks wake the out-of-memory ladder
	// while ladderWaits is set
	wake        chan struct{}
	ladderWaits atomic.Bool

	collectable     uint64 // number of bytes in live blocks whose Origin is Collected
	collectableEver uint64 // bytes of all blocks ever allocated whose Origin is Collected
	gcNext          uint64 // value of collectable above which a background collection starts
	gcLast          time.Time
	gcRunning       bool

	history   *history // recorded history; nil while none is recorded
	freeStack *stack   // stack of the call of Free that is in progress
	recording atomic.Pointer[history]

	expander   Expander // the backing as an Expander; nil if it is not one or has no virtual memory
	expandable bool
	spaces     []*space
}

// New returns an empty pool on b. It panics if the sizes in o contradict each other.
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

// SetLimit changes the maximum number of bytes in segments; 0 means no limit. Segments that exceed
// a new limit stay until Empty or the ladder returns them.
func (p *Pool) SetLimit(bytes uint64) {
	p.mu.Lock()
	p.limit = bytes
	p.mu.Unlock()
}

// Limit returns the current limit; 0 means none.
func (p *Pool) Limit() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// sentinel is an object whose cleanup shows that the runtime has begun to run cleanups. Because it
// has a pointer field, the runtime does not allocate it together with other tiny objects. Otherwise
// those could keep it alive, and its cleanup would not run.
type sentinel struct{ _ *sentinel }

// collect runs a garbage collection. It returns when cleanups have begun to run, or after a second:
// on a busy machine they may start late.
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
