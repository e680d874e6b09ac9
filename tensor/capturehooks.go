package tensor

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/dtype"
)

// What a library function that keeps count on the host, such as an optimizer, does in a capture.

// Feed returns a tensor of n elements of t in the graph's scope that each replay fills from the
// host when it is queued. fill gets the bytes, in the host's byte order. The fills are called in
// the order of the calls of Feed. fill must not touch the graph's device. Feed may be called only
// while the graph is captured.
func (g *Graph) Feed(t dtype.Type, n int, fill func(to []byte)) *Tensor {
	return g.FeedOn(g.dev, t, n, fill)
}

// Check makes every replay call f first. If f returns an error or panics, that is the replay's
// error, and nothing is queued.
func (g *Graph) Check(f func() error) {
	g.mu.Lock()
	g.checks = append(g.checks, f)
	g.mu.Unlock()
}

// Adopt says that tensors which were made during the capture, outside of its scope, are not to be
// made again by replays: the state of an optimizer, which begins once. What made them has run.
func (g *Graph) Adopt(x ...*Tensor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range x {
		if t != nil {
			g.adopted[t.st] = true
		}
	}
}

// Then makes every replay call f when it is queued, before Replay returns. It is for bringing a
// number of the graph's to the host by [Tensor.ItemLater]. If f panics, that is the replay's error;
// the work is queued, and the other functions are called. f must not use the graph.
func (g *Graph) Then(f func()) {
	g.mu.Lock()
	g.then = append(g.then, f)
	g.mu.Unlock()
}

// Ended calls f when the capture is over. It calls f(true) before the graph is made; an error of f
// prevents that. It calls f(false), after that or instead, where there will be no graph, so that f
// puts back what the host has noted of work that is never done.
func (g *Graph) Ended(f func(ok bool) error) {
	g.mu.Lock()
	g.ended = append(g.ended, f)
	g.mu.Unlock()
}

// An Exclusive is what graphs share that must not be replayed at the same time: see
// [Graph.Exclude]. The zero value is ready for use.
type Exclusive struct {
	mu sync.Mutex
	id atomic.Uint64
}

var exclusives atomic.Uint64

// Exclude makes the replays of g, and of all other graphs with the same x, take turns. From the
// first [Graph.Check] until all is queued there is one of them, and what it queues comes before
// what the next one does.
func (g *Graph) Exclude(x *Exclusive) {
	x.id.CompareAndSwap(0, exclusives.Add(1))
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.turns, x) {
		g.turns = append(g.turns, x)
		// one order for all: no deadlock
		slices.SortFunc(g.turns, func(a, b *Exclusive) int { return cmp.Compare(a.id.Load(), b.id.Load()) })
	}
}
