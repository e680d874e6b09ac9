package device

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MemoryHistorian is satisfied by devices whose allocator can record what it does:
// torch.cuda.memory._record_memory_history. Package profile/memsnap writes what it gives as a page
// or for PyTorch's viewer.
type MemoryHistorian interface {
	Device
	// RecordMemoryHistory records every allocation and free from now on, with the stack of the
	// call. An earlier recording is dropped.
	RecordMemoryHistory(opts ...HistoryOption)
	// StopMemoryHistory ends recording and forgets what was recorded. What the allocator holds can
	// still be seen in a snapshot.
	StopMemoryHistory()
	// MemorySnapshot returns what the allocator holds now, and the recorded events that led there.
	MemorySnapshot() *MemorySnapshot
}

// ErrNoHistory is wrapped by the error for a device that is no [MemoryHistorian].
var ErrNoHistory = errors.New("the device keeps no history of its memory")

// HistorySettings is what the options of [MemoryHistorian.RecordMemoryHistory] choose.
type HistorySettings struct {
	MaxEntries int // of the ring of events
}

// DefaultHistoryEntries is how many events a history keeps when it is not told: about 10 MB, some
// steps of a large model.
const DefaultHistoryEntries = 100_000

// A HistoryOption changes how memory is recorded.
type HistoryOption func(*HistorySettings)

// MaxHistoryEntries bounds how many events are kept; the oldest go first, and a snapshot says how
// many went. Fewer than 1 is 1.
func MaxHistoryEntries(n int) HistoryOption {
	return func(s *HistorySettings) { s.MaxEntries = max(n, 1) }
}

// NewHistorySettings applies the options to the defaults, for drivers.
func NewHistorySettings(opts ...HistoryOption) HistorySettings {
	s := HistorySettings{MaxEntries: DefaultHistoryEntries}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// MemorySnapshot is the state of a device's allocator at one moment, and how it came about. All
// sizes are bytes.
type MemorySnapshot struct {
	Device   string // "cuda:0"
	Product  string // its name
	Emulated bool
	Time     time.Time

	// Recording tells whether a history was being recorded, and Since when. Without one there are
	// no Events, and no stacks.
	Recording  bool
	Since      time.Time
	MaxEntries int
	Dropped    uint64 // events of the recording that the ring no longer holds: the oldest

	// in live blocks, rounded; the peak since the last reset, which may lie before the recording
	Allocated, AllocatedPeak uint64
	Reserved, ReservedPeak   uint64 // held from the driver
	Limit                    uint64 // of the allocator, 0: none
	Total                    uint64 // of the device, 0 where unknown

	Segments []MemorySegment // by address
	Events   []HistoryEvent  // oldest first
	Owners   []MemoryOwner   // what the Owner fields index; the first is the unknown one
	// what the Stack fields index, innermost frame first; the first is empty: not recorded
	Stacks [][]Frame
}

// A MemorySegment is a piece of device memory that the allocator holds. Its blocks tile it.
type MemorySegment struct {
	Addr       uintptr
	Size       uint64
	Stream     uint64
	Small      bool // for small blocks
	Expandable bool // part of a range of addresses that grows by pages
	Blocks     []MemoryBlock
}

// A MemoryBlock is a piece of a segment.
type MemoryBlock struct {
	Addr      uintptr
	Size      uint64 // rounded
	Requested uint64 // 0 when inactive
	State     BlockState
	Number    uint64 // of its allocation, counted from 1 by the allocator; 0 when inactive
	Owner     int
	Category  string // "" when inactive
}

// BlockState says who may use a block.
type BlockState uint8

// The states of a block, named as in PyTorch's documentation of snapshots.
const (
	BlockInactive           BlockState = iota // cached: free for its stream
	BlockActiveAllocated                      // owned
	BlockActiveAwaitingFree                   // freed, but work on other streams may still use it
)

// String returns PyTorch's word.
func (s BlockState) String() string {
	return [...]string{"inactive", "active_allocated", "active_awaiting_free"}[s]
}

// MemoryAction is what an event did.
type MemoryAction uint8

// The actions, named as in PyTorch's snapshots.
const (
	ActionAlloc         MemoryAction = iota // a block got an owner
	ActionFreeRequested                     // the owner gave it back
	// and nothing has to be waited for any more: it may be reused
	ActionFreeCompleted
	ActionSegmentAlloc // the allocator took a segment from the driver
	ActionSegmentFree  // … and gave it back
	ActionSegmentMap   // it mapped memory into an expandable segment
	ActionSegmentUnmap // … and gave that back
	ActionSnapshot     // a snapshot was taken
	ActionOOM          // an allocation failed for want of memory
)

// String returns PyTorch's word.
func (a MemoryAction) String() string {
	return [...]string{"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom"}[a]
}

// A HistoryEvent is an entry of the history.
type HistoryEvent struct {
	Sequence  uint64 // counted from 1 since the recording began
	Time      int64  // Unix time in nanoseconds
	Action    MemoryAction
	Addr      uintptr // 0 for out of memory and snapshots
	Size      uint64  // rounded; as asked for out of memory
	Requested uint64  // as asked, of blocks
	Stream    uint64
	// of the block's allocation, see [MemoryBlock]; 0 where it is not about a block
	Number uint64
	Owner  int // of the block, or of the request that failed
	// of the call that did this; 0 where there is none, such as a free by the garbage collector
	Stack    int
	Free     uint64 // what the driver says is free, for out of memory
	Category string // of the block
}

// A MemoryOwner is what blocks were allocated for: all allocations of one op for one shape at one
// place.
type MemoryOwner struct {
	Op    string // "matmul"
	Scope string // the names of the scopes around it (tensor.Named), joined by slashes
	Type  string // "float32"
	Shape []int
	// where it was asked for: "train.go:31", or words about the scope; "" where nothing is known
	Where string
	Stack int // of the allocation
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

// A Frame is one call of a stack.
type Frame struct {
	Function string // with its package
	File     string
	Line     int
}

// String returns "file.go:31 package.Function".
func (f Frame) String() string {
	return fmt.Sprintf("%s:%d %s", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line, f.Function)
}

// Categories of memory. A driver tells them from the stack of the allocation. An optimizer's Step
// allocates its state and its temporaries. Backward allocates gradients, and what leads to them. A
// layer's or model's constructor, or nn.To, allocates parameters and buffers. A Forward allocates
// activations. That is where memory was asked for, not what became of it: [MemorySnapshot.Label]
// says what only the program knows.
const (
	CategoryParameter  = "parameter"
	CategoryGradient   = "gradient"
	CategoryOptimizer  = "optimizer state"
	CategoryActivation = "activation"
	CategoryOther      = "other"
)

// Label sets the category of the live blocks that hold these addresses, and of the events of their
// allocation. It returns how many blocks it found. It skips an address that lies in no live block.
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
