package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// A capture records work on several streams. Each stream that a scope of the capture chooses is
// replaced by one of the recording's own streams. Other work on the chosen stream runs as usual,
// and several captures may use the stream at the same time. The order between the recording's
// streams follows from the reads and writes of each tensor's memory, as between streams outside of
// a capture.

// route replaces the stream in m, the modes of a new scope, by a recorded stream.
func (g *Graph) route(m *modes) {
	first := g.firstStream(m.dev)
	if first == nil {
		return // the device is not recorded: the first work on it will be refused
	}
	// The scope chose no stream, or it chose a stream of another device. Outside of a capture such
	// a scope uses the device's default stream.
	if m.stream == nil || m.stream.Device() != m.dev {
		m.stream = first
	} else {
		m.stream = g.lane(m.stream)
	}
}

// lane returns the recorded stream that replaces stream s in the capture.
func (g *Graph) lane(s device.Stream) device.Stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isRecorded(s) || !g.live.Load() {
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

// isRecorded reports whether s is one of the recorded streams. The caller holds g.mu, or the
// capture has ended.
func (g *Graph) isRecorded(s device.Stream) bool {
	for _, l := range g.lanes {
		if l == s {
			return true
		}
	}
	return slices.Contains(g.firsts, s)
}

// joinStreams makes the graph's first stream wait for all other recorded streams, so that the
// captured function need not wait for them.
func (g *Graph) joinStreams() error {
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
