package cpu

import "github.com/flambeau-go/flambeau/device"

var _ device.MemoryHistorian = (*Device)(nil)

// RecordMemoryHistory records every allocation of at least 64 KiB and its free from now on, with the stack of the call. Smaller ones
// are Go memory, which runtime/pprof shows.
func (d *Device) RecordMemoryHistory(opts ...device.HistoryOption) {
	d.pool.RecordHistory(device.NewHistorySettings(opts...))
}

// StopMemoryHistory ends recording and forgets what was recorded.
func (d *Device) StopMemoryHistory() { d.pool.StopHistory() }

// MemorySnapshot returns the segments and blocks of at least 64 KiB that the device holds, and the recorded events.
func (d *Device) MemorySnapshot() *device.MemorySnapshot {
	s := d.pool.MemorySnapshot()
	s.Product = d.Info().Name
	return s
}
