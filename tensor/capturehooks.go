package tensor

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/dtype"
)

// These functions are for library code that is captured and keeps counts on the host, such as an
// optimizer.

// Feed returns a tensor of n elements of type t in the graph's scope. Each replay fills it from the
// host when the replay is queued: fill writes the bytes, in the host's byte order. The fill
// functions are called in the order of the calls of Feed. fill must not use the graph's device.
// Feed may be called only while the graph is captured.
func (g *Graph) Feed(t dtype.Type, n int, fill func(to []byte)) *Tensor {
	return g.FeedOn(g.dev, t, n, fill)
}

// Check makes every replay call f first. If f returns an error or panics, Replay returns that error
// and queues nothing.
func (g *Graph) Check(f func() error) {
	g.mu.Lock()
	g.checks = append(g.checks, f)
	g.mu.Unlock()
}

// Adopt says that replays must not make these tensors again. They were made during the capture, but
// outside of its scope, and the work that made them has run. An optimizer's state is an example:
// the optimizer creates it once.
func (g *Graph) Adopt(x ...*Tensor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range x {
		if t != nil {
			g.adopted[t.st] = true
		}
	}
}

// Then makes every replay call f after the work is queued, before Replay returns. f may start to
// copy a number of the graph to the host with [Tensor.ItemLater]. If f panics with an error that
// [Try] returns, Replay returns the first such error. The work is queued nevertheless, and all
// other functions that were passed to Then are called. f must not use the graph.
func (g *Graph) Then(f func()) {
	g.mu.Lock()
	g.then = append(g.then, f)
	g.mu.Unlock()
}

// Ended calls f when the capture is over. Before the graph is made it calls f(true); an error from
// f makes the capture fail. If there will be no graph it calls f(false), possibly after f(true). f
// must then undo what the host has counted for the recorded work, which will never run.
func (g *Graph) Ended(f func(ok bool) error) {
	g.mu.Lock()
	g.ended = append(g.ended, f)
	g.mu.Unlock()
}

// An Exclusive marks graphs that must not be replayed at the same time: see [Graph.Exclude]. The
// zero value is ready for use.
type Exclusive struct {
	mu sync.Mutex
	id atomic.Uint64
}

var exclusives atomic.Uint64

// Exclude makes g take turns with all other graphs for which Exclude was called with the same x.
// Only one of them at a time runs its replay, from the first [Graph.Check] until all its work is
// queued. That work runs before the work of the next graph.
func (g *Graph) Exclude(x *Exclusive) {
	x.id.CompareAndSwap(0, exclusives.Add(1))
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.turns, x) {
		g.turns = append(g.turns, x)
		// all graphs lock in the same order, which prevents deadlock
		slices.SortFunc(g.turns, func(a, b *Exclusive) int { return cmp.Compare(a.id.Load(), b.id.Load()) })
	}
}
