package tensor

import (
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/internal/callsite"
)

// State travels with scopes. What is done on older tensors alone belongs to their scope, and passes
// by the one that was meant. This file is the one place of the package that knows goroutines. What
// must hear of such work is kept for the goroutine that does it, from a begin to an end. It may
// refuse the work, tell of it, or give it the random numbers that it got the first time. It changes
// nothing else of what is computed.
var (
	vigils   goroutines[*vigil] // over scopes that set NoGrad or Autocast
	tapes    goroutines[*tape]  // of checkpointed segments that are being computed
	captures goroutines[*Graph] // that record now
)

// goroutines keeps values for goroutines. While there are none, who asks pays one atomic load.
type goroutines[T any] struct {
	n  atomic.Int64
	by [64]bucket[T]
}

type bucket[T any] struct {
	sync.Mutex
	first *kept[T]
}

// kept is a value that is kept for a goroutine. It lies in the value itself.
type kept[T any] struct {
	of         T
	in         *goroutines[T]
	g          uintptr // tells goroutines that live at one time apart
	number     uint64  // tells it from all others; 0: it outlives its end
	prev, next *kept[T]
	gone       bool
}

func (l *goroutines[T]) bucket(g uintptr) *bucket[T] {
	return &l.by[int(uint64(g)*0x9E3779B97F4A7C15>>58)]
}

// none reports whether nothing is kept, for any goroutine.
func (l *goroutines[T]) none() bool { return l.n.Load() == 0 }

// keep keeps of for the calling goroutine, until k.end. With loose that may come after the
// goroutine is gone, and who finds it must ask k.here.
func (l *goroutines[T]) keep(k *kept[T], of T, loose bool) {
	*k = kept[T]{of: of, in: l, g: callsite.G()}
	if loose {
		k.number = callsite.Goroutine() // the address may be another goroutine's by then
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

// end ends it, on whatever goroutine. A second call has no effect.
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

// here reports whether what is kept loosely is kept for the calling goroutine, at whose address it
// was found. It takes a microsecond then.
func (k *kept[T]) here() bool { return k.number == 0 || k.number == callsite.Goroutine() }

// each calls f with what is kept for the calling goroutine, the youngest first, until f returns
// false. f must neither keep nor end anything.
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
