package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
)

// A Stream is a queue of work of a GPU: torch.cuda.Stream. Every stream of this package's devices is one, so that a [device.Stream] of a GPU
// can be asked for it by a type assertion.
//
// Tensors keep the streams apart by themselves: an op waits for what another stream wrote to its operands, and memory is reused only when all
// streams are done with it. Events and waits by hand are for work outside of tensors, and for measuring.
//
// Record is torch's record_event, Wait its wait_event, Synchronize its synchronize. A scope queues its work on a stream with the option
// tensor.Stream, torch's with torch.cuda.stream(s).
type Stream interface {
	device.Stream
	// Priority returns what NewStream was asked for, clamped to [PriorityRange]: the higher the more urgent.
	Priority() int
	// Query reports whether all work queued so far is done, without waiting. The error is a fault of that work, or a
	// *[device.RecordError] while the stream's work is being recorded.
	Query() (done bool, err error)
	// WaitStream makes later work wait for what is queued on the other stream so far. It does not hold up the host, unless the other
	// stream is of another driver, such as the CPU's.
	WaitStream(other device.Stream) error
}

var _ Stream = (*stream)(nil)

// NewStream returns another stream of a GPU. A higher priority is more urgent, 0 is the usual one
// and the lowest; it is clamped to [PriorityRange]. (In torch, as in the driver, lower numbers are
// more urgent: its -1 is 1 here.) A priority is a hint: it never changes results. The stream lives
// as long as it is reachable. The error is a *[device.OperandError] if dev is no GPU, or the
// driver's.
func NewStream(dev device.Device, priority int) (Stream, error) {
	d, err := gpu("new stream", dev)
	if err != nil {
		return nil, err
	}
	s, err := d.NewStream(priority)
	if err != nil {
		return nil, err
	}
	return s.(*stream), nil
}

// DefaultStream returns the stream on which a GPU's work is queued where a scope chooses none (torch.cuda.default_stream). It panics with a
// *[device.OperandError] if dev is no GPU.
func DefaultStream(dev device.Device) Stream { return mustGPU("default stream", dev).main }

// PriorityRange returns the lowest and the highest priority that streams of a GPU can have: 0 and 5 on current hardware. It panics with a
// *[device.OperandError] if dev is no GPU.
func PriorityRange(dev device.Device) (least, greatest int) {
	d := mustGPU("priority range", dev)
	return -d.streams.least, -d.streams.urgent
}

// String returns a line such as "cuda:0 stream 0x10050, priority 1".
func (s *stream) String() string {
	if l := s.rec.Load(); l != nil && l.index > 0 {
		return fmt.Sprintf("%s stream %#x, fork %d of a recording", s.dev.name, uint64(s.handle), l.index)
	}
	return fmt.Sprintf("%s stream %#x, priority %d", s.dev.name, uint64(s.handle), s.Priority())
}

// Priority returns the stream's priority.
func (s *stream) Priority() int { return -s.priority }

// Query reports whether the work queued so far is done.
func (s *stream) Query() (bool, error) {
	if err := s.refuse("query", "the work does not run yet"); err != nil {
		return false, err
	}
	if err := s.dev.enter(); err != nil {
		return false, err
	}
	defer s.dev.leave()
	done, err := s.dev.api.StreamQuery(s.handle)
	return done, s.dev.fault("", err)
}

// WaitStream makes later work wait for what is queued on other so far.
func (s *stream) WaitStream(other device.Stream) error {
	if own, ok := other.(*stream); other == nil || ok && own == nil {
		return s.dev.refusal("wait stream", "stream", "nil is not a stream")
	}
	if other == device.Stream(s) {
		return nil
	}
	if l := s.rec.Load(); l != nil && !l.r.has(other) {
		return s.refuse("wait stream", "the other stream is not recorded with this one, and replays would not wait for what it does then")
	}
	e, err := other.Record()
	if err != nil {
		return err
	}
	defer e.Release()
	return s.Wait(e)
}
