package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// A capture of work on several streams. One of the recording's own streams stands in for each
// stream that a scope of the capture asks for. What others queue on the stream meanwhile runs as
// ever, and the stream can serve several captures at once. The stand-ins are kept apart, and in
// order, as streams are outside of a capture, by who has written and read a tensor's memory.

// route makes the stream of a scope that is being opened one that is recorded.
func (g *Graph) route(m *modes) {
	first := g.first(m.dev)
	if first == nil {
		return // work elsewhere is refused when there is some
	}
	// as a device's default stream serves where another one's was chosen
	if m.stream == nil || m.stream.Device() != m.dev {
		m.stream = first
	} else {
		m.stream = g.lane(m.stream)
	}
}

// lane returns the stream on which work for s is recorded.
func (g *Graph) lane(s device.Stream) device.Stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.has(s) || !g.live.Load() {
		return s
	}
	l := g.lanes[s]
	if l == nil {
		var err error
		if l, err = g.rec.Fork(s.Device()); err != nil {
			panic(deviceError("capture", err, nil))
		}
		g.lanes[s] = l
	}
	return l
}

// has reports whether s is one of the recorded streams. g.mu is held, or the capture is over.
func (g *Graph) has(s device.Stream) bool {
	for _, l := range g.lanes {
		if l == s {
			return true
		}
	}
	return slices.Contains(g.firsts, s)
}

// join makes the end of the recorded work come after that on all streams: nobody has to do so by
// hand.
func (g *Graph) join() error {
	all := slices.Clone(g.firsts[1:])
	for _, l := range g.lanes {
		all = append(all, l)
	}
	for _, l := range all {
		e, err := l.Record()
		if err == nil {
			err = g.stream.Wait(e)
		}
		if err != nil {
			return deviceError("capture", err, nil)
		}
	}
	return nil
}
