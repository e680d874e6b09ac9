// Package device is the contract between tensors and the drivers that run them.
//
// A driver (cpu, cuda) implements [Device]: memory, streams, host copies and a handful of primitives over [View] values. All
// else is arithmetic on tensors. A driver that is faster at something says so by satisfying an optional interface
// ([Softmaxer], [CrossEntropyer], [MultiMapper], …); callers fall back to the composition of primitives otherwise.
//
// Work is queued on a [Stream] and runs in its order. A method returns when the work is queued, with an error for what can
// be known by then; faults of the work itself come out of the next call that waits ([Device.Download],
// [Stream.Synchronize]). Slices of views and scalars are the caller's again when a method returns. Outputs never overlap
// inputs, unless they are the same view (in place).
package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A Device runs tensors. Its methods are safe for concurrent use.
type Device interface {
	// Name is what [Open] takes: "cpu", "cuda:0".
	Name() string
	Info() Info
	// Alloc returns a buffer of the given bytes for use on s, contents undefined. It fails with an error that wraps
	// [ErrOutOfMemory]. A buffer of 0 bytes is valid.
	Alloc(bytes int, s Stream, o Origin) (Buffer, error)
	// DefaultStream is the stream used where none is chosen; NewStream makes another (higher priority is more urgent).
	DefaultStream() Stream
	NewStream(priority int) (Stream, error)

	// Upload copies src to dst from byte offset off on; src may be reused when it returns. Download waits for s and the
	// copy, and is where late faults ([IndexError], [Fault]) come out.
	Upload(s Stream, dst Buffer, off int, src []byte) error
	Download(s Stream, dst []byte, src Buffer, off int) error
	// CopyFrom copies size bytes from a buffer of another device of the same driver.
	CopyFrom(s Stream, dst Buffer, dstOff int, src Buffer, srcOff, size int) error

	// Map computes outs[k] = p(ins…) element by element; all views have one shape (broadcast operands have strides 0).
	// With no operands it fills; the identity copies, casts and gathers strides. params are the scalars' bits (expr.Encode).
	Map(s Stream, p *expr.Program, outs, ins []View, params []uint64) error
	// Reduce combines r.Map(ins…) over the dimensions in which out has size 1 and ins do not. out has the rank of ins.
	Reduce(s Stream, r *Reduction, out View, ins []View, params []uint64) error
	// MatMul computes out[b] = a[b]·b[b] for views of rank 3, [batch, m, k]·[batch, k, n], any strides, 0 in a broadcast
	// batch. 16-bit floats accumulate in float32; integers wrap.
	MatMul(s Stream, out, a, b View) error
	// Gather sets out[i…] = src[i… with index[i…] along axis]; out and index have one shape. An index outside the axis
	// stores 0 and is reported as an [IndexError] with tag, at once or at the next wait.
	Gather(s Stream, out, src, index View, axis int, tag uint32) error
	// Scatter combines src[i…] into dst[i… with index[i…] along axis], in the order of the positions. 16-bit floats are added
	// and multiplied in float32. Positions whose index is outside the axis are left out; index errors as for Gather.
	Scatter(s Stream, kind ScatterKind, dst, src, index View, axis int, tag uint32) error

	// Stats tells the memory in use; Empty gives cached memory back to the system and returns its bytes.
	Stats() Stats
	ResetPeak()
	Empty() int
	// Synchronize waits for all streams and reports late faults.
	Synchronize() error
}

// A Buffer is a block of a device's memory. Free and Queue may be called once, in total; afterwards it may not be used.
type Buffer interface {
	Device() Device
	Size() int     // bytes asked for
	Addr() uintptr // on the device; on the CPU the address of Host
	Host() []byte  // the memory itself where the host can reach it, else nil
	Use(s Stream)  // notes that a stream other than its own uses it, so that Free waits for that stream
	Free()         // gives it back in stream order
	Queue()        // gives it back later: for the garbage collector's cleanups, which may not block
}

// A Stream is a queue of work of one device.
type Stream interface {
	Device() Device
	ID() uint64
	Record() (Event, error) // marks the work queued so far
	Wait(Event) error       // later work waits for the event, which may be of another stream or device
	Synchronize() error     // waits for all work queued so far
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

// ReduceKind says how values are combined.
type ReduceKind uint8

// The ways to combine. Max and Min propagate NaN; the identity is that of the type (0, 1, ∓Inf or the extreme integer).
// ArgMax and ArgMin give the first position, as I64, in row-major order of the reduced dimensions; NaN counts as extreme.
const (
	Sum ReduceKind = iota
	Prod
	Max
	Min
	ArgMax
	ArgMin
)

// String returns the kind in lower case.
func (k ReduceKind) String() string {
	return [...]string{"sum", "prod", "max", "min", "argmax", "argmin"}[k]
}

// A Reduction is map, combine, finish. The values are combined in the type that Map stores (float32 for 16-bit floats);
// float32 sums are pairwise or better, in an order that does not depend on the number of workers.
type Reduction struct {
	Kind   ReduceKind
	Map    *expr.Program // of the operands; one result
	Finish *expr.Program // of the combined value as operand 0; nil: store it as out's type. Shares params with Map
}

// Softmaxer is satisfied by devices with a fused softmax over the last dimension of a rank-2 view.
type Softmaxer interface {
	// Softmax sets out to softmax(x), or its logarithm, row by row.
	Softmax(s Stream, out, x View, log bool) error
	// SoftmaxGrad sets dx from the result y and its gradient g.
	SoftmaxGrad(s Stream, dx, y, g View, log bool) error
}

// CrossEntropyer is satisfied by devices with a fused log-softmax and negative log likelihood.
type CrossEntropyer interface {
	// CrossEntropy sets loss[i] = -log softmax(x)[i, target[i]] (0 where target is ignore), top[i], the greatest of the row, and
	// rest[i] = log Σ exp(x[i] - top[i]), for x of shape [n, classes], target I64 [n], loss, top and rest [n] in x's computing type.
	CrossEntropy(s Stream, loss, top, rest, x, target View, ignore int64, tag uint32) error
	// CrossEntropyGrad sets dx = (exp(x - top[i] - rest[i]) - onehot(target))·g[i], the gradient from what CrossEntropy left, 0 where
	// target is ignore; g is of shape [n], strides may be 0.
	CrossEntropyGrad(s Stream, dx, x, top, rest, target, g View, ignore int64) error
}

// MultiMapper is satisfied by devices that run one program over many groups of tensors in one launch: an optimizer step.
type MultiMapper interface {
	// MultiMap runs p on each group k of contiguous views, outs[k], ins[k]. params is a contiguous buffer of 8-byte slots on
	// the device holding the scalars' bits, so that a captured step sees new values.
	MultiMap(s Stream, p *expr.Program, outs, ins [][]View, params View) error
}

// Borrower is satisfied by devices that work on host memory that others own: a mapped file.
type Borrower interface {
	// Borrow returns a buffer on mem, which must stay as long as release can be reached. release is called once, when the buffer
	// is freed or queued, from any goroutine; it must not block.
	Borrow(mem []byte, release func()) Buffer
}

// Origin says what a buffer is for; it is kept for reports of memory.
type Origin struct {
	Where fmt.Stringer // resolves to the call site or the scope when printed; nil where nothing is known
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
