package tensor

import (
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/internal/callsite"
)

// Modes belong to scopes. An op whose operands are all older than a scope runs in the operands'
// scope, without the modes of the younger scope. The package notices such ops by the goroutine that
// calls them. A call of bind binds a value to a goroutine, and a call of end unbinds it. A bound
// value may refuse the ops or report them. When a checkpointed segment is computed again, a bound
// tape gives the ops the random numbers of the first computation. Bound values do not change
// results in any other way. Only this file of the package finds out which goroutine is running.
var (
	modeWatches goroutines[*modeWatch] // each watches a scope that sets NoGrad or Autocast
	tapes       goroutines[*tape]      // tapes of checkpointed segments that are being computed
	captures    goroutines[*Graph]     // graphs that are being recorded
)

// goroutines binds values to goroutines. While no value is bound, asking for the values of a
// goroutine costs one atomic load.
type goroutines[T any] struct {
	n       atomic.Int64
	buckets [64]bucket[T]
}

type bucket[T any] struct {
	sync.Mutex
	first *binding[T]
}

// A binding links a value to a goroutine. The value itself contains its binding.
type binding[T any] struct {
	value T
	list  *goroutines[T]
	g     uintptr // address of the goroutine, unique among living goroutines
	// number of the goroutine, unique for all time; 0 if the goroutine itself calls end
	number     uint64
	prev, next *binding[T]
	ended      bool
}

func (l *goroutines[T]) bucket(g uintptr) *bucket[T] {
	return &l.buckets[int(uint64(g)*0x9E3779B97F4A7C15>>58)]
}

func (l *goroutines[T]) empty() bool { return l.n.Load() == 0 }

// bind binds a value to the calling goroutine until k.end is called. If loose is true, k.end may be
// called after the goroutine has ended. Code that finds the value must then call k.onThisGoroutine.
func (l *goroutines[T]) bind(k *binding[T], value T, loose bool) {
	*k = binding[T]{value: value, list: l, g: callsite.G()}
	if loose {
		// By the time end is called, another goroutine may have the address k.g.
		k.number = callsite.Goroutine()
	}
	b := l.bucket(k.g)
	b.Lock()
	defer b.Unlock()
	if k.next = b.first; k.next != nil {
		k.next.prev = k
	}
	b.first = k
	l.n.Add(1)
}

// end unbinds the value. Any goroutine may call it. A second call has no effect.
func (k *binding[T]) end() {
	b := k.list.bucket(k.g)
	b.Lock()
	defer b.Unlock()
	if k.ended {
		return
	}
	k.ended = true
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		b.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	}
	k.list.n.Add(-1)
}

// onThisGoroutine reports whether the value is bound to the calling goroutine, and not to an
// earlier goroutine with the same address. It takes a microsecond if the value was bound with loose
// set to true.
func (k *binding[T]) onThisGoroutine() bool { return k.number == 0 || k.number == callsite.Goroutine() }

// forEach calls f with each value bound to the calling goroutine, the youngest first, until f
// returns false. f must not call bind or end.
func (l *goroutines[T]) forEach(f func(value T) bool) {
	if l.empty() {
		return
	}
	g := callsite.G()
	b := l.bucket(g)
	b.Lock()
	defer b.Unlock()
	for k := b.first; k != nil; k = k.next {
		if k.g == g && !f(k.value) {
			return
		}
	}
}
