package data

import (
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// mostStreams is the largest number of streams on which a loader copies at the same time.
const mostStreams = 8

// A mover copies batches to a device or to page-locked memory.
type mover struct {
	dev device.Device // target device; nil if batches stay on the CPU
	pin device.PinnedAllocator
	// streams are used in turn, so that the code that reads a batch need not wait for copies of
	// later batches.
	streams []device.Stream
}

// unpinned limits the log to one message about an ignored Pin in a process.
var unpinned sync.Once

// withoutPin returns a text for Loader.Note, which says that Pin is ignored and why. The first call
// in a process also logs the text.
func withoutPin(why string) string {
	note := "data: Pin is ignored: " + why
	unpinned.Do(func() { log.Print(note) })
	return note
}

// newMover returns the mover of a loader, or nil if batches stay where they were made. note names a
// setting that has no effect on this machine, or is "".
func newMover(c *Config) (m *mover, note string, err error) {
	m = &mover{dev: c.Device}
	// Page-locked memory does not speed up copies to the CPU or its ranks.
	if m.dev != nil && m.dev.Info().Host {
		if c.Pin {
			note = withoutPin("batches are on the CPU")
		}
		if m.dev.Info().Meta {
			return nil, note, nil
		}
		// Batches are copied to a rank of the CPU without page-locked memory.
		return m, note, nil
	}
	from := m.dev
	if c.Pin {
		if from == nil {
			var u *device.UnavailableError
			if from, err = device.OpenAny("cuda"); errors.As(err, &u) {
				return nil, withoutPin(err.Error()), nil
			} else if err != nil {
				return nil, "", err
			}
		}
		var ok bool
		if m.pin, ok = from.(device.PinnedAllocator); !ok {
			return nil, "", &ConfigError{"Pin", fmt.Sprintf("device %s has no page-locked memory", from.Name())}
		}
	}
	if m.dev == nil && m.pin == nil {
		return nil, "", nil
	}
	if m.dev != nil {
		for range min(c.Prefetch+1, mostStreams) {
			s, err := m.dev.NewStream(0)
			if err != nil {
				return nil, "", fmt.Errorf("data: a stream of %s to copy on: %w", m.dev.Name(), err)
			}
			m.streams = append(m.streams, s)
		}
	}
	return m, "", nil
}

// placed reports whether all tensors of the batch are already where the mover would copy them.
func (m *mover) placed(b *Batch) bool {
	placed := m.pin == nil
	b.mapTensors(func(t *tensor.Tensor) *tensor.Tensor {
		placed = placed && t.Device() == m.dev
		return t
	})
	return placed
}

// move copies batch b, which has the given number, to the mover's device or to page-locked memory.
// If it fails, it frees the copies and leaves the batch as it was.
func (m *mover) move(b *Batch, number int) error {
	opts := []tensor.Option{tensor.NoGrad()}
	if len(m.streams) > 0 {
		opts = append(opts, tensor.Stream(m.streams[number%len(m.streams)]))
	}
	var from, to []*tensor.Tensor
	b.mapTensors(func(t *tensor.Tensor) *tensor.Tensor { from = append(from, t); return t })
	err := tensor.Try(func() {
		for _, t := range from {
			tensor.Do(func(s *tensor.Scope) {
				y := t.In(s)
				if m.pin != nil && y.Device().Info().Host {
					y = y.PinMemory(m.pin)
				}
				if m.dev != nil {
					y = y.To(m.dev, tensor.NonBlocking())
				}
				s.Close(y)
				to = append(to, y)
			}, opts...)
		}
	})
	if err != nil {
		for _, y := range to {
			y.Free()
		}
		return err
	}
	i := -1
	b.mapTensors(func(t *tensor.Tensor) *tensor.Tensor { i++; t.Free(); return to[i] })
	return nil
}

// moveAhead copies a batch before the loop needs it. If the device's memory runs out, it leaves the
// copy to moveLate, which runs when the loop has freed the memory of the previous batch. Until
// moveLate runs, no later batch allocates memory.
func (r *run) moveAhead(res *result, number int) {
	m := r.l.mover
	if m == nil || m.placed(res.b) {
		return
	}
	if t := device.Tracing(); t != nil {
		defer t.End(t.Begin(device.Span{Kind: device.SpanDirect, Name: "loader", Callers: r.callers}))
	}
	switch {
	case r.short.Load() > 0:
		res.late = true
	default:
		err := m.move(res.b, number)
		if res.late = errors.Is(err, device.ErrOutOfMemory); res.late {
			r.short.Add(1)
			res.failed = true
		} else if err != nil {
			res.b.Free()
			res.b, res.err = nil, &SampleError{-1, err}
		}
	}
}

// moveLate copies a batch that moveAhead has not copied for lack of memory.
func (r *run) moveLate(res *result, number int) {
	if !res.late {
		return
	}
	if res.failed {
		r.short.Add(-1)
	}
	if err := r.l.mover.move(res.b, number); err != nil {
		res.b.Free()
		res.b, res.err = nil, &SampleError{-1, err}
	}
}
