package pool

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// maxFrames limits the depth of recorded stacks. It suffices for nested layers of a model that
// training code calls.
const maxFrames = 64

// maxInterned limits the tables that store each distinct stack and each distinct owner once. When a
// table is full, an empty table replaces it. Events keep the entries of the old table that they
// refer to.
const maxInterned = 1 << 15

// stack is a stack from runtime.Callers, innermost call first.
type stack struct {
	pcs  []uintptr
	next *stack // next stack with the same hash

	resolved sync.Once
	at       string // call site as text, set by the method where
}

// owner holds those parts of an Origin that a history keeps, and the stack of the allocation. It
// does not keep Where, which may refer to any object.
type owner struct {
	op, scope, dtype string
	shape            [8]int
	dims             int
	stack            *stack
}

// event is an entry of the history's ring.
type event struct {
	action   device.MemoryAction
	sequence uint64
	time     int64
	addr     uintptr
	size     uint64
	// requested size in bytes; after a failed allocation, the free bytes of the device
	requested uint64
	stream    StreamID
	number    uint64
	owner     *owner
	stack     *stack
}

// history is a recording of events. The pool's lock guards ring and owners. The table of stacks has
// a lock of its own, because a stack is recorded before the pool's lock is taken.
type history struct {
	start  time.Time
	max    int
	ring   []event // events, at most max; when there are max, each new event replaces the oldest
	count  uint64  // number of events since recording began
	owners map[owner]*owner
	now    func() time.Time

	mu     sync.Mutex
	stacks map[uint64]*stack
	kept   int
}

// RecordHistory starts recording the pool's events. If a recording is in progress, it is discarded.
func (p *Pool) RecordHistory(s device.HistorySettings) {
	h := &history{start: p.o.Now(), max: max(s.MaxEntries, 1), now: p.o.Now, owners: map[owner]*owner{}, stacks: map[uint64]*stack{}}
	p.mu.Lock()
	p.history = h
	p.mu.Unlock()
	p.recording.Store(h)
}

// StopHistory stops recording and drops the recorded events.
func (p *Pool) StopHistory() {
	p.recording.Store(nil)
	p.mu.Lock()
	p.history = nil
	p.mu.Unlock()
}

// callers records the stack of the pool's caller. It leaves out its own frame and the next skip
// frames.
//
//go:noinline
func (h *history) callers(skip int) *stack {
	var pcs [maxFrames]uintptr
	n := runtime.Callers(skip+2, pcs[:])
	hash := uint64(14695981039346656037) // FNV-1a over words
	for _, pc := range pcs[:n] {
		hash = (hash ^ uint64(pc)) * 1099511628211
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.stacks[hash]
	for s := first; s != nil; s = s.next {
		if slices.Equal(s.pcs, pcs[:n]) {
			return s
		}
	}
	if h.kept++; h.kept > maxInterned {
		h.stacks, h.kept, first = map[uint64]*stack{}, 1, nil
	}
	s := &stack{pcs: slices.Clone(pcs[:n]), next: first}
	h.stacks[hash] = s
	return s
}

// ownerLocked returns the entry for an origin in the table of owners.
func (h *history) ownerLocked(o *Origin) *owner {
	k := owner{op: o.Op, scope: o.Scope, dtype: o.DType, shape: o.Shape, dims: o.Dims, stack: o.stack}
	if own := h.owners[k]; own != nil {
		return own
	}
	if len(h.owners) >= maxInterned {
		clear(h.owners)
	}
	own := &k
	h.owners[k] = own
	return own
}

// addLocked adds an event to the history. If the history is full, the event replaces the oldest.
func (h *history) addLocked(e event) {
	h.count++
	e.sequence, e.time = h.count, h.now().UnixNano()
	if len(h.ring) < h.max {
		h.ring = append(h.ring, e)
		return
	}
	h.ring[(h.count-1)%uint64(h.max)] = e
}

// blockLocked records an action on a block. Blocks without memory are not recorded.
func (h *history) blockLocked(a device.MemoryAction, b *Block, at *stack) {
	if b.size > 0 {
		h.addLocked(event{action: a, addr: b.addr, size: b.size, requested: b.requested, stream: b.Stream(), number: b.number,
			owner: h.ownerLocked(&b.origin), stack: at})
	}
}

// segmentLocked records an action on a segment. r is the allocation that caused the action, or nil.
func (h *history) segmentLocked(a device.MemoryAction, addr uintptr, size uint64, stream StreamID, r *request) {
	e := event{action: a, addr: addr, size: size, stream: stream}
	if r != nil {
		e.stack = r.origin.stack
	}
	h.addLocked(e)
}

func (h *history) oomLocked(size uint64, stream StreamID, o *Origin, free uint64) {
	h.addLocked(event{action: device.ActionOOM, size: size, requested: free, stream: stream, owner: h.ownerLocked(o), stack: o.stack})
}

// eventsLocked returns the recorded events, oldest first, and the number of events that were
// replaced by newer ones.
func (h *history) eventsLocked() (events []event, dropped uint64) {
	if h.count <= uint64(len(h.ring)) {
		return slices.Clone(h.ring), 0
	}
	at := int(h.count % uint64(h.max))
	return slices.Concat(h.ring[at:], h.ring[:at]), h.count - uint64(len(h.ring))
}
