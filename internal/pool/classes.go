package pool

// Class holds the statistics of either small or large blocks. Empty blocks count as small. The two
// classes add up to the total, except for the peaks, which they may reach at different times.
type Class struct {
	AllocatedBytes, RequestedBytes, ActiveBytes, InactiveSplitBytes, ReservedBytes Stat
	Allocated, Active, InactiveSplit, Segments                                     Stat
}

// class returns the statistics of the class of block b.
func (s *Stats) class(b *Block) *Class {
	if b.seg == nil {
		return &s.Small
	}
	return s.of(b.seg.small)
}

func (s *Stats) of(small bool) *Class {
	if small {
		return &s.Small
	}
	return &s.Large
}

func (c *Class) allocated(b *Block, requested uint64) {
	c.AllocatedBytes.add(b.size)
	c.ActiveBytes.add(b.size)
	c.RequestedBytes.add(requested)
	c.Allocated.add(1)
	c.Active.add(1)
}

// freed counts a block that its owner has freed. When the block can be reused, [Class.idle] counts
// it.
func (c *Class) freed(b *Block) {
	c.AllocatedBytes.sub(b.size)
	c.RequestedBytes.sub(b.requested)
	c.Allocated.sub(1)
}

func (c *Class) idle(b *Block) {
	c.ActiveBytes.sub(b.size)
	c.Active.sub(1)
}

// divided counts a free block whose segment also contains other blocks. [Class.joined] reverses
// this when the block is allocated or merged.
func (c *Class) divided(b *Block) {
	c.InactiveSplitBytes.add(b.size)
	c.InactiveSplit.add(1)
}

func (c *Class) joined(b *Block) {
	c.InactiveSplitBytes.sub(b.size)
	c.InactiveSplit.sub(1)
}

// reserved counts a segment that came from the backing. [Class.returned] counts a segment that went
// back.
func (c *Class) reserved(bytes uint64) {
	c.ReservedBytes.add(bytes)
	c.Segments.add(1)
}

func (c *Class) returned(bytes uint64) {
	c.ReservedBytes.sub(bytes)
	c.Segments.sub(1)
}

// eachStat calls f with each Stat of s: first the totals, then those of the classes Small and
// Large.
func (s *Stats) eachStat(f func(*Stat)) {
	list := []*Stat{&s.AllocatedBytes, &s.RequestedBytes, &s.ActiveBytes, &s.InactiveSplitBytes, &s.ReservedBytes, &s.ExpandableBytes,
		&s.Allocated, &s.Active, &s.InactiveSplit, &s.Segments}
	for _, c := range []*Class{&s.Small, &s.Large} {
		list = append(list, &c.AllocatedBytes, &c.RequestedBytes, &c.ActiveBytes, &c.InactiveSplitBytes, &c.ReservedBytes,
			&c.Allocated, &c.Active, &c.InactiveSplit, &c.Segments)
	}
	for _, q := range list {
		f(q)
	}
}

// ResetAccumulated sets the accumulated statistics to zero, like
// torch.cuda.reset_accumulated_memory_stats. These are Allocated and Freed of each [Stat], and the
// counts of allocations, frees, retries, failures and waits. Current values and peaks do not
// change.
func (p *Pool) ResetAccumulated() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.stats
	s.eachStat(func(q *Stat) { q.Allocated, q.Freed = 0, 0 })
	s.Allocations, s.Frees, s.Retries, s.OOMs, s.Syncs, s.Returned = 0, 0, 0, 0, 0, 0
	s.Collections, s.EarlyCollections = 0, 0
}
