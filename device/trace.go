package device

import (
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Tracer hears what drivers and tensors do while it is set: package profile's, and those that
// count. Its methods are called on the goroutine that does the work, by any number of goroutines at
// once; they return soon, and call neither a device nor a tensor.
//
// Kernels, copies, waits and memory are told when the call is over, spans when they open and when
// they close. To which span a kernel belongs is for the tracer to say: the one that the same
// goroutine opened last and has not closed. Drivers know no tensors, so that nothing else could be
// passed down to them; tensor runs a driver's method on the goroutine of the op that calls it,
// always.
type Tracer interface {
	// Wants is asked before each event, so that what nobody looks at is not made.
	Wants() TraceWants
	// Begin opens a span on the calling goroutine. Its number is from [NewSpanID]; End gets it, on
	// the same goroutine and in reverse order for all but loose spans.
	Begin(s Span) SpanID
	End(id SpanID)
	// Recorded says that the innermost op of the calling goroutine has become node of the graph:
	// Backward's span tells the same number.
	Recorded(node uint64)
	Kernel(k KernelEvent)
	Copy(c CopyEvent)
	Sync(s SyncEvent)
	Memory(m MemoryEvent)
}

// TraceWants says what a tracer looks at beside what costs nothing to tell.
type TraceWants struct {
	Times        bool // intervals on the device: two timing events a launch
	Shapes       bool // of the operands of spans
	KernelShapes bool // of the results and operands of kernels
	Memory       bool // allocations and frees
}

// A SpanID is the number of a span, unique in the process; 0 is none.
type SpanID uint64

var spanIDs atomic.Uint64

// NewSpanID returns a number that no span has.
func NewSpanID() SpanID { return SpanID(spanIDs.Add(1)) }

// SpanKind says what opened a span.
type SpanKind uint8

// The kinds of spans.
const (
	SpanOp SpanKind = iota // a tensor op
	// work outside of a declared op, such as an update in place: of interest where the innermost
	// open span is no op
	SpanDirect
	SpanBackward // the gradient of an op, or its addition to a leaf
	SpanModule   // a call of a layer
	SpanScope    // a named scope
	SpanUser     // a program's own
)

// String returns the kind in lower case.
func (k SpanKind) String() string {
	return [...]string{"op", "direct", "backward", "module", "scope", "user"}[k]
}

// A Span is a part of a program's work that has a name.
type Span struct {
	Kind   SpanKind
	Name   string
	Shapes []shape.Dims // of the operands, where they are wanted
	Node   uint64       // SpanBackward: the node of the graph; 0 for none
	// the innermost named scope that the operands' scope lies in, whichever goroutine opened it
	Scope SpanID
	// SpanScope: it may be closed by another goroutine, or before what was opened after it
	Loose bool
	// SpanModule: the layer's own pointer, by which calls of one layer are told from another's
	Owner any
	// Callers is the stack of who asked for the work, as runtime.Callers tells it, where a
	// goroutine of the library's does it.
	Callers []uintptr
}

// A KernelEvent is a primitive that has been run, or queued on a GPU.
type KernelEvent struct {
	Device    Device
	Stream    Stream
	Primitive string // "map", "reduce", "matmul", …; of a program's own kernel its name
	Class     Class
	Work      Work
	Type      dtype.Type   // of the result
	Shapes    []shape.Dims // of the results, then of the operands, where they are wanted
	// Start and End are the host's time ([Now]): on the CPU of the work, on a GPU of queueing it.
	Start, End time.Duration
	Launches   []LaunchEvent // on a GPU; the CPU has none
	Recorded   bool          // it has not run: it is part of a graph that is being recorded
}

// A LaunchEvent is one kernel of a primitive on a GPU.
type LaunchEvent struct {
	Kernel      string
	Grid, Block [3]int
	Shared      int // bytes of dynamic shared memory
	// Tensor is how many operations the matrix units (tensor cores) do in it, as [Work] counts them
	// and with those on the padding of tiles; 0 says that the kernel uses none.
	Tensor     int
	TF32       bool // they take factors of TF32, at half the rate of 16-bit floats
	Start, End time.Duration
	// on the device; nil where times are not wanted or cannot be had, as in a captured graph
	Time Interval
}

// An Interval is when work ran on a device, asked for when it is of interest, so that nothing waits
// for it before.
type Interval interface {
	// Resolve waits for the work and returns when it began and ended, on [Now]'s clock as far as
	// the device's can be brought to it. It may be called once. The resolution of NVIDIA's events
	// is about half a microsecond. An emulated device's times are virtual: their differences are
	// the cost model's, and where they begin means nothing.
	Resolve() (start, end time.Duration, err error)
}

// CopyKind says between which memories a copy goes.
type CopyKind uint8

// The kinds of copies.
const (
	HostToDevice CopyKind = iota
	DeviceToHost
	DeviceToDevice // within one device
	PeerToPeer     // between devices
	HostToHost     // by the CPU's driver
)

// String returns the kind as profilers write it: "HtoD".
func (k CopyKind) String() string { return [...]string{"HtoD", "DtoH", "DtoD", "PtoP", "HtoH"}[k] }

// A CopyEvent is a copy that has been made or queued.
type CopyEvent struct {
	Device Device // whose driver copies
	Stream Stream
	Kind   CopyKind
	Op     string // the driver's method, or what of its own it copies for
	Bytes  int
	Peer   Device // of PeerToPeer: where the bytes come from
	// of PeerToPeer: by way of the host, as the devices cannot address each other's memory
	Staged bool
	Pinned bool // the host's memory is page-locked
	Own    bool // the driver copies for itself: a table that a primitive needs
	// the call returned only when the copy was done, or its source read: End - Start is what the
	// host waited
	Blocked    bool
	Start, End time.Duration // of the call
	Time       Interval      // on the device; nil as in LaunchEvent
	Recorded   bool          // as in KernelEvent
}

// A SyncEvent is a wait of the host for a device that is over.
type SyncEvent struct {
	Device     Device
	Stream     Stream // nil: for all of them
	Call       string // "stream synchronize", "device synchronize", "event wait", "wait for memory"
	Start, End time.Duration
}

// A MemoryEvent is memory that a device has handed out or taken back.
type MemoryEvent struct {
	Device Device
	Addr   uintptr
	Bytes  int
	Freed  bool
	Pinned bool   // page-locked memory of the host
	Origin Origin // of what is handed out
	// InUse is the device's memory in use afterwards, as [Stats] counts it, or the page-locked
	// memory. It is -1 where that is not known, because the memory is given back later. It is -1
	// too for the CPU's buffers below 64 KiB, which are not counted in it.
	InUse int
}

type tracerBox struct{ t Tracer }

var tracer atomic.Pointer[tracerBox]

// SetTracer makes t hear of all devices of the process from now on, and nil nobody. It reports
// false, and changes nothing, when another tracer is set.
func SetTracer(t Tracer) (ok bool) {
	if t == nil {
		tracer.Store(nil)
		return true
	}
	return tracer.CompareAndSwap(nil, &tracerBox{t})
}

// Tracing returns the tracer, nil when there is none: one atomic load.
func Tracing() Tracer {
	if b := tracer.Load(); b != nil {
		return b.t
	}
	return nil
}

var epoch = time.Now()

// Now is the clock of a trace: the time since the process started, monotonic.
func Now() time.Duration { return time.Since(epoch) }
