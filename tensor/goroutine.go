package tensor

import (
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/internal/callsite"
)

// Modes belong to scopes. An op whose operands are all older runs in their scope, so it does not
// see the modes of the scope that the program meant. To notice such ops, a value is kept for the
// goroutine that calls them, from keep to end. The value may refuse the ops, report them, or
// provide the random numbers of the first run. It changes nothing else about the results. Only this
// file of the package knows goroutines.
var (
	vigils   goroutines[*vigil] // each watches a scope that sets NoGrad or Autocast
	tapes    goroutines[*tape]  // tapes of checkpointed segments that are being computed
	captures goroutines[*Graph] // graphs that are being recorded
)

// goroutines keeps values for goroutines. While no value is kept, a look-up costs one atomic load.
type goroutines[T any] struct {
	n  atomic.Int64
	by [64]bucket[T]
}

type bucket[T any] struct {
	sync.Mutex
	first *kept[T]
}

// kept links a value to a goroutine. The field named of holds the value, and the value itself
// contains the kept.
type kept[T any] struct {
	of T
	in *goroutines[T]
	g  uintptr // address of the goroutine, unique among living goroutines
	// number of the goroutine, unique for all time; 0 if the goroutine itself calls end
	number     uint64
	prev, next *kept[T]
	gone       bool
}

func (l *goroutines[T]) bucket(g uintptr) *bucket[T] {
	return &l.by[int(uint64(g)*0x9E3779B97F4A7C15>>58)]
}

// none reports whether there is no value for any goroutine.
func (l *goroutines[T]) none() bool { return l.n.Load() == 0 }

// keep keeps a value for the calling goroutine until k.end. If the flag loose is set, k.end may be
// called after the goroutine is gone. A look-up must then call k.here.
func (l *goroutines[T]) keep(k *kept[T], of T, loose bool) {
	*k = kept[T]{of: of, in: l, g: callsite.G()}
	if loose {
		// when end is called, another goroutine may have the address
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

// end stops keeping the value. Any goroutine may call it. A second call has no effect.
func (k *kept[T]) end() {
	b := k.in.bucket(k.g)
	b.Lock()
	defer b.Unlock()
	if k.gone {
		return
	}
	k.gone = true
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		b.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	}
	k.in.n.Add(-1)
}

// here reports whether a value was kept for the calling goroutine, and not for an earlier one with
// the same address. It takes a microsecond for values that were kept with loose.
func (k *kept[T]) here() bool { return k.number == 0 || k.number == callsite.Goroutine() }

// each calls f with each value kept for the calling goroutine, the youngest first, until f returns
// false. f must not call keep or end.
func (l *goroutines[T]) each(f func(of T) bool) {
	if l.none() {
		return
	}
	g := callsite.G()
	b := l.bucket(g)
	b.Lock()
	defer b.Unlock()
	for k := b.first; k != nil; k = k.next {
		if k.g == g && !f(k.of) {
			return
		}
	}
}
