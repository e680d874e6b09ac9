package cuda

import (
	"errors"
	"sync"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// counterPool keeps the counters of products that are divided along k. Each order of work that has
// memory of its own has counters too: a stream, or a lane of a recording. What is queued in one
// order runs one after the other, and each launch leaves zeros. They are no part of the memory
// pool, as a stream keeps them for good.
type counterPool struct {
	mu   sync.Mutex
	of   map[pool.StreamID]cu.DevicePtr
	idle []cu.DevicePtr // zeros, for the next
}

// counters are [kernels.Counters] of the stream. The zeros of new ones are queued on it: replays of
// a recording come after what its stream of the driver had to do.
func (s *stream) counters() (uint64, error) {
	d, arena := s.dev, s.arena()
	c := &d.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.of[arena]; ok {
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
	if c.of == nil {
		c.of = map[pool.StreamID]cu.DevicePtr{}
	}
	c.of[arena] = p
	return uint64(p), nil
}

func (d *Device) newCounters(s *stream) (cu.DevicePtr, error) {
	const bytes = 4 * kernels.CounterWords
	p, err := d.api.MemAlloc(bytes)
	if errors.Is(err, cu.ErrOutOfMemory) && d.pool.Empty() > 0 {
		p, err = d.api.MemAlloc(bytes)
	}
	if err != nil {
		d.relent()
		return 0, d.fault("", err)
	}
	if err := d.api.MemsetD32Async(p, 0, kernels.CounterWords, s.handle); err != nil {
		_ = d.api.MemFree(p) // the first error is the one to tell
		return 0, d.fault("", err)
	}
	return p, nil
}

// end takes back the counters of an arena whose work is done.
func (c *counterPool) end(arena pool.StreamID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.of[arena]; ok {
		delete(c.of, arena)
		c.idle = append(c.idle, p)
	}
}
