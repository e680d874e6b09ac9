package device

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MemoryHistorian is satisfied by devices whose allocator can record the calls of Alloc and Free,
// like torch.cuda.memory._record_memory_history. Package profile/memsnap writes a snapshot of the
// allocator as a web page, or as a file for PyTorch's viewer.
type MemoryHistorian interface {
	Device
	// RecordMemoryHistory records every allocation and free from now on, with the call's stack. It
	// discards an earlier recording.
	RecordMemoryHistory(opts ...HistoryOption)
	// StopMemoryHistory ends the recording and discards its events. A snapshot still shows the
	// allocator's segments and blocks.
	StopMemoryHistory()
	// MemorySnapshot returns the allocator's current state, and the recorded events that led to it.
	MemorySnapshot() *MemorySnapshot
}

// ErrNoHistory is wrapped by the error of a device that cannot record its memory, because it is not
// a [MemoryHistorian].
var ErrNoHistory = errors.New("the device keeps no history of its memory")

// HistorySettings holds the values that the options of [MemoryHistorian.RecordMemoryHistory] set.
type HistorySettings struct {
	MaxEntries int // number of events that the history keeps
}

// DefaultHistoryEntries is the default number of events that a history keeps. They need about 10 MB
// and cover some steps of a large model.
const DefaultHistoryEntries = 100_000

// HistoryOption changes how a device records the history of its memory.
type HistoryOption func(*HistorySettings)

// MaxHistoryEntries sets how many events a history keeps. When more events come, the oldest are
// dropped, and a snapshot says how many were dropped. A limit below 1 counts as 1.
func MaxHistoryEntries(n int) HistoryOption {
	return func(s *HistorySettings) { s.MaxEntries = max(n, 1) }
}

