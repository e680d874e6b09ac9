package ptxvm

// Traffic counts the 32-byte sectors that pass between memory and the caches of blocks. Each block
// has its own cache of at most Cached sectors. A full cache drops the sector that it has held
// longest. Sectors found in the cache are not counted. A sector that is read and written counts
// twice.
type Traffic struct {
	Cached  int
	Sectors int64
	// ranges of memory for which sectors are counted separately; they do not overlap
	Ranges []RangeTraffic
}

// RangeTraffic counts the sectors in one range of global memory.
type RangeTraffic struct {
	Addr, Bytes uint64
	Sectors     int64
}

// blockCache is the cache of a block. A worker uses it for one block after the other. A full cache
// drops the sector that it has held longest.
type blockCache struct {
	Traffic
	held map[uint64]struct{}
	// sectors in the order in which they were added; a ring buffer once the cache is full
	order []uint64
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

// empty removes the sectors of the previous block.
func (c *blockCache) empty() {
	if c != nil {
		clear(c.held)
		c.order, c.next = c.order[:0], 0
	}
}

// touch adds the sectors that a request reads or writes, which are given by their numbers.
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
