package tensor

import (
	"runtime"
	"sync"
)

// A ledger lists the storages of a scope, in case the scope is dropped without being closed. It has
// no pointer to a Tensor. The garbage collector's cleanup calls storage.queue once the scope and
// all its handles are unreachable. But a storage may have handles in scopes that are not
// descendants of this scope, such as views that were kept and tensors that were given away. Such a
// shared storage gets a cleanup of its own, which needs another garbage collection.
type ledger struct {
	mu    sync.Mutex
	st    []*storage
	armed bool // true if the scope has a cleanup, which it got with its first pooled storage
}

func (l *ledger) queue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, st := range l.st {
		if st.shared.Load() {
			st.watch()
		} else {
			st.queue()
		}
	}
	l.st = nil
}

func (l *ledger) clear() []*storage {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.st
	for _, st := range list {
		st.ledger.CompareAndSwap(l, nil)
	}
	l.st = nil
	return list
}

// note makes the garbage collector return the storage's memory to the pool, if nobody frees the
// storage or closes the scope.
func (s *Scope) note(st *storage) {
	switch {
	case s == root:
		st.watch()
		return
	case s.ledger == nil || st.plain() || st.watched.Load():
		return
	}
	l := s.ledger
	if !st.ledger.CompareAndSwap(nil, l) && st.ledger.Load() != l {
		st.shared.Store(true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.armed {
		l.armed = true
		runtime.AddCleanup(s, (*ledger).queue, l)
	}
	if len(l.st) == cap(l.st) && len(l.st) >= 256 {
		live := l.st[:0]
		for _, st := range l.st {
			if !st.freed.Load() {
				live = append(live, st)
			}
		}
		clear(l.st[len(live):])
		l.st = live
	}
	l.st = append(l.st, st)
}
