package ptxvm

// Traffic counts the 32-byte sectors that the blocks of launches fetch from beyond the cache of a
// multiprocessor, or write there. Each block has a cache of its own, of the sectors that it touched
// last, as many as Cached. What it finds there is not counted. A sector that is read and written
// counts twice, once for each.
type Traffic struct {
	Cached  int
	Sectors int64
	Ranges  []RangeTraffic // parts of memory, which do not overlap
}

// RangeTraffic counts the sectors that lie in some bytes of global memory.
type RangeTraffic struct {
	Addr, Bytes uint64
	Sectors     int64
}

// blockCache is the cache of the blocks of one worker, one after the other: first in, first out.
type blockCache struct {
	Traffic
	held  map[uint64]struct{}
	order []uint64 // a ring once it is full
	next  int
}

func newBlockCache(t *Traffic) *blockCache {
	if t == nil {
		return nil
	}
	c := &blockCache{Traffic: Traffic{Cached: t.Cached, Ranges: append([]RangeTraffic(nil), t.Ranges...)}, held: map[uint64]struct{}{}}
	for k := range c.Ranges {
		c.Ranges[k].Sectors = 0
	}
	return c
}

// empty forgets what the block before has left.
func (c *blockCache) empty() {
	if c != nil {
		clear(c.held)
		c.order, c.next = c.order[:0], 0
	}
}

// touch takes sectors, by number, that a request reads or writes.
func (c *blockCache) touch(sectors []uint64, writes bool) {
	for _, s := range sectors {
		entry := s << 1
		if writes {
			entry |= 1
		}
		if _, ok := c.held[entry]; ok {
			continue
		}
		c.Sectors++
		for k := range c.Ranges {
			if r := &c.Ranges[k]; s<<5-r.Addr < r.Bytes {
				r.Sectors++
			}
		}
		if c.Cached == 0 {
			continue
		}
		c.held[entry] = struct{}{}
		if len(c.order) < c.Cached {
			c.order = append(c.order, entry)
			continue
		}
		delete(c.held, c.order[c.next])
		c.order[c.next] = entry
		c.next = (c.next + 1) % c.Cached
	}
}

func (c *blockCache) addTo(t *Traffic) {
	if c == nil {
		return
	}
	t.Sectors += c.Sectors
	for k, r := range c.Ranges {
		t.Ranges[k].Sectors += r.Sectors
	}
}
