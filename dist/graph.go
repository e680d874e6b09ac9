package dist

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/tensor"
)

// Graph is a captured step of all ranks: see [Group.Capture]. Each rank has its own Graph value,
// which only that rank may use.
type Graph struct {
	g      *Group
	shared *sharedGraph
	closed bool
}

type sharedGraph struct {
	graph *tensor.Graph
	left  atomic.Int32 // number of ranks that have not closed the graph
	once  sync.Once
}

// Replay queues the recorded step of all ranks as one launch, and returns when it is queued. All
// ranks call Replay, and the last call launches. If the device or a hook fails, every rank gets the
// error that [tensor.Graph.Replay] returns. After an error nothing is queued, unless the error says
// otherwise.
func (x *Graph) Replay() error {
	type ask struct {
		of     *sharedGraph
		rank   int
		closed bool
	}
	var all []any
	err := tensor.Try(func() {
		all = x.g.exchange("replay", ask{x.shared, x.g.rank, x.closed}, func(values []any) (any, error) {
			for r, v := range values {
				a, there := v.(ask)
				switch {
				case !there:
					return nil, fmt.Errorf("%w: rank %d has no more data (Join), and its work is in the graph", ErrLeft, r)
				case a.of != x.shared:
					return nil, fmt.Errorf("%w: rank %d replays another graph", ErrMismatch, r)
				case a.closed:
					return tensor.NewError("replay", tensor.ErrFreed, fmt.Sprintf("rank %d has closed the graph", r)), nil
				}
			}
			return x.shared.graph.Replay(), nil
		})
	})
	if err != nil {
		return err
	}
	err, _ = all[x.g.rank].(error)
	return err
}

// Operations returns how many kernels, copies and fills a replay runs on all devices.
func (x *Graph) Operations() int { return x.shared.graph.Operations() }

// String describes the graph: what is recorded, and on which ranks.
func (x *Graph) String() string {
	return fmt.Sprintf("Graph(%d operations of %d ranks)", x.Operations(), x.g.World())
}

// Close releases the graph on this rank, without waiting for other ranks. The last rank's Close
// waits for the graph's replays and frees its memory. It returns the errors of replays that no
// other call has returned yet. The end of the [Run] closes graphs that are still open.
func (x *Graph) Close() error {
	if x.closed {
		return nil
	}
	x.closed = true
	if x.shared.left.Add(-1) > 0 {
		return nil
	}
	return x.shared.close()
}

func (s *sharedGraph) close() error {
	err := error(nil)
	s.once.Do(func() { err = s.graph.Close() })
	return err
}

// closeGraphs closes the graphs that the ranks have captured.
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

// CaptureError says why [Group.Capture] made no graph. It is the same on all ranks.
type CaptureError struct {
	Rank   int // rank number, in the run, of the rank that failed; -1 if no single rank failed
	Device string
	Err    error
}

func (e *CaptureError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("dist: nothing was captured: %v", e.Err)
	}
	return fmt.Sprintf("dist: nothing was captured: rank %d, on %s, failed in it: %v", e.Rank, e.Device, e.Err)
}

// Unwrap returns the rank's error.
func (e *CaptureError) Unwrap() error { return e.Err }

// Raised marks the error as one that tensor.Try returns when a function panics with it.
func (e *CaptureError) Raised() {}
