package emu

import "github.com/flambeau-go/flambeau/cuda/internal/cu"

var (
	_ cu.Sized  = (*Driver)(nil)
	_ cu.Scarce = (*Driver)(nil)
)

// Segment returns the size of segments that the Config sets.
func (d *Driver) Segment() uint64 { return d.cfg.Segment }

// shortage makes requests for memory fail on a device.
type shortage struct {
	// left counts the requests up to and including the first one that fails. It is 0 if none is
	// to fail, and after the first failure.
	left  uint64
	begun bool
}

// RefuseMemory makes requests for memory fail, from the n-th request after this call on. The
// failures last until Relent is called. If n is 0, no request fails. RefuseMemory implements
// cu.Scarce.
func (d *Driver) RefuseMemory(dev cu.Device, n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x, err := d.device("RefuseMemory", dev); err == nil {
		x.short = shortage{left: n}
	}
}

// Relent ends the failures that RefuseMemory has caused.
func (d *Driver) Relent(dev cu.Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x, err := d.device("Relent", dev); err == nil && x.short.begun {
		x.short = shortage{}
	}
}

// refuses counts a request for memory and reports whether it must fail. The caller holds the
// driver's lock.
func (s *shortage) refuses() bool {
	if s.left > 0 {
		s.left--
		s.begun = s.left == 0
	}
	return s.begun
}
