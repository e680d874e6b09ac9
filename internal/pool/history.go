package pool

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// maxFrames bounds the stacks that a history records: deep enough for the layers of a model inside
// of training code.
const maxFrames = 64

// maxInterned bounds the tables that let equal stacks and owners be stored once. When one is full
// it starts anew: what refers to the old entries keeps them.
const maxInterned = 1 << 15

// stack is a recorded stack, innermost call first, as runtime.Callers gives it.
type stack struct {
	pcs  []uintptr
	next *stack // of the same hash

	resolved sync.Once
	at       string // set by where
}

// owner is the part of an Origin that a history keeps, and the stack of the allocation. It does not
// hold Where, which may refer to anything.
type owner struct {
	op, scope, dtype string
	shape            [8]int
	dims             int
	stack            *stack
}

// event is an entry of the ring.
type event struct {
	action    device.MemoryAction
	sequence  uint64
	time      int64
	addr      uintptr
	size      uint64
	requested uint64 // free bytes of the device, for out of memory
	stream    StreamID
	number    uint64
	owner     *owner
	stack     *stack
}

// history is a recording. Its ring and owners are under the pool's lock, its stacks under their
// own: they are recorded before that lock is taken.
type history struct {
	since  time.Time
	max    int
	ring   []event // grows to max and wraps then
	count  uint64  // events ever
	owners map[owner]*owner
	now    func() time.Time

	mu     sync.Mutex
	stacks map[uint64]*stack
	kept   int
}

// RecordHistory begins to record what the pool does, anew if it did already.
func (p *Pool) RecordHistory(s device.HistorySettings) {
	h := &history{since: p.o.Now(), max: max(s.MaxEntries, 1), now: p.o.Now, owners: map[owner]*owner{}, stacks: map[uint64]*stack{}}
	p.mu.Lock()
	p.history = h
	p.mu.Unlock()
	p.recording.Store(h)
}

// StopHistory ends recording and forgets what was recorded.
func (p *Pool) StopHistory() {
	p.recording.Store(nil)
	p.mu.Lock()
	p.history = nil
	p.mu.Unlock()
}

// callers records the stack of the pool's caller, skip frames above this function's.
//
//go:noinline
func (h *history) callers(skip int) *stack {
	var pcs [maxFrames]uintptr
	n := runtime.Callers(skip+2, pcs[:])
	hash := uint64(14695981039346656037) // FNV-1a, over words
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

// ownerLocked returns the history's record of an origin.
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

// addLocked appends an event, in place of the oldest where the ring is full.
func (h *history) addLocked(e event) {
	h.count++
	e.sequence, e.time = h.count, h.now().UnixNano()
	if len(h.ring) < h.max {
		h.ring = append(h.ring, e)
		return
	}
	h.ring[(h.count-1)%uint64(h.max)] = e
}

// blockLocked records what happens to a block. Blocks without memory have no history.
func (h *history) blockLocked(a device.MemoryAction, b *Block, at *stack) {
	if b.size > 0 {
		h.addLocked(event{action: a, addr: b.addr, size: b.size, requested: b.requested, stream: b.Stream(), number: b.number,
			owner: h.ownerLocked(&b.origin), stack: at})
	}
}

// segmentLocked records what happens to memory of the backing, for the allocation r where one
// caused it.
func (h *history) segmentLocked(a device.MemoryAction, addr uintptr, size uint64, stream StreamID, r *request) {
	e := event{action: a, addr: addr, size: size, stream: stream}
	if r != nil {
		e.stack = r.origin.stack
	}
	h.addLocked(e)
}

// oomLocked records an allocation that failed.
func (h *history) oomLocked(size uint64, stream StreamID, o *Origin, free uint64) {
	h.addLocked(event{action: device.ActionOOM, size: size, requested: free, stream: stream, owner: h.ownerLocked(o), stack: o.stack})
}

// eventsLocked returns the ring in order, and how many events it has lost.
func (h *history) eventsLocked() (events []event, dropped uint64) {
	if h.count <= uint64(len(h.ring)) {
		return slices.Clone(h.ring), 0
	}
	at := int(h.count % uint64(h.max))
	return slices.Concat(h.ring[at:], h.ring[:at]), h.count - uint64(len(h.ring))
}
