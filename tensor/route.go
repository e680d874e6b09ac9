package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
)

// A route says where work is queued: on a stream, and in a graph if the work is recorded.
type route struct {
	stream device.Stream
	graph  *Graph // records the work; nil if the work is not recorded
}

// route returns the route for the work of op in s on dev. Allocation, launches, Raw and copies call
// route. It panics if the work of s is recorded and the graph cannot record this work.
func (s *Scope) route(op string, dev device.Device) route {
	r := routeOn(s.streamOf(dev))
	if g := s.modes.capture; g != nil && r.graph != g {
		s.refuseRoute(op, dev)
	}
	return r
}

// refuseRoute panics if the work of s is recorded. The error says that the graph cannot record work
// on dev.
func (s *Scope) refuseRoute(op string, dev device.Device) {
	why := "the stream of the work is none that is recorded: what came before it was not recorded"
	hint := "do it before the capture or after a replay"
	if g := s.modes.capture; g.firstStream(dev) == nil {
		why = fmt.Sprintf("work on %s is not recorded with that of %s", dev.Name(), g.dev.Name())
		if dev.Info().Kind == g.dev.Info().Kind {
			hint += "; to record it too, name the device: tensor.Capture(dev, f, tensor.Across(other))"
		}
	}
	s.unrecordable(op, why, hint)
}

// source returns the route of work that only reads memory on dev: a read by the host, or a copy to
// another device. A capture on GPUs may also read memory of the CPU.
func (s *Scope) source(op string, dev device.Device) route {
	if isHost(dev) && s.modes.capture.firstStream(dev) == nil {
		return route{stream: s.streamOf(dev)}
	}
	return s.route(op, dev)
}

func routeOn(s device.Stream) route {
	if captures.empty() {
		return route{stream: s}
	}
	return route{s, recordedBy(s)}
}

// recordedBy returns the graph that records the work queued on s. It is nil if the work is not
// recorded.
func recordedBy(s device.Stream) *Graph {
	if r, ok := s.(device.RecordingStream); ok {
		if g, ok := r.RecordedFor().(*Graph); ok && g.live.Load() {
			return g
		}
	}
	return nil
}

func (g *Graph) olderThanCapture(st *storage) bool { return st.epoch < g.number }

func (g *Graph) noteAllocation(st *storage) {
	g.mu.Lock()
	g.own = append(g.own, st)
	g.mu.Unlock()
}

// touch notes that recorded work uses a storage. The storage then lives until the graph is closed,
// and replays are ordered with other work on the storage. The caller holds st.mu.
func (g *Graph) touch(op string, st *storage, write bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isRecorded(st.home) {
		return
	}
	if !g.olderThanCapture(st) && !g.adopted[st] {
		e := newError(op, ErrCapture, nil, "an operand was made during the capture but not by recorded work, so that replays would not compute it again")
		panic(g.refused(e.hint("start an expression over older tensors with In(s), or compute it before the capture")))
	}
	old, known := g.outside[st]
	if !known {
		st.retain()
	}
	g.outside[st] = old || write
}

// guardOlder panics if, during a capture on this goroutine, unrecorded work is about to change
// memory that is older than the capture. Replays would not repeat such a change. New memory may be
// written, for example to initialise an optimizer's state. A capture on GPUs does not refuse
// changes of the CPU's memory.
func (st *storage) guardOlder(op string) {
	captures.forEach(func(g *Graph) bool { // only the innermost capture is asked
		if g.olderThanCapture(st) && (!isHost(st.dev) || g.firstStream(st.dev) != nil) {
			g.mu.Lock()
			defer g.mu.Unlock()
			e := newError(op, ErrCapture, nil, "what it writes to would be changed now, once, and not by replays: the work is not in the scope of the capture")
			panic(g.refused(e.hint("start it with In(s), s being the scope that the function gets; call an optimizer or an average behind Backward; or do it before the capture")))
		}
		return false
	})
}
