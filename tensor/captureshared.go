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

// A sharedLock guards memory that several graphs use and at least one of them writes.
type sharedLock struct {
	number uint64
	mu     sync.RWMutex
}

type lockUse struct {
	lock  *sharedLock
	write bool
}

// A sharer represents a graph among the graphs with which it shares memory. It has no pointer to
// the graph, so that the garbage collector can find a dropped graph.
type sharer struct {
	mu    sync.Mutex // locked while a replay is being queued
	locks []lockUse  // in the locking order of all graphs: sorted by number
	uses  []*storage
}

// sharing lists the finished graphs that use each storage. Lock it before the lock of a sharer.
var sharing struct {
	sync.Mutex
	byStorage map[*storage]*common
	count     uint64
}

// common lists the graphs that use one storage. The bool is true for graphs that write it.
type common struct {
	graphs map[*sharer]bool
	lock   *sharedLock // the lock; nil if no graph writes, or if there is only one graph
}

// share makes g take turns with other graphs that use its memory. While a replay of one of these
// graphs is being queued, share waits.
func (g *Graph) share() *sharer {
	own := &sharer{}
	sharing.Lock()
	defer sharing.Unlock()
	if sharing.byStorage == nil {
		sharing.byStorage = map[*storage]*common{}
	}
	add := func(st *storage, write bool) {
		u := sharing.byStorage[st]
		if u == nil {
			u = &common{graphs: map[*sharer]bool{}}
			sharing.byStorage[st] = u
		}
		own.uses = append(own.uses, st)
		u.graphs[own] = write
		if u.lock != nil {
			own.pass(lockUse{u.lock, write})
			return
		}
		written := false
		for _, w := range u.graphs {
			written = written || w
		}
		if len(u.graphs) < 2 || !written {
			return
		}
		sharing.count++
		u.lock = &sharedLock{number: sharing.count}
		for o, w := range u.graphs {
			o.pass(lockUse{u.lock, w})
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

func (o *sharer) pass(p lockUse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, _ := slices.BinarySearchFunc(o.locks, p, func(a, b lockUse) int { return cmp.Compare(a.lock.number, b.lock.number) })
	o.locks = slices.Insert(o.locks, at, p)
}

// leave removes the graph from the lists in the variable sharing.
func (o *sharer) leave() {
	sharing.Lock()
	defer sharing.Unlock()
	for _, st := range o.uses {
		if u := sharing.byStorage[st]; u != nil {
			if delete(u.graphs, o); len(u.graphs) == 0 {
				delete(sharing.byStorage, st)
			}
		}
	}
	o.uses = nil
}

// turn waits while a graph that shares written memory with this graph is being queued. The caller
// must call the returned function when its own replay is queued.
func (o *sharer) turn() (done func()) {
	o.mu.Lock()
	for _, p := range o.locks {
		if p.write {
			p.lock.mu.Lock()
		} else {
			p.lock.mu.RLock()
		}
	}
	return func() {
		for _, p := range o.locks {
			if p.write {
				p.lock.mu.Unlock()
			} else {
				p.lock.mu.RUnlock()
			}
		}
		o.mu.Unlock()
	}
}
