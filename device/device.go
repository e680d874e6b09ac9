// Package device is the contract between tensors and the drivers that run their ops (packages cpu
// and cuda).
//
// A program that trains needs little of this package. [Best] finds the fastest device, [Open] opens
// a device by name, and Device.Stats reports the memory in use. All other parts are for drivers and
// for authors of ops.
//
// A driver implements [Device]: memory, streams, host copies and primitives. A primitive is a
// value, an [Op]. The function [Run] checks it, reports it to the tracer and passes it to the
// driver. Every driver runs [Map], [Reduce], [MatMul], [Gather] and [Scatter]. All other ops, such
// as [Softmax], [Norm] and [MultiMap], are optional. A driver supports an optional op if it can run
// it faster than a composition of the other ops. If a driver does not support an op, package tensor
// uses such a composition.
//
// Work is queued on a [Stream] and runs in the stream's order. A call returns when the work is
// queued, with the errors that are known by then. The next call that waits ([Device.Download],
// [Stream.Synchronize]) returns errors of the work itself. When a call has returned, the caller may
// reuse the slices of views and scalars that it passed. Outputs must not overlap inputs, but an
// output may be the same view as an input (in place).
package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Device runs the ops of tensors. Its methods are safe for concurrent use.
type Device interface {
	// Name returns the name that [Open] accepts: "cpu", "cuda:0".
	Name() string
	Info() Info
	// Alloc returns a buffer of the given number of bytes for use on s, with undefined contents. If
	// there is not enough memory, the error wraps [ErrOutOfMemory]. A buffer of 0 bytes is valid.
	Alloc(bytes int, s Stream, o Origin) (Buffer, error)
	// DefaultStream returns the stream for calls that name no stream. NewStream creates another
	// stream. Work on a stream of higher priority is more urgent.
	DefaultStream() Stream
	NewStream(priority int) (Stream, error)

	// Upload copies src to dst, starting at byte off of dst. The caller may reuse src when Upload
	// returns. Download copies len(dst) bytes, from byte off of src, to dst. It waits for the work
	// on s and for the copy. It returns errors of the work on s that were found only when the work
	// ran ([IndexError], [Fault]).
	Upload(s Stream, dst Buffer, off int, src []byte) error
	Download(s Stream, dst []byte, src Buffer, off int) error
	// CopyFrom copies size bytes from a buffer of another device of the same driver.
	CopyFrom(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error

	// Owns returns an empty reason if b is usable memory of the device. Otherwise the reason says
	// why b is not usable. b may be nil.
	Owns(b Buffer) (reason string)
	// Supports reports whether the device runs op itself. If it does not, the caller uses a
	// composition of other ops. Supports looks at layouts, types and modes but not at buffers, so
	// it can be called before results are allocated. It returns true for Map, Reduce, MatMul,
	// Gather and Scatter.
	Supports(op Op) bool
	// Run queues op on s, a stream of the device. Only the function [Run] calls it, after it has
	// checked op. For an op that the device does not support, the error wraps
	// errors.ErrUnsupported. event is the event that [Run] reports to the tracer, or nil if there
	// is no tracer. A device that launches kernels adds its launches to event.
	Run(s Stream, op Op, event *KernelEvent) error

	// Stats returns counts of the memory in use. Empty gives cached memory back to the system and
	// returns how many bytes it gave back.
	Stats() Stats
	ResetPeak()
	Empty() int
	// Synchronize waits for the work on all streams. It returns errors that were found only when
	// the work ran.
	Synchronize() error
}

// Buffer is a block of a device's memory. A program calls either Free or Queue, once. It may not
// use the buffer afterwards.
type Buffer interface {
	Device() Device
	Size() int     // number of requested bytes
	Addr() uintptr // address on the device; for the CPU, the address of Host's first byte
	Host() []byte  // the buffer's memory if the host can access it, else nil
	// Use tells the allocator that work on stream s also uses the buffer. After a Free, the
	// allocator reuses the memory only when that work is done. Use is not needed for the stream
	// that was passed to Alloc.
	Use(s Stream)
	Free()  // frees the memory when the work queued on its stream is done
	Queue() // frees the memory later; for cleanups of the garbage collector, which must not block
}

// Stream is a queue of one device's work.
type Stream interface {
	Device() Device
	ID() uint64
	Record() (Event, error) // marks the work queued so far
	// makes work that is queued later wait for the event, which may belong to another stream or
	// device
	Wait(Event) error
	Synchronize() error // waits for all work queued so far
}

// An Event marks a point in a stream. It is done when all work queued before that point is done.
type Event interface {
	Done() bool
	Wait() error // blocks the caller until the event is done
	Release()
}

// View is a strided view of a buffer. Its offset and strides count elements of Type.
type View struct {
	Buf  Buffer
	Type dtype.Type
	shape.Layout
}

// Borrower is satisfied by devices that can use host memory of another owner, such as a mapped
// file.
type Borrower interface {
	// Borrow returns a buffer whose memory is mem. mem must stay valid as long as release is
	// reachable. The device calls release once, after the buffer's Free or Queue, from any
	// goroutine. release must not block.
	Borrow(mem []byte, release func()) Buffer
}

// Origin says what a buffer is for. Reports of memory show it.
type Origin struct {
	// the call site or the scope, as text; nil if neither is known
	Where fmt.Stringer
	Op    string
	Scope string // the names of the enclosing scopes, joined by slashes
	Shape shape.Dims
	Type  dtype.Type
	// Collected is true if no call of Free frees the memory. The garbage collector then frees it
	// when the buffer is unreachable.
	Collected bool
}

// String returns a text such as "[64, 512] float32, result of matmul at train.go:31".
func (o Origin) String() string {
	s := o.Shape.String() + " " + o.Type.String() + ", result of " + o.Op
	if o.Where != nil {
		s += " " + o.Where.String()
	}
	return s
}

// Info describes a device.
type Info struct {
	Kind string // kind of the device: "cpu" or "cuda"
	Name string // name of the product
	// the host can access the device's memory, and a call that queues work returns only when the
	// work is done
	Host       bool
	Emulated   bool
	Meta       bool   // the device has addresses but no memory, as OpenMeta's devices do
	Capability [2]int // compute capability, CUDA only
	Memory     int    // size of the memory in bytes
	Cores      int    // CPU cores or streaming multiprocessors
	SIMD       string // CPU only: "avx512", "avx2", "generic", …
	// CPU only: why elementwise programs are not compiled to machine code; "" if they are
	Interpreted string
	Driver      string // version of the driver, CUDA only
	PTX         string // newest PTX version that the driver compiles
}

// PlainBytes is a size in bytes. On the CPU, a buffer of fewer bytes is ordinary Go memory. The
// garbage collector frees such a buffer, even if nobody calls Free.
const PlainBytes = 8 << 10

// Stats counts a device's memory in bytes, as its allocator sees it. On the CPU, buffers of
// fewer than [PlainBytes] bytes do not come from the allocator. They are Go memory, which
// runtime.MemStats counts.
type Stats struct {
	Allocated, AllocatedPeak int // bytes in blocks in use: now, and at the peak
	Reserved, ReservedPeak   int // bytes taken from the system: now, and at the peak
	AllocatedTotal           int // number of bytes allocated since the start
	Allocations, Frees       int // number of calls of Alloc, and of Free
	Segments                 int
	// Retries counts allocations that succeeded only after caches were emptied; OOMs counts
	// allocations that failed
	Retries, OOMs int
}

// PinnedAllocator is satisfied by devices that can copy from and to page-locked host memory
// asynchronously. The system cannot page out such memory, so programs should allocate little of it.
// Its allocation is slow, so a device keeps freed page-locked memory for reuse.
type PinnedAllocator interface {
	Device
	// AllocPinned returns page-locked host memory with undefined contents. The buffer's Host is
	// never nil, its Free and Queue do not block, and its Use has no effect. After Free, the memory
	// is reused when the copies by UploadPinned and DownloadPinned that use it are done. The error
	// may wrap [ErrOutOfMemory].
	AllocPinned(bytes int, o Origin) (Buffer, error)
	// UploadPinned queues a copy of size bytes from src to dst, a buffer of this device, and
	// returns. src must come from AllocPinned of this device or of another device of its driver.
	// The host must not change the copied bytes of src before the copy is done.
	UploadPinned(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error
	// DownloadPinned queues a copy from src, a buffer of this device, to the page-locked dst, and
	// returns. The host may read the bytes in dst after it has waited for s.
	DownloadPinned(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error
	// PinnedStats returns counts of the driver's page-locked memory. EmptyPinned gives unused
	// page-locked memory back to the system and returns how many bytes it gave back.
	PinnedStats() Stats
	EmptyPinned() int
}

// WorkerSharer is satisfied by devices whose work runs in goroutines of the program, called
// workers. The CPU is such a device. Several ranks of the CPU share the machine's cores: the
// program gives each rank some of the workers.
type WorkerSharer interface {
	Device
	// SetWorkers sets how many goroutines, including the caller's, share the work of one op. With n
	// = 1, the caller's goroutine does all work. With n = 0, the device uses the number of workers
	// with which it was opened. SetWorkers may be called while work runs. Results do not depend on
	// n.
	SetWorkers(n int)
	// Workers returns the number of workers.
	Workers() int
}

// Preparer is satisfied by devices that load the code of a kernel into device memory when the
// kernel is first used.
type Preparer interface {
	// Prepare loads the code of an op whose kernels do not depend on its views, such as a
	// [MultiMap]. For other ops it does nothing. Loading may exhaust the memory. If several
	// launches must run together or not at all, a program calls Prepare before the first. An
	// out-of-memory error then comes before any launch.
	Prepare(op Op) error
}
