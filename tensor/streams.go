package tensor

import (
	"runtime"

	"github.com/flambeau-go/flambeau/device"
)

// Stream returns the stream on which work of the scope is queued for device d. Without d the result
// is the stream for the scope's device. It is torch.cuda.current_stream. For a GPU the stream is a
// cuda.Stream.
func (s *Scope) Stream(d ...device.Device) device.Stream {
	dev := s.Device() // called even if d is given, because Device marks s as used
	if len(d) > 0 {
		dev = d[0]
	}
	if dev == nil {
		fail("scope.stream", ErrDevice, nil, "the device is nil")
	}
	return s.source("scope.stream", dev).stream
}

// RecordStream notes that work on stream st uses x's memory, as torch's record_stream does. Work
// queued on st after the call waits for earlier writes to x. Later writes to x, and later owners of
// its memory, wait for all work on st that is queued before them. Ops need no RecordStream. A
// function passed to [Raw] needs none for work that it queues on the stream it receives.
func (x *Tensor) RecordStream(st device.Stream) {
	const op = "record_stream"
	x.use(op)
	if st == nil || st.Device() != x.st.dev {
		fail(op, ErrDevice, []*Tensor{x}, "the stream is not one of %s", x.st.dev.Name())
	}
	x.st.read(op, routeOn(st))
	runtime.KeepAlive(x)
}
