package amp

import (
	"encoding/binary"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// captured records in st whether the gradients of opt are being captured. If they are, the whole
// iteration must be in the same capture.
func (g *GradScaler) captured(op string, opt Optimizer, st *optimizerState) {
	st.graph = tensor.CapturingGrads(opt.Params()...)
	for _, o := range g.optimizers {
		if o.graph != st.graph {
			misuse(op, "of the optimizers since the last update some have gradients that are being captured, and others do not", "call Update before the capture, and after each replay")
		}
	}
	if st.graph == nil || len(g.optimizers) > 0 {
		return
	}
	st.graph.Exclude(&g.turn)
	st.graph.Ended(func(ok bool) error {
		if len(g.optimizers) == 0 {
			return nil
		}
		// The states hold tensors of the capture, so they cannot be used after it.
		g.optimizers = map[Optimizer]*optimizerState{}
		if !ok {
			return nil
		}
		e := tensor.NewError(op, tensor.ErrCapture, "the capture ends without an Update of the scaler, which belongs to the step")
		e.Hint = "call Update in the capture, after the steps"
		return e
	})
}

// recording returns the graph that captures the iteration, or nil outside of captures.
func (g *GradScaler) recording() *tensor.Graph {
	for _, st := range g.optimizers {
		return st.graph
	}
	return nil
}

// settingsOn returns the settings on device d, as the Params of the program that updates the scale.
// A replay uses the settings that are in force when the host queues it.
func (g *GradScaler) settingsOn(graph *tensor.Graph, d device.Device) *tensor.Tensor {
	values := func() []int64 {
		return []int64{bits(dtype.F64, g.growth), bits(dtype.F64, g.backoff), int64(g.interval), bits(dtype.F32, g.floor)}
	}
	if graph != nil {
		return graph.FeedOn(d, dtype.I64, len(values()), func(to []byte) {
			for i, v := range values() {
				binary.NativeEndian.PutUint64(to[8*i:], uint64(v))
			}
		})
	}
	if g.slots == nil {
		g.slots = tensor.Root().On(d).From(values())
	}
	return g.slots
}

// learn requests a report from the device that says whether the step was skipped. In a capture,
// each replay makes such a report. Reports arrive later.
func (g *GradScaler) learn(graph *tensor.Graph, all *tensor.Tensor) {
	if graph == nil {
		g.watch.add(&g.settings, all.ItemLater())
		return
	}
	told := graph.Scope().On(all.Device()).Typed(all.Type()).Empty(1).Copy(all.Detach().Reshape(1))
	// This check runs before a replay is queued. It processes the reports of earlier replays, so
	// their warnings do not come while the new replay is being queued.
	graph.Check(func() error { return tensor.Try(func() { g.watch.catchUp(&g.settings, late) }) })
	graph.Then(func() { g.watch.coming = append(g.watch.coming, told.ItemLater()) })
}
