package tensor_test

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestGraphsTakeTurns: graphs that write the same tensor are each of them whole when goroutines
// replay them at once.
func TestGraphsTakeTurns(t *testing.T) {
	rounds, seeds := 12, 6
	if testing.Short() {
		rounds, seeds = 4, 2
	}
	for seed := 1; seed <= seeds; seed++ {
		dev := gpu(t, seed)
		m := tensor.Root().On(dev)
		w, seen := m.Zeros(64), m.Zeros(64)
		add := func(by float64) *tensor.Graph { // w += by, by way of other memory
			return capture(t, dev, func(s *tensor.Scope) {
				v := w.In(s).MulScalar(0.5)
				half := s.Capture().Feed(dtype.F32, 1, func(to []byte) {
					time.Sleep(100 * time.Microsecond) // while the replay waits for what was queued and is not queued itself
					binary.NativeEndian.PutUint32(to, math.Float32bits(float32(by)/2))
				})
				w.In(s).Copy(v.Add(half).MulScalar(2))
			}, tensor.NoGrad())
		}
		graphs := []*tensor.Graph{add(1), add(2), add(4)}
		// One that reads: between two readings of it nobody writes.
		graphs = append(graphs, capture(t, dev, func(s *tensor.Scope) {
			first := w.In(s).AddScalar(0)
			seen.In(s).AddInPlace(first.Tanh().Exp().Mul(first).Sub(w.In(s).Tanh().Exp().Mul(w)))
		}, tensor.NoGrad()))
		var wg sync.WaitGroup
		for _, g := range graphs {
			wg.Go(func() {
				for range rounds {
					if err := g.Replay(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := w.Floats(); got[0] != float64(7*rounds) || got[63] != got[0] {
			t.Errorf("seed %d: %v after %d replays of each of three graphs, want %d", seed, got[0], rounds, 7*rounds)
		}
		if v := seen.Floats()[0]; v != 0 {
			t.Errorf("seed %d: the graph that reads saw others write: %v", seed, v)
		}
		for _, g := range graphs {
			ok(t, g.Close())
		}
	}
}

// TestGraphsShareAndGo: a graph that is dropped or closed leaves nothing with those it shared memory with.
func TestGraphsShareAndGo(t *testing.T) {
	dev := gpu(t, 0)
	m := tensor.Root().On(dev)
	w := m.Zeros(4)
	add := func() *tensor.Graph {
		return capture(t, dev, func(s *tensor.Scope) { w.In(s).AddScalarInPlace(1).Add(s.Rand(4)) }, tensor.NoGrad())
	}
	kept := add()
	for range 5 {
		g := add()
		if n := tensor.Sharers(w); n != 2 {
			t.Errorf("%d graphs use the tensor, want 2", n)
		}
		ok(t, g.Replay())
		ok(t, g.Close())
	}
	func() { ok(t, add().Replay()) }() // and dropped
	for i := 0; tensor.Sharers(w) != 1; i++ {
		if i == 200 {
			t.Fatalf("%d graphs use the tensor, want 1", tensor.Sharers(w))
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	ok(t, kept.Replay())
	if v := w.Floats()[0]; v != 7 {
		t.Errorf("%v after 7 replays", v)
	}
	ok(t, kept.Close())
	if n := tensor.Sharers(w); n != 0 {
		t.Errorf("%d graphs use the tensor after Close", n)
	}
}

// TestChangedOnce: what the function of a capture changes beside its scope would be changed once, now, and is refused before it is done. What it
// makes, and what other goroutines do, goes on.
func TestChangedOnce(t *testing.T) {
	dev := gpu(t, 0)
	m := tensor.Root().On(dev)
	x, y := m.Ones(4), m.Full(3, 4)
	other := capture(t, dev, func(s *tensor.Scope) { y.In(s).AddScalarInPlace(1) })
	host := tensor.Root().Zeros(2)
	for name, f := range map[string]func(s *tensor.Scope){
		"in place":      func(s *tensor.Scope) { x.MulScalarInPlace(2) },
		"copy":          func(s *tensor.Scope) { x.Copy(y) },
		"fill":          func(s *tensor.Scope) { x.Fill(7) },
		"another scope": func(s *tensor.Scope) { tensor.Do(func(c *tensor.Scope) { x.In(c).AddInPlace(y) }) },
		"another graph": func(s *tensor.Scope) {
			if err := other.Replay(); err != nil {
				panic(err)
			}
		},
		"behind the work": func(s *tensor.Scope) { y.In(s).Add(x); x.Fill(7) },
		"within a capture": func(s *tensor.Scope) {
			inner := capture(t, dev, func(c *tensor.Scope) { x.In(c).Fill(2) })
			inner.Close()
			x.Fill(7)
		},
	} {
		g, err := tensor.Capture(dev, f, tensor.NoGrad())
		var e *tensor.Error
		if g != nil || !errors.Is(err, tensor.ErrCapture) || !errors.As(err, &e) || !strings.Contains(err.Error(), "changed now, once") {
			t.Errorf("%s: %v, %v", name, g, err)
		}
		if a, b := x.Floats()[0], y.Floats()[0]; a != 1 || b != 3 {
			t.Errorf("%s: the tensors are %v and %v", name, a, b)
		}
	}
	g := capture(t, dev, func(s *tensor.Scope) {
		state := m.Full(2, 4).MulScalarInPlace(2) // of the library's kind: made once
		s.Capture().Adopt(state)
		host.AddScalarInPlace(1) // on the host: once
		done := make(chan bool)
		go func() {
			defer close(done)
			x.Fill(5) // what others do
		}()
		<-done
		y.In(s).AddInPlace(state)
	}, tensor.NoGrad())
	for range 3 {
		ok(t, g.Replay())
	}
	if a, b, c := x.Floats()[0], y.Floats()[0], host.Floats()[0]; a != 5 || b != 15 || c != 1 {
		t.Errorf("%v, %v and %v, want 5, 15 and 1", a, b, c)
	}
	ok(t, g.Close())
	ok(t, other.Close())
}
