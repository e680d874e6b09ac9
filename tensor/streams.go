package tensor

import (
	"runtime"

	"github.com/flambeau-go/flambeau/device"
)

// Stream returns the stream on which work of the scope is queued for device d, or without one for
// the scope's own: torch.cuda.current_stream. That of a GPU is a cuda.Stream.
func (s *Scope) Stream(d ...device.Device) device.Stream {
	dev := s.Device() // which is to ask s, also where d is given
	if len(d) > 0 {
		dev = d[0]
	}
	if dev == nil {
		fail("scope.stream", ErrDevice, nil, "the device is nil")
	}
	return s.source("scope.stream", dev).stream
}

// RecordStream notes that work on stream st, queued by other means than ops, uses x's memory:
// torch's record_stream. What is queued on st from here on waits for what was written to x so far.
// Whoever writes to x later, or gets its memory after it is freed, waits for what is queued on st
// by then. Ops, and [Raw] on the stream that it hands out, need no such note.
func (x *Tensor) RecordStream(st device.Stream) {
	const op = "record_stream"
	x.use(op)
	if st == nil || st.Device() != x.st.dev {
		fail(op, ErrDevice, []*Tensor{x}, "the stream is not one of %s", x.st.dev.Name())
	}
	x.st.read(op, routeOn(st))
	runtime.KeepAlive(x)
}