// NewHistorySettings applies the options to the default settings. Drivers call it.
func NewHistorySettings(opts ...HistoryOption) HistorySettings {
	s := HistorySettings{MaxEntries: DefaultHistoryEntries}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// MemorySnapshot is the state of a device's allocator at one moment, and the events that led to it.
// All sizes are in bytes.
type MemorySnapshot struct {
	Device   string // name of the device: "cuda:0"
	Product  string // name of the product
	Emulated bool
	Time     time.Time

	// Recording says whether a history was being recorded. If it was, Since says when the recording
	// began. Otherwise there are no Events and no stacks.
	Recording  bool
	Since      time.Time
	MaxEntries int
	// number of recorded events that are no longer kept because newer events replaced them
	Dropped uint64

	// Allocated is the number of bytes in live blocks; each size is rounded up. AllocatedPeak is
	// the maximum of Allocated since the last reset of the peak, which may have been before the
	// recording
	Allocated, AllocatedPeak uint64
	Reserved, ReservedPeak   uint64 // bytes taken from the driver, and their maximum
	Limit                    uint64 // limit of the allocator in bytes; 0 means no limit
	Total                    uint64 // memory of the device, 0 if unknown

	Segments []MemorySegment // segments, sorted by address
	Events   []HistoryEvent  // events, oldest first
	// owners of blocks; the Owner fields are indices into this list, and Owners[0] stands for an
	// unknown owner
	Owners []MemoryOwner
	// stacks of calls, innermost frame first; the Stack fields are indices into this list.
	// Stacks[0] is empty and stands for a stack that was not recorded
	Stacks [][]Frame
}

// MemorySegment is a piece of device memory that the allocator has taken. The segment's blocks
// cover it without gaps.
type MemorySegment struct {
	Addr       uintptr
	Size       uint64
	Stream     uint64
	Small      bool // the segment contains only small blocks
	Expandable bool // the segment is a range of addresses that grows by mapping pages
	Blocks     []MemoryBlock
}

// MemoryBlock is a piece of a segment.
type MemoryBlock struct {
	Addr      uintptr
	Size      uint64 // size after rounding
	Requested uint64 // requested size, 0 if inactive
	State     BlockState
	// number of the block's allocation, counted from 1; 0 if the block is inactive
	Number   uint64
	Owner    int
	Category string // category, such as CategoryParameter; "" if the block is inactive
}

// BlockState says whether a block is in use.
type BlockState uint8

// These are the states of a block, named as in PyTorch's documentation of snapshots.
const (
	BlockInactive        BlockState = iota // the block is cached for reuse by its stream
	BlockActiveAllocated                   // the block is in use
	// the block was freed, but work on other streams may still use it
	BlockActiveAwaitingFree
)

// String returns PyTorch's name of the state.
func (s BlockState) String() string {
	return [...]string{"inactive", "active_allocated", "active_awaiting_free"}[s]
}

// MemoryAction says what happened in an event.
type MemoryAction uint8

// These are the actions, named as in PyTorch's snapshots.
const (
	ActionAlloc         MemoryAction = iota // a block was allocated
	ActionFreeRequested                     // the program freed the block
	// all work that uses the freed block is done, so it may be reused
	ActionFreeCompleted
	ActionSegmentAlloc // the allocator took a segment from the driver
	ActionSegmentFree  // the allocator gave a segment back to the driver
	ActionSegmentMap   // the allocator mapped memory into an expandable segment
	ActionSegmentUnmap // the allocator unmapped memory of an expandable segment
	ActionSnapshot     // a snapshot was taken
	ActionOOM          // an allocation failed because memory was exhausted
)

// String returns PyTorch's name of the action.
func (a MemoryAction) String() string {
	return [...]string{"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom"}[a]
}

// HistoryEvent is an entry of the history.
type HistoryEvent struct {
	Sequence  uint64 // number of the event since the recording began, from 1
	Time      int64  // Unix time in nanoseconds
	Action    MemoryAction
	Addr      uintptr // address of the block or segment; 0 for ActionOOM and ActionSnapshot
	Size      uint64  // size after rounding, in bytes; for ActionOOM the requested size
	Requested uint64  // requested size of the block, in bytes
	Stream    uint64
	// number of the block's allocation, counted from 1; 0 if the event has no block
	Number uint64
	Owner  int // index of the block's owner, or of the owner of the failed request
	// index of the call's stack; 0 if there is no stack, as when the garbage collector frees a
	// block
	Stack    int
	Free     uint64 // free bytes that the driver reports; only for ActionOOM
	Category string // category of the block, such as CategoryParameter
}

// MemoryOwner describes what blocks were allocated for. Allocations for the same op, type and shape
// at the same line of the program have the same owner.
type MemoryOwner struct {
	Op    string // name of the op: "matmul"
	Scope string // the names of the enclosing scopes (tensor.Named), joined by slashes
	Type  string // name of the element type: "float32"
	Shape []int
	// the line that requested the memory, such as "train.go:31", or a description of the scope; ""
	// if unknown
	Where string
	Stack int // index of the allocation's stack in the snapshot's Stacks
}

// String returns a line such as "matmul [64, 512] float32 at digits/train.go:31 in forward".
func (o MemoryOwner) String() string {
	var b strings.Builder
	b.WriteString(o.Op)
	if o.Op == "" {
		b.WriteString("unknown")
	}
	if o.Type != "" {
		b.WriteString(" [")
		for i, n := range o.Shape {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(strconv.Itoa(n))
		}
		b.WriteString("] " + o.Type)
	}
	if o.Where != "" {
		if !strings.Contains(o.Where, " ") {
			b.WriteString(" at")
		}
		b.WriteString(" " + o.Where)
	}
	if o.Scope != "" {
		b.WriteString(" in " + o.Scope)
	}
	return b.String()
}

// Frame is one function call of a stack.
type Frame struct {
	Function string // name of the function with its package
	File     string
	Line     int
}

// String returns "file.go:31 package.Function".
func (f Frame) String() string {
	return fmt.Sprintf("%s:%d %s", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line, f.Function)
}

// These are the categories of memory. A driver finds the category of a block from the stack of its
// allocation. An optimizer's Step allocates its state and its temporaries. Backward allocates
// gradients and intermediate results. A layer's or model's constructor, or nn.To, allocates
// parameters and buffers. A Forward allocates activations. If the stack gives a wrong category, a
// program can change it with [MemorySnapshot.Label].
const (
	CategoryParameter  = "parameter"
	CategoryGradient   = "gradient"
	CategoryOptimizer  = "optimizer state"
	CategoryActivation = "activation"
	CategoryOther      = "other"
)

// Label sets the category of the live blocks that contain the given addresses, and of the events of
// their allocations. It returns how many such blocks there are. It skips addresses outside of live
// blocks.
func (s *MemorySnapshot) Label(category string, addrs ...uintptr) int {
	numbers := map[uint64]bool{}
	for _, a := range addrs {
		for i := range s.Segments {
			g := &s.Segments[i]
			if a < g.Addr || a-g.Addr >= uintptr(g.Size) {
				continue
			}
			for j := range g.Blocks {
				b := &g.Blocks[j]
				if a >= b.Addr && a-b.Addr < uintptr(b.Size) && b.State == BlockActiveAllocated {
					b.Category = category
					numbers[b.Number] = true
				}
			}
		}
	}
	for i := range s.Events {
		if e := &s.Events[i]; e.Number != 0 && numbers[e.Number] {
			e.Category = category
		}
	}
	return len(numbers)
}
