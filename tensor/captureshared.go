package tensor

import (
	"cmp"
	"slices"
	"sync"
)

// Graphs that use the same memory, which one of them writes, must not be queued at the same time.
// Each would wait for what the other has queued so far, and not for what it is about to queue. They
// take turns. Those that only read go on at once, and a graph that shares nothing pays nothing.

// A crossing is memory that several graphs use, and one of them writes.
type crossing struct {
	number uint64
	mu     sync.RWMutex
}

// A passage is how a graph uses a crossing.
type passage struct {
	at    *crossing
	write bool
}

// A sharer is a graph among those that it shares memory with. It points to no graph, so that one
// that is dropped becomes garbage.
type sharer struct {
	mu       sync.Mutex // held while a replay is being queued
	passages []passage  // in the one order for all
	uses     []*storage
}

// sharing knows the finished graphs that use a storage. Its lock is taken before a sharer's.
var sharing struct {
	sync.Mutex
	of   map[*storage]*common
	made uint64
}

// common is a storage that finished graphs use; with true they write it.
type common struct {
	by map[*sharer]bool
	at *crossing // nil: nobody writes, or there is one graph
}

// share makes g take turns with the graphs that use its memory. A replay of one of these that is
// being queued is waited for.
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

// leave ends it.
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

// turn waits until no other graph is being queued that this one must not be queued with, and
// returns what ends that.
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
