package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
)

var _ device.MemoryHistorian = (*Device)(nil)

// RecordMemoryHistory records every allocation and free of the device from now on, in a ring buffer
// (torch.cuda.memory._record_memory_history). Each record has the call's stack and the block's
// origin. Recording makes an allocation some microseconds slower.
func (d *Device) RecordMemoryHistory(opts ...device.HistoryOption) {
	d.pool.RecordHistory(device.NewHistorySettings(opts...))
}

// StopMemoryHistory ends the recording and discards its events.
func (d *Device) StopMemoryHistory() { d.pool.StopHistory() }

// MemorySnapshot returns the allocator's segments and blocks and the recorded events
// (torch.cuda.memory._snapshot).
func (d *Device) MemorySnapshot() *device.MemorySnapshot {
	s := d.pool.MemorySnapshot()
	s.Product, s.Emulated = d.info.Name, d.info.Emulated
	if s.Total == 0 {
		s.Total = uint64(d.info.Memory)
	}
	return s
}

// RecordMemoryHistory records every allocation and free of dev from now on. It accepts any device
// that device.Open returns. If dev is not a [device.MemoryHistorian], the error wraps
// [device.ErrNoHistory].
func RecordMemoryHistory(dev device.Device, opts ...device.HistoryOption) error {
	h, err := historian(dev)
	if err == nil {
		h.RecordMemoryHistory(opts...)
	}
	return err
}

// StopMemoryHistory ends the recording that [RecordMemoryHistory] began. If dev is not a
// [device.MemoryHistorian], the error wraps [device.ErrNoHistory].
func StopMemoryHistory(dev device.Device) error {
	h, err := historian(dev)
	if err == nil {
		h.StopMemoryHistory()
	}
	return err
}

// MemorySnapshot returns the segments and blocks of dev's allocator and the recorded events.
// Package profile/memsnap writes them to files. If dev is not a [device.MemoryHistorian], the
// error wraps [device.ErrNoHistory].
func MemorySnapshot(dev device.Device) (*device.MemorySnapshot, error) {
	h, err := historian(dev)
	if err != nil {
		return nil, err
	}
	return h.MemorySnapshot(), nil
}

func historian(dev device.Device) (device.MemoryHistorian, error) {
	if h, ok := dev.(device.MemoryHistorian); ok {
		return h, nil
	}
	name := "no device"
	if dev != nil {
		name = dev.Name()
	}
	return nil, fmt.Errorf("%w: %s (%T); pass a device of cuda.Open or device.Open", device.ErrNoHistory, name, dev)
}
