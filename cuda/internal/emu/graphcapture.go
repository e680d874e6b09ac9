package emu

import "github.com/flambeau-go/flambeau/cuda/internal/cu"

// capture is a stream's between StreamBeginCapture and StreamEndCapture.
type capture struct {
	g    *graph
	tail *graphNode
	err  error // what was not allowed
}

// capturable are the calls that a capturing stream takes. What waits would wait for ever, what reads or writes pageable memory would do so
// once, and events would join streams, which is not emulated.
var capturable = map[string]bool{"cuLaunchKernel": true, "cuMemcpyDtoDAsync": true, "cuMemsetD8Async": true, "cuMemsetD16Async": true,
	"cuMemsetD32Async": true, "cuStreamBeginCapture": true, "cuStreamEndCapture": true}

// refuse makes the capture invalid.
func (c *capture) refuse(call string) error {
	c.err = fail(call, cu.ErrStreamCaptureUnsupported, "the stream is being captured")
	return c.err
}

// add makes work a node after the last one.
func (c *capture) add(d *Driver, w work) error {
	if c.err != nil {
		return fail("cuStreamBeginCapture", cu.ErrStreamCaptureInvalidated, "%v", c.err)
	}
	n := &graphNode{handle: cu.GraphNode(d.handle()), work: w}
	if c.tail != nil {
		n.after = []*graphNode{c.tail}
	}
	c.g.nodes = append(c.g.nodes, n)
	c.tail = n
	return nil
}

// StreamBeginCapture makes nodes of what is queued on the stream: launches, copies on the device and memsets.
func (d *Driver) StreamBeginCapture(h cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuStreamBeginCapture"
	s, err := d.streamHere(call, h)
	switch {
	case err != nil:
		return err
	case h == 0:
		return fail(call, cu.ErrStreamCaptureUnsupported, "the default stream cannot be captured")
	case s.capture != nil:
		return fail(call, cu.ErrIllegalState, "the stream is being captured already")
	}
	s.capture = &capture{g: &graph{ctx: s.ctx}}
	return nil
}

// StreamEndCapture returns what was captured.
func (d *Driver) StreamEndCapture(h cu.Stream) (cu.Graph, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuStreamEndCapture"
	s, err := d.streamHere(call, h)
	if err != nil {
		return 0, err
	}
	c := s.capture
	if c == nil {
		return 0, fail(call, cu.ErrIllegalState, "the stream is not being captured")
	}
	s.capture = nil
	if c.err != nil {
		return 0, fail(call, cu.ErrStreamCaptureInvalidated, "%v", c.err)
	}
	return d.addGraph(c.g), nil
}
