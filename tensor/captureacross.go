package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Across has [Capture] record work on these devices too, beside that on its own: a step of several
// GPUs is then one graph, launched once. They are devices of one driver, and the graph's own may be
// among them. Each has streams of the recording. Copies between the devices ([Tensor.To]) are
// recorded, and keep the order among them, as in eager runs. [Graph.Replay] comes after what was
// queued before on all of them, and what is queued later comes after it. It is for Capture only: a
// scope does not take it. So far it has run on emulated GPUs only.
func Across(devs ...device.Device) Option {
	list := slices.Clone(devs)
	if list == nil {
		list = []device.Device{}
	}
	return func(m *modes) { m.across = list }
}

// across returns the devices that options name besides dev.
func across(dev device.Device, opts []Option) ([]device.Device, error) {
	var m modes
	for _, o := range opts {
		o(&m)
	}
	var others []device.Device
	for _, d := range m.across {
		switch {
		case d == nil:
			return nil, newError("capture", ErrValue, nil, "a device of Across is nil")
		case d != dev && !slices.Contains(others, d):
			others = append(others, d)
		}
	}
	return others, nil
}

// first returns the stream on which work on dev is recorded where a scope chooses none; nil where
// it is not recorded.
func (g *Graph) first(dev device.Device) device.Stream {
	if g == nil || !g.live.Load() {
		return nil
	}
	for _, s := range g.firsts {
		if s.Device() == dev {
			return s
		}
	}
	return nil
}

// streamOf returns the stream that comes before and after replays on a device.
func (g *Graph) streamOf(dev device.Device) device.Stream {
	for _, s := range g.firsts {
		if s.Device() == dev {
			return s
		}
	}
	return g.stream // such as memory of the host that the work reads
}

// FeedOn is [Graph.Feed] for a tensor on one of the graph's devices.
func (g *Graph) FeedOn(dev device.Device, t dtype.Type, n int, fill func(to []byte)) *Tensor {
	const op = "feed"
	if !g.live.Load() {
		fail(op, ErrCapture, nil, "the capture is over")
	}
	if n < 1 || t.Size() == 0 || fill == nil {
		fail(op, ErrValue, nil, "%d elements of %v", n, t)
	}
	o := device.Origin{Op: op, Shape: shape.Of(n), Type: t, Where: g.scope.opened}
	buf, err := g.rec.Feed(dev, n*t.Size(), o)
	check(op, err)
	stream := g.streamOf(dev)
	st := &storage{dev: dev, buf: buf, home: stream, writer: stream}
	x := &Tensor{st: st, layout: shape.Dense(shape.Of(n)), dtype: t, op: op}
	x.self = x
	st.refs.Store(1)
	g.scope.own(x, true)
	g.mu.Lock()
	g.feeds = append(g.feeds, fill)
	g.own = append(g.own, st)
	g.mu.Unlock()
	return x
}
