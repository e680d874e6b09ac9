package cuda

import (
	"errors"
	"sync"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// counterPool keeps the counters for matrix products whose sums over k are divided among blocks.
// Each stream and each lane of a recording has counters of its own. The launches of one stream or
// lane run one after the other, and each launch resets its counters to zero. The counters are not
// allocated from the memory pool, because a stream keeps them forever.
type counterPool struct {
	mu       sync.Mutex
	counters map[pool.StreamID]cu.DevicePtr
	idle     []cu.DevicePtr // unused counters that are zero, for the next arena
}

// counters returns the address of the stream's [kernels.Counters]. New counters are cleared by a
// memset on s.handle. The replays of a recording run later on that handle, so the memset precedes
// them.
func (s *stream) counters() (uint64, error) {
	d, arena := s.dev, s.arena()
	c := &d.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.counters[arena]; ok {
		return uint64(p), nil
	}
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	var p cu.DevicePtr
	if n := len(c.idle) - 1; n >= 0 {
		p, c.idle = c.idle[n], c.idle[:n]
	} else {
		var err error
		if p, err = d.newCounters(s); err != nil {
			return 0, err
		}
	}
	if c.counters == nil {
		c.counters = map[pool.StreamID]cu.DevicePtr{}
	}
	c.counters[arena] = p
	return uint64(p), nil
}

func (d *Device) newCounters(s *stream) (cu.DevicePtr, error) {
	const bytes = 4 * kernels.CounterWords
	p, err := d.api.MemAlloc(bytes)
	if errors.Is(err, cu.ErrOutOfMemory) && d.pool.Empty() > 0 {
		p, err = d.api.MemAlloc(bytes)
	}
	if err != nil {
		d.stopRefusing()
		return 0, d.fault("", err)
	}
	if err := d.api.MemsetD32Async(p, 0, kernels.CounterWords, s.handle); err != nil {
		_ = d.api.MemFree(p) // only the first error is reported
		return 0, d.fault("", err)
	}
	return p, nil
}

// end takes back an arena's counters. The arena's work has finished.
func (c *counterPool) end(arena pool.StreamID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.counters[arena]; ok {
		delete(c.counters, arena)
		c.idle = append(c.idle, p)
	}
}
