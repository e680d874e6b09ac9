package data

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// mostStreams bounds the streams that a loader copies on.
const mostStreams = 8

// A mover brings batches to where Config says.
type mover struct {
	dev     device.Device // nil: they stay on the CPU
	pin     device.PinnedAllocator
	streams []device.Stream // taken in turn, so that who reads a batch does not wait for the copies of the next ones
}

// newMover returns the mover of a loader, nil if batches stay as they are made.
func newMover(c *Config) (*mover, error) {
	m := &mover{dev: c.Device}
	if m.dev != nil && m.dev.Info().Kind == "cpu" {
		return nil, nil // there is nothing to copy, and so nothing to pin
	}
	from := m.dev
	if c.Pin {
		if from == nil {
			var err error
			if from, err = device.Open("cuda:0"); err != nil {
				return nil, &ConfigError{"Pin", err.Error()}
			}
		}
		var ok bool
		if m.pin, ok = from.(device.PinnedAllocator); !ok {
			return nil, &ConfigError{"Pin", fmt.Sprintf("device %s has no page-locked memory", from.Name())}
		}
	}
	if m.dev == nil && m.pin == nil {
		return nil, nil
	}
	if m.dev != nil {
		for range min(c.Prefetch+1, mostStreams) {
			s, err := m.dev.NewStream(0)
			if err != nil {
				return nil, fmt.Errorf("data: a stream of %s to copy on: %w", m.dev.Name(), err)
			}
			m.streams = append(m.streams, s)
		}
	}
	return m, nil
}

// move brings a batch to its place. After an error nothing is left of it.
func (m *mover) move(b *Batch, number int) error {
	if m == nil {
		return nil
	}
	opts := []tensor.Option{tensor.NoGrad()}
	if m.dev != nil {
		opts = append(opts, tensor.Stream(m.streams[number%len(m.streams)]))
	}
	each := func(t *tensor.Tensor) (y *tensor.Tensor) {
		tensor.Do(func(s *tensor.Scope) {
			y = t.In(s)
			if m.pin != nil && y.Device().Info().Kind == "cpu" {
				y = y.PinMemory(m.pin)
			}
			if m.dev != nil {
				y = y.To(m.dev, tensor.NonBlocking())
			}
			s.Close(y)
		}, opts...)
		t.Free()
		return y
	}
	err := tensor.Try(func() { b.each(each) })
	if err != nil {
		b.Free()
	}
	return err
}
