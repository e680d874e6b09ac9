package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Across makes [Capture] record work on these devices too, in addition to the graph's device. A
// step on several GPUs is then one graph with one launch. All devices must belong to one driver,
// and the graph's device may be in the list too. The recording has its own streams on each device.
// It records copies between the devices ([Tensor.To]), in the order that they have in eager runs.
// [Graph.Replay] runs after work that was queued before on any of these devices, and before work
// that is queued later. Across is an option of Capture only: a scope refuses it. So far it has run
// on emulated GPUs only.
func Across(devs ...device.Device) Option {
	list := slices.Clone(devs)
	if list == nil {
		list = []device.Device{}
	}
	return func(m *modes) { m.across = list }
}

// otherDevices returns the devices that Across names in opts, without dev.
func otherDevices(dev device.Device, opts []Option) ([]device.Device, error) {
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

// firstStream returns the stream that records work on dev if a scope chooses no stream. It is nil
// if work on dev is not recorded.
func (g *Graph) firstStream(dev device.Device) device.Stream {
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

// streamOf returns the stream on dev that orders replays with other work. Replays run after the
// work that was queued on this stream before them. Later work on this stream waits for the replays.
func (g *Graph) streamOf(dev device.Device) device.Stream {
	for _, s := range g.firsts {
		if s.Device() == dev {
			return s
		}
	}
	return g.stream // dev has no recorded stream, for example the host
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
	st := &storage{dev: dev, buf: buf, home: stream, writer: stream, placed: true}
	x := &Tensor{st: st, layout: shape.Dense(shape.Of(n)), dtype: t, op: op}
	x.self = x
	st.refs.Store(1)
	g.scope.addOwned(x, true)
	g.mu.Lock()
	g.feeds = append(g.feeds, fill)
	g.own = append(g.own, st)
	g.mu.Unlock()
	return x
}
