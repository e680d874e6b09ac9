package pool

import (
	"cmp"
	"slices"
)

// Stat is the statistics of one quantity: the current value, the peak since ResetPeak, and the sums
// of all increases and decreases.
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

// Stats holds the pool's statistics, in the terms of torch.cuda.memory_stats. Live blocks are
// "allocated". "Active" blocks also include blocks that wait for other streams. "Inactive split"
// blocks are free blocks in a segment with other blocks.
type Stats struct {
	AllocatedBytes     Stat // rounded sizes of live blocks
	RequestedBytes     Stat // requested sizes of live blocks
	ActiveBytes        Stat
	InactiveSplitBytes Stat
	ReservedBytes      Stat // number of bytes in segments
	ExpandableBytes    Stat // part of ReservedBytes in pages of expandable segments
	Allocated          Stat // number of live blocks, including empty blocks
	Active             Stat
	InactiveSplit      Stat
	Segments           Stat
	Small, Large       Class

	Allocations, Frees uint64
	Retries            uint64 // number of requests that ran the out-of-memory ladder
	OOMs               uint64 // number of requests that failed
	// number of releases that were ignored because their generation was not the current one
	StaleFrees       uint64
	QueuedFrees      uint64 // number of releases through Queue that were performed
	Collections      uint64 // number of garbage collections that the out-of-memory ladder ran
	EarlyCollections uint64 // number of garbage collections in the background, for GCRatio
	Syncs            uint64 // number of times that the pool waited for pending blocks
	Returned         uint64 // number of bytes in segments that were given back to the backing
	Pending          uint64 // present number of freed blocks that still wait for other streams
	// how many of the Pending blocks wait for events that are not recorded yet, because of
	// PauseEvents or an error of Record
	Deferred         uint64
	CollectableBytes uint64 // number of bytes in live blocks whose Origin is Collected
	Limit            uint64 // limit of the pool; 0 means none
}

// Stats returns the statistics. Before that it performs queued releases, and releases blocks whose
// events are done.
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

// InUse returns Stats().AllocatedBytes.Current.
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

// ResetPeak sets every peak to the current value.
func (p *Pool) ResetPeak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.eachStat(func(q *Stat) { q.Peak = q.Current })
}

// EventError returns the last error of Backing.Record that still keeps memory from being used. This
// memory is a freed block, or a segment that could not be given back. A stream causes such errors
// if it was destroyed without Retire, or while it is captured. EventError returns nil if there is
// no such error.
func (p *Pool) EventError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.eventIssue
}

// Segment describes one piece of memory from the backing.
type Segment struct {
	Addr       uintptr
	Size       uint64
	Stream     StreamID
	Small      bool
	Expandable bool
	Blocks     []BlockInfo // blocks in address order; together they fill the segment
}

// BlockInfo describes a block in a Snapshot.
type BlockInfo struct {
	Addr       uintptr
	Size       uint64 // size in bytes after rounding
	Requested  uint64 // requested size; 0 unless the block is live or pending
	State      string // state of the block: "live", "pending" or "free"
	Generation uint64
	Origin     Origin // origin of the last owner; zero if the block is free
}

// Snapshot returns all segments, sorted by address.
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
