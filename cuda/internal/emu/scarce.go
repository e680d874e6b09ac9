package emu

import "github.com/flambeau-go/flambeau/cuda/internal/cu"

var (
	_ cu.Sized  = (*Driver)(nil)
	_ cu.Scarce = (*Driver)(nil)
)

// Segment returns Config.Segment.
func (d *Driver) Segment() uint64 { return d.cfg.Segment }

// shortage is a planned refusal of memory.
type shortage struct {
	left  uint64 // number of requests until the shortage begins; 0 if none is planned
	begun bool
}

// RefuseMemory plans that requests for memory are refused, from the n-th request after this call
// on, see cu.Scarce. n = 0 cancels the plan.
func (d *Driver) RefuseMemory(dev cu.Device, n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x, err := d.device("RefuseMemory", dev); err == nil {
		x.short = shortage{left: n}
	}
}

// Relent ends a refusal that has begun.
func (d *Driver) Relent(dev cu.Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x, err := d.device("Relent", dev); err == nil && x.short.begun {
		x.short = shortage{}
	}
}

// refuses counts a request for memory and reports whether it is refused. The driver's lock is held.
func (s *shortage) refuses() bool {
	if s.left > 0 {
		s.left--
		s.begun = s.left == 0
	}
	return s.begun
}
