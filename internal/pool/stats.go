package pool

import (
	"cmp"
	"slices"
)

// Stat follows one quantity: its present value, its peak since ResetPeak, and all that was ever
// added and taken away.
type Stat struct{ Current, Peak, Allocated, Freed uint64 }

func (s *Stat) add(n uint64) {
	s.Current += n
	s.Allocated += n
	if s.Current > s.Peak {
		s.Peak = s.Current
	}
}

func (s *Stat) sub(n uint64) {
	s.Current -= n
	s.Freed += n
}

// Stats is what a pool has done, in the terms of torch.cuda.memory_stats. Live blocks are
// "allocated"; these and the ones that wait for foreign streams are "active"; free blocks in a
// segment that is not wholly free are "inactive split".
type Stats struct {
	AllocatedBytes     Stat // rounded sizes of live blocks
	RequestedBytes     Stat // as asked
	ActiveBytes        Stat
	InactiveSplitBytes Stat
	ReservedBytes      Stat // segments
	ExpandableBytes    Stat // of these, pages of expandable ones
	Allocated          Stat // blocks, empty ones included
	Active             Stat
	InactiveSplit      Stat
	Segments           Stat
	Small, Large       Class

	Allocations, Frees uint64
	Retries            uint64 // requests that climbed the ladder
	OOMs               uint64 // and fell off
	StaleFrees         uint64 // releases that named an older generation, were repeated or overtaken
	QueuedFrees        uint64 // releases through Queue that were carried out
	Collections        uint64 // garbage collections on the ladder
	EarlyCollections   uint64 // and in the background, for GCRatio
	Syncs              uint64 // waits for pending blocks
	Returned           uint64 // bytes of segments given back
	Pending            uint64 // blocks waiting for foreign streams now
	// of these, blocks whose events could not be recorded yet (PauseEvents, or a failing Record)
	Deferred         uint64
	CollectableBytes uint64 // live bytes whose Origin is Collected
	Limit            uint64 // 0: none
}

// Stats drains the queue, takes in finished events, and returns the counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settleLocked()
	s := p.stats
	s.StaleFrees += p.staleQueued.Load()
	s.Pending = s.Active.Current - s.Allocated.Current
	s.Deferred = uint64(len(p.deferred))
	s.CollectableBytes = p.collectable
	s.Limit = p.limit
	return s
}

// InUse is Stats().AllocatedBytes.Current.
func (p *Pool) InUse() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settleLocked()
	return p.stats.AllocatedBytes.Current
}

func (p *Pool) settleLocked() {
	p.drainLocked()
	if p.pending > 0 && p.paused == 0 {
		p.pollLocked()
	}
}

// ResetPeak lowers every peak to the present value.
func (p *Pool) ResetPeak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.each(func(q *Stat) { q.Peak = q.Current })
}

// EventError returns the last error of Backing.Record that keeps memory from use. It is that of a
// block that is still deferred, or of unused segments that the last Empty or ladder could not
// return. The stream of those was destroyed without Retire, or is in a capture. Nil: none.
func (p *Pool) EventError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.eventIssue
}

// Segment describes one piece of the backing's memory.
type Segment struct {
	Addr       uintptr
	Size       uint64
	Stream     StreamID
	Small      bool
	Expandable bool
	Blocks     []BlockInfo // they tile the segment in address order
}

// BlockInfo describes a block at the time of Snapshot.
type BlockInfo struct {
	Addr       uintptr
	Size       uint64 // rounded
	Requested  uint64 // 0 unless live or pending
	State      string // "live", "pending" or "free"
	Generation uint64
	Origin     Origin // of the last owner; zero when free
}

// Snapshot returns every segment, by address.
func (p *Pool) Snapshot() []Segment {
	p.mu.Lock()
	p.settleLocked()
	out := make([]Segment, 0, len(p.segments))
	for _, seg := range p.segments {
		s := Segment{Addr: seg.addr, Size: seg.size, Stream: seg.home.stream, Small: seg.small, Expandable: seg.space != nil}
		for b := seg.first; b != nil; b = b.next {
			i := BlockInfo{Addr: b.addr, Size: b.size, State: b.state.String(), Generation: b.gen}
			if b.state != stateFree {
				i.Requested, i.Origin = b.requested, b.origin
			}
			s.Blocks = append(s.Blocks, i)
		}
		out = append(out, s)
	}
	p.mu.Unlock()
	slices.SortFunc(out, func(a, b Segment) int { return cmp.Compare(a.Addr, b.Addr) })
	return out
}
