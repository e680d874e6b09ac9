package tensor

import (
	"cmp"
	"slices"
	"sync"
)

// Graphs that use the same memory must not be queued at the same time if one of them writes it.
// Each graph would wait for work that the other graph has queued already, but not for work that the
// other graph is about to queue. So they take turns. Graphs that only read do not wait for each
// other, and a graph that shares no memory pays nothing.

// A crossing is a lock for memory that several graphs use and at least one of them writes.
type crossing struct {
	number uint64
	mu     sync.RWMutex
}

// A passage says how a graph uses a crossing.
type passage struct {
	at    *crossing
	write bool
}

// A sharer represents a graph among the graphs with which it shares memory. It has no pointer to
// the graph, so that the garbage collector can find a dropped graph.
type sharer struct {
	mu       sync.Mutex // locked while a replay is being queued
	passages []passage  // in the locking order of all graphs: sorted by number
	uses     []*storage
}

// sharing lists the finished graphs that use each storage. Lock it before a sharer.
var sharing struct {
	sync.Mutex
	of   map[*storage]*common
	made uint64
}

// common lists the graphs that use one storage. The bool is true for graphs that write it.
type common struct {
	by map[*sharer]bool
	at *crossing // the lock; nil if no graph writes, or if there is only one graph
}

// share makes g take turns with other graphs that use its memory. It waits for a replay of these
// graphs that is being queued.
func (g *Graph) share() *sharer {
	own := &sharer{}
	sharing.Lock()
	defer sharing.Unlock()
	if sharing.of == nil {
		sharing.of = map[*storage]*common{}
	}
	add := func(st *storage, write bool) {
		u := sharing.of[st]
		if u == nil {
			u = &common{by: map[*sharer]bool{}}
			sharing.of[st] = u
		}
		own.uses = append(own.uses, st)
		u.by[own] = write
		if u.at != nil {
			own.pass(passage{u.at, write})
			return
		}
		written := false
		for _, w := range u.by {
			written = written || w
		}
		if len(u.by) < 2 || !written {
			return
		}
		sharing.made++
		u.at = &crossing{number: sharing.made}
		for o, w := range u.by {
			o.pass(passage{u.at, w})
		}
	}
	for st, write := range g.outside {
		add(st, write)
	}
	for _, st := range g.own {
		add(st, true)
	}
	return own
}

func (o *sharer) pass(p passage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, _ := slices.BinarySearchFunc(o.passages, p, func(a, b passage) int { return cmp.Compare(a.at.number, b.at.number) })
	o.passages = slices.Insert(o.passages, at, p)
}

// leave removes the graph from the lists of sharing.
func (o *sharer) leave() {
	sharing.Lock()
	defer sharing.Unlock()
	for _, st := range o.uses {
		if u := sharing.of[st]; u != nil {
			if delete(u.by, o); len(u.by) == 0 {
				delete(sharing.of, st)
			}
		}
	}
	o.uses = nil
}

// turn waits while a graph that must not be queued together with this one is being queued. The
// caller must call the returned function when its own replay is queued.
func (o *sharer) turn() (done func()) {
	o.mu.Lock()
	for _, p := range o.passages {
		if p.write {
			p.at.mu.Lock()
		} else {
			p.at.mu.RLock()
		}
	}
	return func() {
		for _, p := range o.passages {
			if p.write {
				p.at.mu.Unlock()
			} else {
				p.at.mu.RUnlock()
			}
		}
		o.mu.Unlock()
	}
}
