// Package device is the contract between tensors and the drivers that run them (packages cpu and
// cuda).
//
// A program that trains needs little of it: [Best] finds the fastest device, [Open] opens a certain
// one, and Device.Stats tells its memory. The rest is for drivers and for those who write ops.
//
// A driver implements [Device]: memory, streams, copies from and to the host, and primitives. A
// primitive is a value, an [Op]. [Run] checks it, tells the tracer, and hands it to the driver.
// Every driver has [Map], [Reduce], [MatMul], [Gather] and [Scatter]. A driver that does something
// faster supports an op for it ([Softmax], [Norm], [MultiMap], …). All else is arithmetic on
// tensors.
//
// Work is queued on a [Stream] and runs in its order. A call returns when the work is queued, with
// an error for what can be known by then. A fault of the work itself comes out of the next call
// that waits (Device.Download, Stream.Synchronize). Slices of views and scalars are the caller's
// again when a call returns. Outputs never overlap inputs, unless they are the same view (in
// place).
package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Device runs tensors. Its methods are safe for concurrent use.
type Device interface {
	// Name is what [Open] takes: "cpu", "cuda:0".
	Name() string
	Info() Info
	// Alloc returns a buffer of the given bytes for use on s, contents undefined. It fails with an
	// error that wraps [ErrOutOfMemory]. A buffer of 0 bytes is valid.
	Alloc(bytes int, s Stream, o Origin) (Buffer, error)
	// DefaultStream is the stream used where none is chosen; NewStream makes another (higher
	// priority is more urgent).
	DefaultStream() Stream
	NewStream(priority int) (Stream, error)

	// Upload copies src to dst from byte offset off on; src may be reused when it returns. Download
	// waits for s and the copy, and is where late faults ([IndexError], [Fault]) come out.
	Upload(s Stream, dst Buffer, off int, src []byte) error
	Download(s Stream, dst []byte, src Buffer, off int) error
	// CopyFrom copies size bytes from a buffer of another device of the same driver.
	CopyFrom(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error

	// Owns says why b, which may be nil, is no memory of the device that may be used; the reason is
	// empty where it is.
	Owns(b Buffer) (reason string)
	// Supports reports whether the device runs op by itself; where not, a composition of others
	// takes its place. It looks at layouts, types and modes, never at buffers, so that it can be
	// asked before results are allocated. It is true of Map, Reduce, MatMul, Gather and Scatter.
	Supports(op Op) bool
	// Run queues op on s, a stream of its own. It is for [Run] to call, which has checked op;
	// others go through that. An op that it does not support is an errors.ErrUnsupported. told, nil
	// where nobody listens, is the event that Run tells: a device that launches kernels adds its
	// launches.
	Run(s Stream, op Op, told *KernelEvent) error

	// Stats tells the memory in use; Empty gives cached memory back to the system and returns its
	// bytes.
	Stats() Stats
	ResetPeak()
	Empty() int
	// Synchronize waits for all streams and reports late faults.
	Synchronize() error
}

// A Buffer is a block of a device's memory. Free and Queue may be called once, in total; afterwards
// it may not be used.
type Buffer interface {
	Device() Device
	Size() int     // bytes asked for
	Addr() uintptr // on the device; on the CPU the address of Host
	Host() []byte  // the memory itself where the host can reach it, else nil
	// notes that a stream other than its own uses it, so that Free waits for that stream
	Use(s Stream)
	Free()  // gives it back in stream order
	Queue() // gives it back later: for the garbage collector's cleanups, which may not block
}

// A Stream is a queue of work of one device.
type Stream interface {
	Device() Device
	ID() uint64
	Record() (Event, error) // marks the work queued so far
	// later work waits for the event, which may be of another stream or device
	Wait(Event) error
	Synchronize() error // waits for all work queued so far
}

// An Event is a mark in a stream.
type Event interface {
	Done() bool
	Wait() error // blocks the caller
	Release()
}

// A View is a strided window on a buffer; its offset and strides count elements of Type.
type View struct {
	Buf  Buffer
	Type dtype.Type
	shape.Layout
}

// Borrower is satisfied by devices that work on host memory that others own: a mapped file.
type Borrower interface {
	// Borrow returns a buffer on mem, which must stay as long as release can be reached. release is
	// called once, when the buffer is freed or queued, from any goroutine; it must not block.
	Borrow(mem []byte, release func()) Buffer
}

// Origin says what a buffer is for; it is kept for reports of memory.
type Origin struct {
	// resolves to the call site or the scope when printed; nil where nothing is known
	Where fmt.Stringer
	Op    string
	Scope string // the names of the scopes around it, joined by slashes
	Shape shape.Dims
	Type  dtype.Type
	// Collected marks memory that nobody frees by hand: a garbage collection may give it back.
	Collected bool
}

// String reads like "[64, 512] float32, result of matmul at train.go:31".
func (o Origin) String() string {
	s := o.Shape.String() + " " + o.Type.String() + ", result of " + o.Op
	if o.Where != nil {
		s += " " + o.Where.String()
	}
	return s
}

// Info describes a device.
type Info struct {
	Kind       string // "cpu", "cuda"
	Name       string // of the product
	Host       bool   // the processor does the work, at once, in memory that it reads and writes
	Emulated   bool
	Meta       bool   // it has addresses without memory: see [OpenMeta]
	Capability [2]int // compute capability, CUDA only
	Memory     int    // bytes
	Cores      int    // CPU cores or streaming multiprocessors
	SIMD       string // CPU only: "avx512", "avx2", "generic", …
	Driver     string // version of the driver, CUDA only
	PTX        string // newest PTX version that the driver takes
}

// Stats counts a device's memory in bytes, as the allocator sees it. On the CPU buffers of less
// than 64 KiB do not come from it: they are ordinary Go memory, which runtime.MemStats counts.
type Stats struct {
	Allocated, AllocatedPeak int // in blocks that are in use
	Reserved, ReservedPeak   int // held from the system
	AllocatedTotal           int // ever
	Allocations, Frees       int // counts
	Segments                 int
	Retries, OOMs            int // allocations that had to empty caches first; that failed
}

// PinnedAllocator is satisfied by devices that copy from and to page-locked host memory without
// holding up the host. Such memory is scarce: it cannot be paged out, and taking it from the system
// is slow, so that a device keeps what is given back.
type PinnedAllocator interface {
	Device
	// AllocPinned returns page-locked host memory, contents undefined; its Host is never nil. Free
	// and Queue do not block: they give it back for the next AllocPinned, which gets it only when
	// the copies below that use it are done. Use has no effect. The error may wrap
	// [ErrOutOfMemory].
	AllocPinned(bytes int, o Origin) (Buffer, error)
	// UploadPinned queues a copy of size bytes from src, memory of AllocPinned of this device or of
	// another of its driver, to dst, a buffer of this device, and returns. The host may not write
	// those bytes before the copy is done.
	UploadPinned(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error
	// DownloadPinned queues the copy the other way and returns. The host may read the bytes after a
	// wait for s.
	DownloadPinned(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error
	// PinnedStats tells the page-locked memory of the driver; EmptyPinned gives what is not in use
	// back to the system and returns its bytes.
	PinnedStats() Stats
	EmptyPinned() int
}

// A WorkerSharer is a device that does its work in goroutines of the program, such as the
// CPU. Several of them share the machine's cores: each rank gets its part of the workers.
type WorkerSharer interface {
	Device
	// SetWorkers says how many goroutines, the caller included, share the work of one call. With 1
	// all work is done by the caller, and no worker runs. 0 restores what the device began with.
	// It may be called while work runs. Results do not depend on it.
	SetWorkers(n int)
	// Workers returns that number.
	Workers() int
}

// Preparer is satisfied by devices that load code when it is first used, which takes memory.
type Preparer interface {
	// Prepare loads the code of an op whose kernels do not depend on its views, such as a
	// [MultiMap]; of others it loads nothing. Launches that belong together are prepared first, so
	// that out-of-memory comes before the first of them.
	Prepare(op Op) error
}
