package cuda

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// lane is one stream of a recording. Its work consists of nodes of the graph, such as launches and
// copies, which run one after the other. Only events and waits order the nodes of different lanes.
//
// A lane has no stream of the driver. After the recording, the lane's stream uses a stream of the
// driver: that of the recording's first stream on the same device. Each lane has its own arena of
// memory. Only the order of the lane's work decides when this memory is free. The mutex r.mu
// guards the fields after index.
type lane struct {
	r     *recording
	s     *stream
	arena pool.StreamID
	index int

	deps []int // indices of the nodes that directly precede the lane's next node
	// for each lane, how many of its nodes precede this lane's next node
	clock []uint32
	// number of the lane's last node, not counting nodes for the beginning and end of blocks
	lastPiece uint32
	held      []heldBlock
}

// heldBlock is a block of memory that was freed while recorded work may still use it. This work is
// among the first clock[i] nodes of each lane i. The block becomes free when the next node of the
// lane that owns it runs after all of these nodes.
type heldBlock struct {
	pool  *pool.Pool
	block *pool.Block
	gen   uint64
	clock []uint32
}

// allLanes is the last bit in a set of lanes. All lanes with an index of at least allLanes share
// it.
const allLanes = 63

// newLane adds a lane for stream s. The caller holds r.mu, unless no other goroutine knows r yet.
func (r *recording) newLane(s *stream) *lane {
	l := &lane{r: r, s: s, arena: privateArena | pool.StreamID(r.d.p.recordings.Add(1)), index: len(r.lanes)}
	r.lanes = append(r.lanes, l)
	r.d.p.arenas.Store(l.arena, l)
	s.rec.Store(l)
	return l
}

// Fork returns another stream of the recording.
func (r *recording) Fork(on device.Device) (device.Stream, error) {
	main, err := r.partner("fork", on)
	if err != nil {
		return nil, err
	}
	s := main.dev.wrap(idleStream{main.priority, main.handle, main.slot})
	s.main = main
	r.mu.Lock()
	if !r.live.Load() {
		r.mu.Unlock()
		return nil, &device.RecordError{Device: r.d.name, Op: "fork", Why: "the recording is over"}
	}
	l := r.newLane(s)
	r.mu.Unlock()
	s.dev.pool.Hold(l.arena)
	return s, nil
}

func (r *recording) contains(s device.Stream) bool {
	own, ok := s.(*stream)
	if !ok {
		return false
	}
	l := own.rec.Load()
	return l != nil && l.r == r
}

// add appends work to the lane. The caller holds r.mu.
func (l *lane) add(w recorded) {
	l.tick()
	w.lane, w.number, w.deps = l.index, l.clock[l.index], l.deps
	l.deps = []int{len(l.r.nodes)}
	l.r.nodes = append(l.r.nodes, w)
	if !w.kind.marks() {
		l.lastPiece = w.number
		l.r.pieces++
	}
}

// record appends work to the lane, for callers that do not hold r.mu.
func (l *lane) record(w recorded) {
	l.r.mu.Lock()
	l.add(w)
	l.r.mu.Unlock()
}

// tick counts one more node of the lane in its clock.
func (l *lane) tick() {
	for len(l.clock) <= l.index {
		l.clock = append(l.clock, 0)
	}
	l.clock[l.index]++
}

// clockCount returns the number of nodes that a clock counts for a lane, or 0 if the clock has no
// entry for it.
func clockCount(clock []uint32, lane int) uint32 {
	if lane < len(clock) {
		return clock[lane]
	}
	return 0
}

// recordedEvent is an event that was recorded in a lane.
type recordedEvent struct {
	l     *lane
	after []int
	clock []uint32
}

// mark returns an event that marks the end of the work recorded in the lane so far.
func (l *lane) mark() *recordedEvent {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	return &recordedEvent{l, l.deps, slices.Clone(l.clock)}
}

