package profile

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// asks calls callerStack in the same way as the tracer's methods do.
//
//go:noinline
func asks(s *stacks) *stack { return s.callerStack() }

// A walker calls itself, so that its stack grows. Some calls are inlined or deferred, some go
// through an interface or a method value, and some occur during a panic. In each call it compares
// the stack that callerStack returns with the runtime's.
type walker struct {
	s     stacks
	rng   *rand.Rand
	wrong string
}

type caller interface{ walk(depth int) }

func (w *walker) walk(depth int) {
	if depth <= 0 {
		w.compare()
		return
	}
	switch w.rng.IntN(6) {
	case 0:
		w.inlined(depth - 1)
	case 1:
		caller(w).walk(depth - 1)
	case 2:
		func() { defer w.walk(depth - 1) }()
	case 3:
		f := w.walk
		f(depth - 1)
	case 4:
		w.large(depth - 1)
	default: // in a deferred function during a panic
		defer func() {
			if recover() != nil {
				w.walk(depth - 1)
			}
		}()
		panic("as asked for")
	}
}

func (w *walker) inlined(depth int) { w.walk(depth) }

// large makes the stack grow.
//
//go:noinline
func (w *walker) large(depth int) {
	var room [3000]byte
	room[w.rng.IntN(len(room))] = 1
	w.walk(depth)
	runtime.KeepAlive(&room)
}

func (w *walker) compare() {
	var pc [mostFrames]uintptr
	known, n := asks(&w.s), runtime.Callers(1, pc[:])
	got, want := names(known.pcs), names(pc[:n])
	if !slices.Equal(got, want) {
		w.wrong = fmt.Sprintf("%q, want %q", got, want)
	}
}

func names(pcs []uintptr) (list []string) {
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		list = append(list, fmt.Sprintf("%s:%d", f.Function, f.Line))
		if !more {
			return list
		}
	}
}

// TestStacksOfWalks compares the stacks that are found by return addresses with the runtime's. At
// the same time goroutines grow their stacks, and the garbage collector shrinks them.
func TestStacksOfWalks(t *testing.T) {
	rounds := 1500
	if testing.Short() {
		rounds = 200
	}
	var all sync.WaitGroup
	stop := make(chan struct{})
	walkers := make([]*walker, 4)
	for i := range walkers {
		w := &walker{rng: rand.New(rand.NewPCG(7, uint64(i)))}
		walkers[i] = w
		all.Go(func() {
			for range rounds {
				w.walk(w.rng.IntN(90))
				if w.wrong != "" {
					return
				}
			}
		})
	}
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	all.Wait()
	close(stop)
	<-collected
	for _, w := range walkers {
		if w.wrong != "" {
			t.Fatal(w.wrong)
		}
	}
}

// TestStacksOfRecursions looks up pairs of stacks that differ only in one outer call. Inside of
// that call are up to 80 calls of a recursive function. The two stacks must be distinguished.
func TestStacksOfRecursions(t *testing.T) {
	w := &walker{}
	for depth := range 80 {
		w.left(depth)
		w.right(depth)
		if w.wrong != "" {
			t.Fatalf("%d deep: %s", depth, w.wrong)
		}
	}
}

//go:noinline
func (w *walker) left(depth int) { w.down(depth) }

//go:noinline
func (w *walker) right(depth int) { w.down(depth) }

func (w *walker) down(depth int) {
	if depth == 0 {
		w.compare()
		return
	}
	w.down(depth - 1)
}
