package cuda

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// lane is one stream of a recording. Its pieces of work come one after the other; those of two
// lanes in any order but that of marks.
//
// It has no stream of the driver's: when the recording is over, the lane's stream goes on under the
// handle of the recording's first stream of its device. It has an arena, in which its order alone
// decides when memory is free. r.mu guards the rest.
type lane struct {
	r     *recording
	s     *stream
	arena pool.StreamID
	index int

	after []int    // pieces that the next one comes right after
	clock []uint32 // by lane, how many of its pieces come before the next one; of this one all
	last  uint32   // the last of its pieces that does something
	held  []heldBlock
}

// heldBlock was freed, and is in use until the lane it belongs to comes after that many pieces of
// each lane.
type heldBlock struct {
	pool  *pool.Pool
	block *pool.Block
	gen   uint64
	until []uint32
}

// allLanes is the bit of a set of lanes for those that have none of their own.
const allLanes = 63

// newLane adds a lane, whose stream is s. r.mu is held, or nobody else knows r.
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

// has reports whether s is a stream of the recording.
func (r *recording) has(s device.Stream) bool {
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
	w.lane, w.number, w.after = l.index, l.clock[l.index], l.after
	l.after = []int{len(l.r.nodes)}
	l.r.nodes = append(l.r.nodes, w)
	if w.kind != recordedBlock && w.kind != recordedFreed {
		l.last = w.number
	}
}

// record is add for those who do not hold r.mu.
func (l *lane) record(w recorded) {
	l.r.mu.Lock()
	l.add(w)
	l.r.mu.Unlock()
}

// tick counts a piece.
func (l *lane) tick() {
	for len(l.clock) <= l.index {
		l.clock = append(l.clock, 0)
	}
	l.clock[l.index]++
}

// at returns a clock's number for a lane.
func at(clock []uint32, lane int) uint32 {
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

// mark returns a mark behind what is recorded so far.
func (l *lane) mark() *recordedEvent {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	return &recordedEvent{l, l.after, slices.Clone(l.clock)}
}

// joins makes what s does later come after the mark, and reports whether it can: s is recorded with
// it.
func (e *recordedEvent) joins(s *stream) bool {
	l := s.rec.Load()
	if l == nil || l.r != e.l.r {
		return false
	}
	if l == e.l {
		return true // by its own order
	}
	r := l.r
	r.mu.Lock()
	// Only what is not implied: neither pieces of the mark that the lane is behind, nor, where
	// there are none of these, pieces of the lane that the mark is behind. What a clock counts
	// comes before one of the pieces in after, or is one.
	before := func(n int, clock []uint32) bool { return r.nodes[n].number <= at(clock, r.nodes[n].lane) }
	var after []int
	for _, n := range e.after {
		if !before(n, l.clock) {
			after = append(after, n)
		}
	}
	whole := len(after) == len(e.after)
	for _, n := range l.after {
		if !whole || !before(n, e.clock) {
			after = append(after, n)
		}
	}
	l.after = after
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

// settled takes the blocks that are out of use in the lane's order. r.mu is held.
func (l *lane) settled() (free []heldBlock) {
	l.held = slices.DeleteFunc(l.held, func(b heldBlock) bool {
		out := l.behind(b.until)
		if out {
			free = append(free, b)
		}
		return out
	})
	return free
}

// behind reports whether the lane comes after that many pieces of each lane. r.mu is held.
func (l *lane) behind(clock []uint32) bool {
	for i, n := range clock {
		if at(l.clock, i) < n {
			return false
		}
	}
	return true
}

// release gives blocks to the pool, without r.mu: the pool tells of their ends.
func (r *recording) release(list []heldBlock) {
	for _, b := range list {
		b.pool.Free(b.block, b.gen)
	}
}

// holds takes over a block of the recording that is freed while lanes of users have to do with it,
// and reports true, if its own lane does not come after all that they have recorded.
func (r *recording) holds(of *pool.Pool, b *pool.Block, gen, users uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live.Load() {
		return false
	}
	h := heldBlock{of, b, gen, make([]uint32, len(r.lanes))}
	var home *lane
	for i, l := range r.lanes {
		if l.arena == b.Stream() {
			home = l
		} else if users>>min(i, allLanes)&1 != 0 {
			h.until[i] = at(l.clock, i)
		}
	}
	if home == nil || home.behind(h.until) {
		return false
	}
	home.held = append(home.held, h)
	return true
}

// unjoined returns the error for work that the first lane does not come after. r.mu is held.
func (r *recording) unjoined() error {
	for i, l := range r.lanes[1:] {
		if l.last > at(r.lanes[0].clock, i+1) {
			return &device.RecordError{Device: r.d.name, Op: "finish", Stream: l.s,
				Why: "the recording's stream has not waited for the last work of " + l.s.String()}
		}
	}
	return nil
}

func (e *recordedEvent) Done() bool { return false }
func (e *recordedEvent) Release()   {}

// Wait refuses while the mark has no time. That is not the recording's fault, which goes on.
func (e *recordedEvent) Wait() error {
	if s := e.l.s; !s.Recording() {
		return s.Synchronize()
	}
	return &device.RecordError{Device: e.l.r.d.name, Op: "wait for an event", Why: "it marks work that is only recorded, and the one who waits is not recorded with it"}
}

// sharedBy notes that s uses the buffer, and reports true, if both are of one recording.
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

// held reports whether the recording that the buffer belongs to keeps it for a while, now that it
// is freed.
func (b *buffer) held() bool {
	users := b.lanes.Load()
	if users == 0 {
		return false
	}
	_, home := b.dev.p.arenaStream(b.block.Stream())
	return home != nil && home.r.holds(b.dev.pool, b.block, b.gen, users)
}