// joins makes later work of s run after the event. It returns false if s does not belong to the
// recording of the event.
func (e *recordedEvent) joins(s *stream) bool {
	l := s.rec.Load()
	if l == nil || l.r != e.l.r {
		return false
	}
	if l == e.l {
		return true // later work of the same lane runs after the event anyway
	}
	r := l.r
	r.mu.Lock()
	// Edges that follow from other edges are not added. A node of the event is left out if the lane
	// already runs after it. If no node of the event is left out, the nodes of l.deps that precede
	// the event are removed. The order stays complete: every node that a clock counts is in deps,
	// or precedes a node in deps.
	before := func(n int, clock []uint32) bool { return r.nodes[n].number <= clockCount(clock, r.nodes[n].lane) }
	var after []int
	for _, n := range e.after {
		if !before(n, l.clock) {
			after = append(after, n)
		}
	}
	whole := len(after) == len(e.after)
	for _, n := range l.deps {
		if !whole || !before(n, e.clock) {
			after = append(after, n)
		}
	}
	l.deps = after
	for i, n := range e.clock {
		for len(l.clock) <= i {
			l.clock = append(l.clock, 0)
		}
		l.clock[i] = max(l.clock[i], n)
	}
	free := l.settled()
	r.mu.Unlock()
	r.release(free)
	return true
}

// settled removes from the lane those held blocks that recorded work no longer uses, and returns
// them. The caller holds r.mu.
func (l *lane) settled() (free []heldBlock) {
	l.held = slices.DeleteFunc(l.held, func(b heldBlock) bool {
		out := l.ordered(b.clock)
		if out {
			free = append(free, b)
		}
		return out
	})
	return free
}

// ordered reports whether the lane's next node runs after the first clock[i] nodes of each lane i.
// The caller holds r.mu.
func (l *lane) ordered(clock []uint32) bool {
	for i, n := range clock {
		if clockCount(l.clock, i) < n {
			return false
		}
	}
	return true
}

// release frees blocks in the pool. The caller must not hold r.mu, because the pool calls the
// recording when a block ends.
func (r *recording) release(list []heldBlock) {
	for _, b := range list {
		b.pool.Free(b.block, b.gen)
	}
}

// holds is called when a block of the recording is freed. The argument users is the set of lanes
// that have used the block. If the next node of the lane that owns the block may run before the
// work of these lanes, holds keeps the block and returns true.
func (r *recording) holds(owner *pool.Pool, b *pool.Block, gen, users uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live.Load() {
		return false
	}
	h := heldBlock{owner, b, gen, make([]uint32, len(r.lanes))}
	var home *lane
	for i, l := range r.lanes {
		if l.arena == b.Stream() {
			home = l
		} else if users>>min(i, allLanes)&1 != 0 {
			h.clock[i] = clockCount(l.clock, i)
		}
	}
	if home == nil || home.ordered(h.clock) {
		return false
	}
	home.held = append(home.held, h)
	return true
}

// unjoined returns an error if the first lane has not waited for the last work of another lane. The
// caller holds r.mu.
func (r *recording) unjoined() error {
	for i, l := range r.lanes[1:] {
		if l.lastPiece > clockCount(r.lanes[0].clock, i+1) {
			return &device.RecordError{Device: r.d.name, Op: "finish", Stream: l.s,
				Why: "the recording's stream has not waited for the last work of " + l.s.String()}
		}
	}
	return nil
}

func (e *recordedEvent) Done() bool { return false }
func (e *recordedEvent) Release()   {}

// Wait returns an error while work is being recorded, because recorded work has not run yet. The
// recording stays valid.
func (e *recordedEvent) Wait() error {
	if s := e.l.s; !s.Recording() {
		return s.Synchronize()
	}
	return &device.RecordError{Device: e.l.r.d.name, Op: "wait for an event", Why: "it marks work that is only recorded, and the one who waits is not recorded with it"}
}

// sharedBy reports whether s and the buffer belong to the same recording. If so, it records that s
// uses the buffer.
func (b *buffer) sharedBy(s *stream) bool {
	l := s.rec.Load()
	if l == nil {
		return false
	}
	_, home := b.dev.p.arenaStream(b.block.Stream())
	if home == nil || home.r != l.r {
		return false
	}
	b.lanes.Or(1 << min(l.index, allLanes))
	return true
}

// held reports whether the recording keeps the freed buffer because other lanes may still use it.
func (b *buffer) held() bool {
	users := b.lanes.Load()
	if users == 0 {
		return false
	}
	_, home := b.dev.p.arenaStream(b.block.Stream())
	return home != nil && home.r.holds(b.dev.pool, b.block, b.gen, users)
}
