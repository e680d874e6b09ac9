package device

import (
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Tracer is called for the events of drivers and tensors while it is set. Package profile has a
// tracer. A tracer may also only count events. Its methods are called on the goroutine that does
// the work, and by several goroutines at the same time. They must return soon, and must not call a
// device or a tensor.
//
// The library reports kernels, copies, waits and memory when the call is over. It reports spans
// when they open and when they close. A kernel belongs to the innermost open span of its goroutine,
// and the tracer must find it. A kernel's event cannot name the span, because drivers do not know
// about spans. But package tensor always calls a driver on the goroutine of the op.
type Tracer interface {
	// Wants is called before each event, so that the library collects only data that the tracer
	// needs.
	Wants() TraceWants
	// Begin opens a span on the calling goroutine and returns a number from [NewSpanID]. End gets
	// that number, on the same goroutine. Spans close in reverse order, except spans with Loose
	// set.
	Begin(s Span) SpanID
	End(id SpanID)
	// Recorded says that the innermost open op of the calling goroutine has become the node with
	// the given number in the graph. The span of the node's backward work has this number in its
	// field Node.
	Recorded(node uint64)
	Kernel(k KernelEvent)
	Copy(c CopyEvent)
	Sync(s SyncEvent)
	Memory(m MemoryEvent)
}

// TraceWants says which optional data a tracer wants.
type TraceWants struct {
	Times        bool // times on the device, which need two timing events for each launch
	Shapes       bool // shapes of the operands of spans
	KernelShapes bool // shapes of the results and operands of kernels
	Memory       bool // events of allocations and frees
}

// SpanID is the number of a span, unique in the process; 0 means none.
type SpanID uint64

var spanIDs atomic.Uint64

// NewSpanID returns a number that no span has.
func NewSpanID() SpanID { return SpanID(spanIDs.Add(1)) }

// SpanKind says what opened a span.
type SpanKind uint8

// These are the kinds of spans.
const (
	SpanOp SpanKind = iota // a tensor op
	// work outside of a declared op, such as an update in place; a tracer shows it only if no op is
	// open
	SpanDirect
	SpanBackward // the gradient of an op, or the addition of a gradient to a leaf
	SpanModule   // a call of a layer
	SpanScope    // a named scope
	SpanUser     // a span that the program itself opened
)

// String returns the name of the kind in lower case.
func (k SpanKind) String() string {
	return [...]string{"op", "direct", "backward", "module", "scope", "user"}[k]
}

// Span is a part of a program's work that has a name.
type Span struct {
	Kind   SpanKind
	Name   string
	Shapes []shape.Dims // shapes of the operands, if the tracer wants them
	Node   uint64       // SpanBackward: the node of the graph; 0 means none
	// the innermost named scope around the operands' scope; any goroutine may have opened it
	Scope SpanID
	// for SpanScope: the span may be closed by another goroutine, or before spans that were opened
	// later
	Loose bool
	// for SpanModule: the layer's pointer, which distinguishes layers
	Owner any
	// Callers is the stack of the call that requested the work, as runtime.Callers returns it. It
	// is set only if a goroutine of the library does the work.
	Callers []uintptr
}

// KernelEvent is a primitive that has run, or has been queued on a GPU.
type KernelEvent struct {
	Device Device
	Stream Stream
	// name of the primitive: "map", "reduce", "matmul", …; for a program's own kernel, the kernel's
	// name
	Primitive string
	Class     Class
	Work      Work
	Type      dtype.Type   // type of the result
	Shapes    []shape.Dims // shapes of the results, then of the operands, if the tracer wants them
	// Start and End are host times, on the clock of [Now]: of the work itself on the CPU, and of
	// queueing it on a GPU.
	Start, End time.Duration
	Launches   []LaunchEvent // launches on a GPU; empty on the CPU
	// the primitive has not run: it is part of a graph that is being recorded
	Recorded bool
}

// LaunchEvent is one kernel of a primitive on a GPU.
type LaunchEvent struct {
	Kernel      string
	Grid, Block [3]int
	Shared      int // dynamic shared memory in bytes
	// Tensor is the number of operations in the tensor cores, as [Work] counts operations. It
	// includes operations on the padding of tiles. It is 0 if the kernel uses no tensor cores.
	Tensor     int
	TF32       bool // the tensor cores multiply TF32, at half the rate of 16-bit floats
	Start, End time.Duration
	// time on the device; nil if the tracer does not want it, or if the work is part of a captured
	// graph
	Time Interval
}

// Interval is the time at which work ran on a device. The tracer resolves it later, so that no work
// waits for it.
type Interval interface {
	// Resolve waits for the work and returns when it began and ended. The times are on the clock of
	// [Now], as exactly as the device's clock can be aligned with that clock. Resolve may be called
	// only once. The resolution of NVIDIA's events is about half a microsecond. An emulated device
	// has virtual times. Only their differences have a meaning, and these come from the cost model.
	Resolve() (start, end time.Duration, err error)
}

// CopyKind says between which memories a copy transfers data.
type CopyKind uint8

// These are the kinds of copies.
const (
	HostToDevice CopyKind = iota
	DeviceToHost
	DeviceToDevice // copies within one device
	PeerToPeer     // copies between devices
	HostToHost     // copies by the CPU driver
)

// String returns the kind as profilers write it: "HtoD".
func (k CopyKind) String() string { return [...]string{"HtoD", "DtoH", "DtoD", "PtoP", "HtoH"}[k] }

// CopyEvent is a copy that has been made or queued.
type CopyEvent struct {
	Device Device // the device whose driver copies
	Stream Stream
	Kind   CopyKind
	Op     string // name of the driver's method, or why the driver copies data of its own
	Bytes  int
	Peer   Device // the source device of a PeerToPeer copy
	// a PeerToPeer copy goes through host memory, because the devices cannot access each other's
	// memory
	Staged bool
	Pinned bool // the host memory is page-locked
	Own    bool // the driver copies data of its own, such as a table for a primitive
	// the host waited from Start to End until the copy was done or its source could be reused
	Blocked    bool
	Start, End time.Duration // time of the call
	Time       Interval      // time on the device; nil in the same cases as [LaunchEvent].Time
	Recorded   bool          // the copy has not run: it is part of a graph that is being recorded
}

// SyncEvent is a completed wait of the host for a device.
type SyncEvent struct {
	Device     Device
	Stream     Stream // the stream that was waited for; nil if the host waited for all streams
	Call       string // "stream synchronize", "device synchronize", "event wait", "wait for memory"
	Start, End time.Duration
}

// MemoryEvent is an allocation or a free of a device's memory.
type MemoryEvent struct {
	Device Device
	Addr   uintptr
	Bytes  int
	Freed  bool
	Pinned bool   // page-locked memory of the host
	Origin Origin // origin of the allocation
	// InUse is the device's memory in use after the event, as [Stats] counts it. For page-locked
	// memory, it is the page-locked memory in use. It is -1 if it is unknown because the memory is
	// freed later, and for the CPU's buffers below 8 KiB, which Stats does not count.
	InUse int
}

type tracerBox struct{ t Tracer }

var tracer atomic.Pointer[tracerBox]

// SetTracer sets the tracer for all devices of the process. If t is nil, it removes the tracer. If
// another tracer is set, SetTracer changes nothing and returns false.
func SetTracer(t Tracer) (ok bool) {
	if t == nil {
		tracer.Store(nil)
		return true
	}
	return tracer.CompareAndSwap(nil, &tracerBox{t})
}

// Tracing returns the tracer, nil if there is none. It costs one atomic load.
func Tracing() Tracer {
	if b := tracer.Load(); b != nil {
		return b.t
	}
	return nil
}

var epoch = time.Now()

// Now returns the time since the process started, on a monotonic clock. It is the clock of traces.
func Now() time.Duration { return time.Since(epoch) }
