package cuda

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// lane is one stream of a recording. The pieces of work of one lane run one after the other. Only
// marks order the pieces of different lanes.
//
// A lane has no driver stream of its own. When the recording ends, the lane's stream uses the
// handle of the first stream of its device in the recording. Each lane has an arena of memory. The
// order of the lane's work alone decides when this memory is free. The mutex r.mu guards the fields
// after index.
type lane struct {
	r     *recording
	s     *stream
	arena pool.StreamID
	index int

	deps []int // indices of the pieces of work that directly precede the next piece
	// for each lane, how many of its pieces precede this lane's next piece
	clock []uint32
	// number of the lane's last piece of work, not counting the begin and end of blocks
	lastPiece uint32
	held      []heldBlock
}

// heldBlock is a block that was freed but is still in use. Its use ends when the lane that owns it
// is ordered after the first clock[i] pieces of each lane i.
type heldBlock struct {
	pool  *pool.Pool
	block *pool.Block
	gen   uint64
	clock []uint32
}

// allLanes is the last bit in a set of lanes. All lanes with this index or a larger one share it.
const allLanes = 63

// newLane adds a lane for stream s. r.mu is held, unless no other goroutine knows r yet.
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

// contains reports whether s is a stream of the recording.
func (r *recording) contains(s device.Stream) bool {
	own, ok := s.(*stream)
	if !ok {
		return false
	}
	l := own.rec.Load()
	return l != nil && l.r == r
}

// add appends a piece of work. r.mu is held.
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

// record does the same as add, for callers that do not hold r.mu.
func (l *lane) record(w recorded) {
	l.r.mu.Lock()
	l.add(w)
	l.r.mu.Unlock()
}

// tick adds one piece of work to the lane's clock.
func (l *lane) tick() {
	for len(l.clock) <= l.index {
		l.clock = append(l.clock, 0)
	}
	l.clock[l.index]++
}

// clockCount returns a clock's count for a lane, or 0 if the clock is too short.
func clockCount(clock []uint32, lane int) uint32 {
	if lane < len(clock) {
		return clock[lane]
	}
	return 0
}

// recordedEvent is a mark in a lane.
type recordedEvent struct {
	l     *lane
	after []int
	clock []uint32
}

// mark returns an event that marks the work recorded in the lane so far.
func (l *lane) mark() *recordedEvent {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	return &recordedEvent{l, l.deps, slices.Clone(l.clock)}
}

// joins orders later work of s after the mark. It returns false if s does not belong to the
// recording of the mark.
func (e *recordedEvent) joins(s *stream) bool {
	l := s.rec.Load()
	if l == nil || l.r != e.l.r {
		return false
	}
	if l == e.l {
		return true // later work of this lane comes after the mark anyway
	}
	r := l.r
	r.mu.Lock()
	// Implied edges are not added. A piece of the mark is left out if the lane already follows it.
	// If no piece of the mark is left out, the pieces of l.deps that the mark already follows are
	// removed. The order remains complete: every piece that a clock counts is in deps, or precedes
	// a piece in deps.
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

// settled removes from the lane the held blocks that are no longer in use, and returns them. r.mu
// is held.
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

// ordered reports whether the lane's next piece comes after the first clock[i] pieces of each lane
// i. r.mu is held.
func (l *lane) ordered(clock []uint32) bool {
	for i, n := range clock {
		if clockCount(l.clock, i) < n {
			return false
		}
	}
	return true
}

// release frees blocks in the pool. r.mu must not be held, because the pool calls the recording
// when a block ends.
func (r *recording) release(list []heldBlock) {
	for _, b := range list {
		b.pool.Free(b.block, b.gen)
	}
}

// holds handles a freed block of the recording. The argument users is the set of lanes that have
// used the block. If the lane that owns the block is not ordered after their work yet, holds keeps
// the block and returns true.
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

// unjoined returns an error if the first lane has not waited for the last work of another lane.
// r.mu is held.
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

// Wait returns an error while the recording continues, because recorded work has not run yet. The
// recording stays valid.
func (e *recordedEvent) Wait() error {
	if s := e.l.s; !s.Recording() {
		return s.Synchronize()
	}
	return &device.RecordError{Device: e.l.r.d.name, Op: "wait for an event", Why: "it marks work that is only recorded, and the one who waits is not recorded with it"}
}

// sharedBy reports whether s and the buffer belong to one recording. If so, it records that s uses
// the buffer.
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

// held reports whether the buffer's recording keeps the freed buffer because other lanes may still
// use it.
func (b *buffer) held() bool {
	users := b.lanes.Load()
	if users == 0 {
		return false
	}
	_, home := b.dev.p.arenaStream(b.block.Stream())
	return home != nil && home.r.holds(b.dev.pool, b.block, b.gen, users)
}
