package cuda

import (
	"errors"
	"sync"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// counterPool holds the counters of matrix products whose sums over k are divided among blocks.
// Each stream, and each lane (recorded stream) of a recording, has its own counters. The launches
// of one stream or lane run one after the other, so they can use the same counters. Each launch
// resets the counters to zero. The counters are not allocated from the memory pool, because an
// ordinary stream never gives them back.
type counterPool struct {
	mu       sync.Mutex
	counters map[pool.StreamID]cu.DevicePtr
	idle     []cu.DevicePtr // counters that no stream uses; all of them are zero
}

// counters returns the address of the stream's [kernels.Counters]. New counters are cleared by a
// memset on s.handle. Recorded work is replayed later on the same handle, so the memset precedes
// it.
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

// end makes an arena's counters available to other streams. The work of the arena must have
// finished.
func (c *counterPool) end(arena pool.StreamID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.counters[arena]; ok {
		delete(c.counters, arena)
		c.idle = append(c.idle, p)
	}
}
