package device

import (
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Tracer is told about the work of drivers and tensors after a call of [SetTracer]. Package
// profile has a tracer. A tracer may also only count events. Its methods are called on the
// goroutine that does the work, and by several goroutines at the same time. They must return soon,
// and must not call a device or a tensor.
//
// The library reports kernels, copies, waits and memory when the call that requested them is over.
// It reports spans when they open and when they close. A kernel belongs to the innermost open span
// of the goroutine that reports it. Drivers do not know about spans, so the tracer itself must find
// that span. This works because package tensor calls a driver on the goroutine that opened the op's
// span.
type Tracer interface {
	// Wants is called before each event. The library then collects only the data that the tracer
	// wants.
	Wants() TraceWants
	// Begin opens a span on the calling goroutine and returns a number from [NewSpanID]. The
	// library passes that number to End on the same goroutine. Spans close in reverse order, except
	// spans with Loose set.
	Begin(s Span) SpanID
	End(id SpanID)
	// Recorded reports that the op of the calling goroutine's innermost open span became the node
	// with the given number in the autograd graph. The span of the node's backward work has this
	// number in its field Node.
	Recorded(node uint64)
	Kernel(k KernelEvent)
	Copy(c CopyEvent)
	Sync(s SyncEvent)
	Memory(m MemoryEvent)
}

// TraceWants says which optional data a tracer wants.
type TraceWants struct {
	Times        bool // times of work on the device; they need two timing events for each launch
	Shapes       bool // shapes of each span's operands
	KernelShapes bool // shapes of each kernel's results and operands
	Memory       bool // events for allocations and frees
}

// SpanID is the number of a span, unique in the process; 0 means none.
type SpanID uint64

var spanIDs atomic.Uint64

// NewSpanID returns a number that no span has.
func NewSpanID() SpanID { return SpanID(spanIDs.Add(1)) }

// SpanKind says what opened a span.
type SpanKind uint8

// These are the kinds of spans, by what opened them.
const (
	SpanOp SpanKind = iota // a tensor op
	// work outside of an op, such as an update in place; a tracer shows it only if no op is open
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
	Node   uint64       // for SpanBackward: number of the node in the autograd graph; 0 means none
	// the innermost named scope in which the operands were computed; any goroutine may have opened
	// it
	Scope SpanID
	// for SpanScope: the span may be closed by another goroutine, or before spans that were opened
	// later
	Loose bool
	// for SpanModule: pointer to the layer, which identifies it
	Owner any
	// Callers is the stack of the call that requested the work, as runtime.Callers returns it. It
	// is set only if a goroutine of the library does the work.
	Callers []uintptr
}

// KernelEvent reports that a primitive has run, or has been queued on a GPU.
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
	// Start and End are host times on the clock of [Now]. On the CPU they are the times of the
	// work. On a GPU they are the times of the call that queued the work.
	Start, End time.Duration
	Launches   []LaunchEvent // launches on a GPU; empty on the CPU
	// the primitive has not run; it was recorded for later replays
	Recorded bool
}

// LaunchEvent is the launch of one kernel on a GPU. A primitive has one or several launches.
type LaunchEvent struct {
	Kernel      string
	Grid, Block [3]int
	Shared      int // dynamic shared memory in bytes
	// Tensor is the number of operations in the tensor cores, as [Work] counts operations.
	// Operations on the padding at the edges of tiles are included. It is 0 if the kernel uses no
	// tensor cores.
	Tensor     int
	TF32       bool // the tensor cores multiply TF32, at half the rate of 16-bit floats
	Start, End time.Duration
	// time on the device; nil if the tracer does not want times, or if the work was recorded for
	// later replays
	Time Interval
}

// Interval is the time at which work ran on a device. A tracer calls Resolve when it needs the
// time, so the work itself never waits.
type Interval interface {
	// Resolve waits for the work and returns when it began and ended. The times are on the clock of
	// [Now], as exactly as the device's clock can be aligned with that clock. Resolve may be called
	// only once. The resolution of NVIDIA's events is about half a microsecond. An emulated device
	// returns times that a cost model computes: only their differences have a meaning.
	Resolve() (start, end time.Duration, err error)
}

// CopyKind says from which memory to which memory a copy transfers data.
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
	Op     string // name of the driver's method, or why the driver copied data of its own
	Bytes  int
	Peer   Device // the source device of a PeerToPeer copy
	// a PeerToPeer copy went through host memory, because the devices cannot access each other's
	// memory
	Staged bool
	Pinned bool // the host memory is page-locked
	Own    bool // the driver copied data of its own, such as a table for a primitive
	// the host waited from Start to End, until the copy was done or its source could be reused
	Blocked    bool
	Start, End time.Duration // times of the call on the host
	// time on the device; nil if the tracer does not want times, or if the copy was recorded
	Time     Interval
	Recorded bool // the copy has not run; it was recorded for later replays
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
	Pinned bool   // the memory is page-locked memory of the host
	Origin Origin // what the memory was allocated for
	// InUse is the number of bytes in use after the event, as [Stats] counts them. If Pinned is
	// set, it counts page-locked memory instead of the device's. It is -1 if the number is unknown:
	// the memory is freed later, or Stats does not count it. Stats does not count buffers of the
	// CPU below 8 KiB.
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

// Tracing returns the tracer, or nil if there is none. It costs one atomic load.
func Tracing() Tracer {
	if b := tracer.Load(); b != nil {
		return b.t
	}
	return nil
}

var epoch = time.Now()

// Now returns the time since the process started, on a monotonic clock. All times in trace events
// are on this clock.
func Now() time.Duration { return time.Since(epoch) }
