package tensor_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestGraphsTakeTurns replays graphs that write one tensor, on several goroutines. The ops of one
// replay must not run between the ops of another.
func TestGraphsTakeTurns(t *testing.T) { recorders(t, testGraphsTakeTurns) }

func testGraphsTakeTurns(t *testing.T, open func(seed int) device.Device) {
	rounds, seeds := 12, 6
	if testing.Short() {
		rounds, seeds = 4, 2
	}
	for seed := 1; seed <= seeds; seed++ {
		dev := open(seed)
		m := tensor.Root().On(dev)
		w, seen := m.Zeros(64), m.Zeros(64)
		// the graph computes w += amount, with intermediate results in other memory
		add := func(amount float64) *tensor.Graph {
			return capture(t, dev, func(s *tensor.Scope) {
				v := w.In(s).MulScalar(0.5)
				half := s.Capture().Feed(dtype.F32, 1, func(to []byte) {
					// the replay has waited for queued work by now, but its own work is not queued
					// yet
					time.Sleep(100 * time.Microsecond)
					binary.NativeEndian.PutUint32(to, math.Float32bits(float32(amount)/2))
				})
				w.In(s).Copy(v.Add(half).MulScalar(2))
			}, tensor.NoGrad())
		}
		graphs := []*tensor.Graph{add(1), add(2), add(4)}
		// This graph reads w twice. No write may come between the two reads.
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

// TestGraphsShareAndGo drops or closes graphs that share memory. Afterwards they must no longer
// count as users of that memory.
func TestGraphsShareAndGo(t *testing.T) { recorders(t, testGraphsShareAndGo) }

func testGraphsShareAndGo(t *testing.T, open func(seed int) device.Device) {
	dev := open(0)
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
	func() { ok(t, add().Replay()) }() // this graph is dropped
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

// TestChangedOnce changes memory outside of the capture's scope in a captured function. Such a
// change would happen during the capture, but not in replays, so it must be refused before it
// happens. Changes of new memory, and changes by other goroutines, are allowed.
func TestChangedOnce(t *testing.T) { recorders(t, testChangedOnce) }

func testChangedOnce(t *testing.T, open func(seed int) device.Device) {
	dev := open(0)
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
		// state is made once, like the state of a library's optimizer
		state := m.Full(2, 4).MulScalarInPlace(2)
		s.Capture().Adopt(state)
		host.AddScalarInPlace(1) // host memory changes once, and not in replays
		done := make(chan bool)
		go func() {
			defer close(done)
			x.Fill(5) // another goroutine may change x
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

// TestNestedCapture makes a capture inside of another capture, on the same streams. The inner
// capture must make a graph of its own. If it fails, the outer capture must not be affected.
func TestNestedCapture(t *testing.T) {
	t.Run("gpu", func(t *testing.T) {
		testNestedCapture(t, func(seed int) (dev, other device.Device) {
			list, err := cuda.Emulate(fmt.Sprintf("emulate:2,mem=16MiB,seed=%d", seed))
			ok(t, err)
			return list[0], list[1]
		})
	})
	t.Run("cpu", func(t *testing.T) {
		testNestedCapture(t, func(int) (dev, other device.Device) { return newRank(t), newRank(t) })
	})
}

func testNestedCapture(t *testing.T, open func(seed int) (dev, other device.Device)) {
	for seed := range 4 {
		dev, second := open(seed)
		side, err := dev.NewStream(0)
		ok(t, err)
		far, err := second.NewStream(0)
		ok(t, err)
		m := tensor.Root().On(dev)
		x, y := m.Ones(8), m.Ones(8)
		var inner *tensor.Graph
		outer := capture(t, dev, func(s *tensor.Scope) {
			s.Do(func(c *tensor.Scope) {
				x.In(c).AddScalarInPlace(1)
				inner = capture(t, dev, func(d *tensor.Scope) {
					d.Do(func(d *tensor.Scope) { y.In(d).MulScalarInPlace(2) }, tensor.Stream(side))
				}, tensor.NoGrad())
				if _, err := tensor.Capture(dev, func(d *tensor.Scope) { y.In(d).Sum().Item() }); !errors.Is(err, tensor.ErrCapture) {
					t.Errorf("a capture within one: %v", err)
				}
				if _, err := tensor.Capture(dev, func(d *tensor.Scope) {}); !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), "nothing was recorded") {
					t.Errorf("a capture of nothing: %v", err)
				}
				if _, err := tensor.Capture(dev, func(d *tensor.Scope) { x.In(d).AddScalar(1) }); !errors.Is(err, tensor.ErrCapture) {
					t.Errorf("a capture of what the one around it has written: %v", err)
				}
				if g := c.Capture(); g == nil || c.Stream() == device.Stream(side) || c.Stream() == g.Stream() {
					t.Errorf("the stream of a fork is %v", c.Stream())
				}
			}, tensor.Stream(side))
			// The scope chose a stream of another device. Its work on this device is recorded on
			// the recording's default stream.
			s.Do(func(c *tensor.Scope) {
				if c.Stream(dev) != s.Capture().Stream() {
					t.Errorf("the stream is %v", c.Stream(dev))
				}
				x.In(c).MulScalarInPlace(3)
			}, tensor.Stream(far))
		}, tensor.NoGrad())
		for range 3 {
			ok(t, outer.Replay())
			ok(t, inner.Replay())
		}
		if a, b := x.Floats()[7], y.Floats()[0]; a != 66 || b != 8 { // 66 is (((1+1)·3+1)·3+1)·3
			t.Errorf("seed %d: %v and %v, want 66 and 8", seed, a, b)
		}
		ok(t, outer.Close())
		ok(t, inner.Replay())
		ok(t, inner.Close())
	}
}

// TestUnfinishedGraph uses the graph that Scope.Capture returns, before the capture ends and after
// a failed capture. The graph's methods must return errors that name this state.
func TestUnfinishedGraph(t *testing.T) { recorders(t, testUnfinishedGraph) }

func testUnfinishedGraph(t *testing.T, open func(seed int) device.Device) {
	dev := open(0)
	x := tensor.Root().On(dev).Ones(4)
	look := func(when string, g *tensor.Graph, want string) {
		for name, err := range map[string]error{"Replay": g.Replay(), "Close": g.Close()} {
			if !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v", name, when, err)
			}
		}
		if n := g.Operations(); n != 0 || !strings.Contains(g.String(), want) {
			t.Errorf("%s: %v, %d operations", when, g, n)
		}
	}
	var kept *tensor.Graph
	g := capture(t, dev, func(s *tensor.Scope) {
		x.In(s).AddScalarInPlace(1)
		look("in the function", s.Capture(), "being captured")
	}, tensor.NoGrad())
	ok(t, g.Replay())
	if v := x.Floats()[0]; v != 2 || g.Operations() != 1 {
		t.Errorf("%v after a replay of %v", v, g)
	}
	ok(t, g.Close())
	if _, err := tensor.Capture(dev, func(s *tensor.Scope) { kept = s.Capture(); x.In(s).Sum().Item() }); err == nil {
		t.Fatal("no error")
	}
	look("after a failure", kept, "failed")
}
