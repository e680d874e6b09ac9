package dist

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Graph is a step of all ranks, seen by one of them: what [Group.Capture] makes. It belongs to
// its rank, as the group does.
type Graph struct {
	g      *Group
	of     *sharedGraph
	closed bool
}

// A sharedGraph is a graph as all ranks share it.
type sharedGraph struct {
	graph *tensor.Graph
	left  atomic.Int32 // ranks that have not closed it
	once  sync.Once
}

// Replay queues the recorded step of all ranks, as one launch, and returns when it is queued. All
// ranks call it, and the last one to come launches. An error of the device, or of a hook, is every
// rank's, and that of [tensor.Graph.Replay]; nothing is queued then, unless it says so.
func (x *Graph) Replay() error {
	type ask struct {
		of     *sharedGraph
		rank   int
		closed bool
	}
	var all []any
	err := tensor.Try(func() {
		all = x.g.exchange("replay", ask{x.of, x.g.rank, x.closed}, func(values []any) (any, error) {
			for r, v := range values {
				a, there := v.(ask)
				switch {
				case !there:
					return nil, fmt.Errorf("%w: rank %d has no more data (Join), and its work is in the graph", ErrLeft, r)
				case a.of != x.of:
					return nil, fmt.Errorf("%w: rank %d replays another graph", ErrMismatch, r)
				case a.closed:
					return tensor.NewError("replay", tensor.ErrFreed, fmt.Sprintf("rank %d has closed the graph", r)), nil
				}
			}
			return x.of.graph.Replay(), nil
		})
	})
	if err != nil {
		return err
	}
	err, _ = all[x.g.rank].(error)
	return err
}

// Operations is the number of kernels, copies and fills that a replay runs on all devices.
func (x *Graph) Operations() int { return x.of.graph.Operations() }

// String tells how much is recorded, and of whom.
func (x *Graph) String() string {
	return fmt.Sprintf("Graph(%d operations of %d ranks)", x.Operations(), x.g.World())
}

// Close gives up this rank's part, and waits for nobody. When the last rank has done so the graph
// waits for its replays, and gives its memory back. What went wrong in them and was not told yet
// comes out of that call. The end of the [Run] closes what is still open.
func (x *Graph) Close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	if x.of.left.Add(-1) > 0 {
		return nil
	}
	return x.of.close()
}

func (s *sharedGraph) close() error {
	err := error(nil)
	s.once.Do(func() { err = s.graph.Close() })
	return err
}

// closeGraphs closes what the ranks have captured.
func (w *world) closeGraphs() error {
	w.mu.Lock()
	list := w.graphs
	w.graphs = nil
	w.mu.Unlock()
	var all []error
	for _, s := range list {
		all = append(all, s.close())
	}
	return errors.Join(all...)
}

// A CaptureError is why [Group.Capture] has made no graph, the same on all ranks.
type CaptureError struct {
	Rank   int // of the run, that failed; -1: none by itself
	Device string
	Err    error
}

func (e *CaptureError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("dist: nothing was captured: %v", e.Err)
	}
	return fmt.Sprintf("dist: nothing was captured: rank %d, on %s, failed in it: %v", e.Rank, e.Device, e.Err)
}

// Unwrap returns what the rank failed with.
func (e *CaptureError) Unwrap() error { return e.Err }

// Raised makes the error one that tensor.Try returns: see device.Raised.
func (e *CaptureError) Raised() {}
