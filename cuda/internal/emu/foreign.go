package emu

import (
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// Foreign queues work for which there is no PTX text, such as the kernels of a library. The work
// counts as one launch on the stream, or as one node if the stream is being captured. It takes the
// time of a kernel that moves the given number of bytes. The function effect gets the memory of all
// devices, and must not call the driver. An error of effect ends the context. In meta mode effect
// is not called.
func (d *Driver) Foreign(name string, st cu.Stream, bytes uint64, effect func(*Shared) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuLaunchKernel"
	s, err := d.streamHere(call, st)
	if err != nil {
		return err
	}
	dev := s.ctx.dev
	w := work{Op: Op{Kind: KindKernel, Name: name}, ctx: s.ctx}
	w.run = func() (time.Duration, error) {
		cost := d.cfg.Cost.kernel(0, bytes)
		d.counters.kernel(name).Time += cost
		if dev.mem == nil {
			return cost, nil
		}
		if err := effect(&Shared{d, KindKernel, name}); err != nil {
			return 0, &cu.Error{Call: call, Result: cu.ErrIllegalAddress, Cause: err}
		}
		return cost, nil
	}
	w.count = func() { d.counters.kernel(name).Launches++ }
	if s.capture != nil {
		return s.capture.add(d, w)
	}
	d.counters.Launches++
	w.count()
	d.enqueue(s, &op{Op: w.Op, run: w.run})
	return s.ctx.dead
}
