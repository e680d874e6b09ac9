package tensor

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// live returns the number of bytes that the CPU has in pooled blocks.
func live(t *testing.T) int {
	t.Helper()
	return hostDevice().Stats().Allocated
}

// baseline returns the result of live after a garbage collection. The memory of other tests is
// collected then, so that it does not disturb this test.
func baseline(t *testing.T) int {
	t.Helper()
	for last, same := -1, 0; same < 3; {
		runtime.GC()
		time.Sleep(2 * time.Millisecond)
		now := live(t)
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
	}
	return live(t)
}

// A tensor with this many elements takes its storage from the pool, on the CPU too.
const big = 64 << 10

func TestResultBelongsToYoungestScope(t *testing.T) {
	w := Ones(big)
	defer w.Free()
	Do(func(s *Scope) {
		x := s.Ones(big)
		if y := w.Add(x); y.Scope() != s {
			t.Fatal("w+x belongs to the scope of x")
		}
		if y := w.Add(w); y.Scope() != Root() {
			t.Fatal("w+w belongs to the root")
		} else {
			y.Free()
		}
		s.Do(func(c *Scope) {
			if y := x.In(c).Mul(w); y.Scope() != c {
				t.Fatal("In starts an expression in the child")
			}
		})
	})
}

func TestScopeGivesMemoryBack(t *testing.T) {
	before := baseline(t)
	w := Ones(big).RequiresGrad()
	base := baseline(t)
	for range 20 {
		Do(func(s *Scope) {
			x := s.Ones(big)
			for range 10 {
				x = x.Mul(w).AddScalar(1)
			}
			x.Sum().Backward()
			w.ZeroGrad()
		})
	}
	if now := live(t); now != base {
		t.Fatalf("%d bytes are left, %d before", now, base)
	}
	w.Free()
	if now := live(t); now != before {
		t.Fatalf("%d bytes after Free, %d at the start", now, before)
	}
}

func TestCloseKeepsValueAndGraph(t *testing.T) {
	w := From([]float32{2, 3}).RequiresGrad()
	Do(func(s *Scope) {
		c := s.New()
		x := c.From([]float32{5, 7})
		y := x.Mul(w).Sum()
		c.Close(y)
		if y.Scope() != s {
			t.Fatal("a kept tensor moves to the parent")
		}
		if err := Try(func() { x.Sum() }); !errors.Is(err, ErrScope) {
			t.Fatalf("x is gone: %v", err)
		}
		y.Backward()
	})
	if g := Data[float32](w.Grad()); g[0] != 5 || g[1] != 7 {
		t.Fatalf("gradient %v", g)
	}
	w.ZeroGrad()
	base := baseline(t)
	var kept *Tensor
	Do(func(s *Scope) {
		a := s.Ones(big).RequiresGrad()
		kept = a.Mul(a).Mul(a)
		s.Close(kept.Detach())
	})
	if err := Try(func() { kept.Sum() }); err == nil {
		t.Fatal("only the detached value was kept")
	}
	runtime.GC()
	if now := live(t); now > base+4*big+4096 {
		t.Fatalf("the graph was kept: %d bytes more", now-base)
	}
}

func TestPanicClosesScopes(t *testing.T) {
	base := baseline(t)
	err := Try(func() {
		Do(func(s *Scope) {
			x := s.Ones(big)
			s.Do(func(c *Scope) { x.In(c).Add(c.Ones(3)) })
		})
	})
	if !errors.Is(err, ErrShape) {
		t.Fatalf("got %v", err)
	}
	if now := live(t); now != base {
		t.Fatalf("%d bytes are left", now-base)
	}
}

//flambeau:ignore unclosedscope the test shows what happens to scopes that are dropped
func TestScopeMisuse(t *testing.T) {
	check := func(name string, f func(), kind error, words ...string) {
		t.Helper()
		err := Try(f)
		if !errors.Is(err, kind) {
			t.Fatalf("%s: got %v", name, err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is missing in\n%v", name, w, err)
			}
		}
	}
	var x, y *Tensor
	var closed *Scope
	Do(func(s *Scope) { x, closed = s.Ones(2), s })
	check("closed scope", func() { x.Add(x) }, ErrScope, "opened at tensor/scope_test.go", "closed at tensor/", "Close(x)", "scope_test.go")
	check("new in a closed scope", func() { closed.Ones(2) }, ErrScope, "closed")
	check("child of a closed scope", func() { closed.New() }, ErrScope, "closed")
	check("close twice", func() { closed.Close() }, ErrScope, "closed")
	check("root", func() { Root().Close() }, ErrScope, "root scope")
	a, b := NewScope(Named("left")), NewScope()
	x, y = a.Ones(2), b.Ones(2)
	check("unrelated scopes", func() { x.Add(y) }, ErrScope, `"left"`, "unrelated")
	c := a.New()
	check("open child", func() { a.Close() }, ErrScope, "1 open child")
	check("In of an unrelated scope", func() { x.In(b) }, ErrScope)
	c.Close()
	a.Close()
	b.Close()
	z := Ones(2)
	z.Free()
	z.Free()
	check("freed", func() { z.Add(z) }, ErrFreed, "freed", "ones at tensor/scope_test.go")
	copied := *Ones(2) //nolint:govet // the point of the test
	check("copied struct", func() { (&copied).Neg() }, ErrValue, "pointer")
	check("nil", func() { Ones(2).Add(nil) }, ErrValue, "nil")
}

func TestModesTravelWithScope(t *testing.T) {
	w := Ones(3).RequiresGrad()
	Do(func(s *Scope) {
		x := s.Ones(3)
		if x.Mul(w).NeedsGrad() {
			t.Fatal("NoGrad")
		}
		s.Do(func(c *Scope) {
			if !x.In(c).Mul(w).NeedsGrad() {
				t.Fatal("WithGrad")
			}
		}, WithGrad())
	}, NoGrad())
	var a, b, c []float32
	Do(func(s *Scope) { a = Data[float32](s.Rand(8)); s.Do(func(k *Scope) { b = Data[float32](k.Rand(8)) }) }, Seed(7))
	Do(func(s *Scope) { c = append(Data[float32](s.Rand(8)), Data[float32](s.Rand(8))...) }, Seed(7))
	if !slices.Equal(append(a, b...), c) {
		t.Fatal("a child draws on from its parent's generator")
	}
}

func TestFourGoroutinesTrainFourModels(t *testing.T) {
	base := baseline(t)
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			w := Full(0.5, 128, 128).RequiresGrad()
			for range 20 {
				Do(func(s *Scope) {
					x := s.Rand(64, 128)
					x.MatMul(w).Tanh().Square().Mean().Backward()
					s.Do(func(u *Scope) { w.In(u).SubInPlace(w.Grad().In(u).MulScalar(0.1)) }, NoGrad())
					w.ZeroGrad()
				}, Seed(uint64(k)))
			}
			w.Free()
		})
	}
	wg.Wait()
	if now := live(t); now != base {
		t.Fatalf("%d bytes are left", now-base)
	}
}

// TestSharedLeaf runs Backward on four goroutines, for graphs that share a leaf.
func TestSharedLeaf(t *testing.T) {
	w := Ones(big).RequiresGrad()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				Do(func(s *Scope) { s.Ones(big).Mul(w).Sum().Backward() })
			}
		})
	}
	wg.Wait()
	if g := w.Grad().Sum().Item(); g != 40*big {
		t.Fatalf("gradient sums to %v", g)
	}
}

// TestGarbageIsCollected makes tensors without scopes. The garbage collector must free their
// memory.
func TestGarbageIsCollected(t *testing.T) {
	base := baseline(t)
	for range 50 {
		Ones(big).AddScalar(1)
	}
	for range 20 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
		if live(t) <= base {
			return
		}
	}
	t.Fatalf("%d bytes were never collected", live(t)-base)
}

// TestDroppedScopeIsCollected checks that a scope that is dropped without Close returns its memory
// when it is collected.
//
//flambeau:ignore unclosedscope the test shows what happens to scopes that are dropped
func TestDroppedScopeIsCollected(t *testing.T) {
	base := baseline(t)
	func() {
		s := NewScope()
		for range 20 {
			s.Ones(big).RequiresGrad().AddScalar(1)
		}
	}()
	for range 20 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
		if live(t) <= base {
			return
		}
	}
	t.Fatalf("%d bytes were never collected", live(t)-base)
}

func TestGraphErrors(t *testing.T) {
	x := From([]float32{1, 2}).RequiresGrad()
	Do(func(s *Scope) {
		y := x.In(s).Square().Sum()
		y.Backward()
		if err := Try(func() { y.Backward() }); !errors.Is(err, ErrGrad) || !strings.Contains(err.Error(), "RetainGraph") {
			t.Fatalf("second Backward: %v", err)
		}
		z := x.In(s).AddScalar(1)
		w := z.Square().Sum()
		s.Do(func(c *Scope) { z.In(c).AddScalarInPlace(1) }, NoGrad())
		if err := Try(func() { w.Backward() }); !errors.Is(err, ErrInPlace) || !strings.Contains(err.Error(), "square") {
			t.Fatalf("in-place: %v", err)
		}
		if err := Try(func() { x.AddScalarInPlace(1) }); !errors.Is(err, ErrGrad) || !strings.Contains(err.Error(), "NoGrad") {
			t.Fatalf("leaf in place: %v", err)
		}
		if err := Try(func() { s.Ones(2).Backward() }); !errors.Is(err, ErrGrad) {
			t.Fatalf("no graph: %v", err)
		}
		if err := Try(func() { x.In(s).Square().Backward() }); !errors.Is(err, ErrGrad) || !strings.Contains(err.Error(), "Sum or Mean") {
			t.Fatalf("not a scalar: %v", err)
		}
		old := Zeros(2)
		if err := Try(func() { old.AddInPlace(x.In(s)) }); !errors.Is(err, ErrScope) {
			t.Fatalf("young graph on an old tensor: %v", err)
		}
	})
}

func TestInPlaceGraph(t *testing.T) {
	x := From([]float32{1, 2}).RequiresGrad()
	Do(func(s *Scope) {
		y := x.In(s).MulScalar(3)
		y.AddInPlace(x.In(s).Square()).MulScalarInPlace(2) // y is 2·(3x + x²) now
		y.Sum().Backward()
	})
	if g := Data[float32](x.Grad()); g[0] != 10 || g[1] != 14 {
		t.Fatalf("gradient %v", g)
	}
}

func TestDeepGraph(t *testing.T) {
	x := From(float32(1)).RequiresGrad()
	Do(func(s *Scope) {
		y := x.In(s)
		for range 100000 {
			y = y.AddScalar(0)
		}
		y.Backward()
	})
	if x.Grad().Item() != 1 {
		t.Fatal("gradient")
	}
}

func TestDoubleBackward(t *testing.T) {
	Do(func(s *Scope) {
		x := s.From([]float64{0.5, -1.5}).RequiresGrad()
		y := x.Tanh().Mul(x.Square()).Sum()
		g := Gradients(y, []*Tensor{x}, CreateGraph())[0]
		h := Gradients(g.Square().Sum(), []*Tensor{x})[0].Floats()
		f := func(v float64) float64 { // f returns the square of the derivative of tanh(v)·v²
			th := math.Tanh(v)
			d := (1-th*th)*v*v + 2*v*th
			return d * d
		}
		for i, v := range []float64{0.5, -1.5} {
			const e = 1e-6
			if want := (f(v+e) - f(v-e)) / (2 * e); math.Abs(h[i]-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("second derivative at %v: %v want %v", v, h[i], want)
			}
		}
	})
}

func TestOutOfMemoryIsTyped(t *testing.T) {
	err := Try(func() { Zeros(1<<40, 1<<10) })
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	if !errors.Is(err, device.ErrOutOfMemory) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), "what needs less: a smaller batch, autograd.Checkpoint") {
		t.Fatalf("no advice: %v", err)
	}
	if err := Try(func() { Zeros(1<<40, 1<<40) }); !errors.Is(err, ErrShape) {
		t.Fatalf("an impossible shape: %v", err)
	}
	if x := Typed(dtype.I64).Zeros(2); x.Type() != dtype.I64 {
		t.Fatal("the program goes on")
	}
}

// TestSavedValuesAreCollected checks that values that only a graph keeps are collected with the
// graph, in the root scope and in a dropped scope.
//
//flambeau:ignore unclosedscope the test shows what happens to scopes that are dropped
func TestSavedValuesAreCollected(t *testing.T) {
	base := baseline(t)
	func() {
		x := Ones(64, big/64).RequiresGrad()
		for range 10 {
			// Backward is never called for these intermediate values and results.
			x.Tanh().Softmax(-1).Amax(-1)
		}
		s := NewScope()
		y := x.In(s)
		for range 10 {
			y.Tanh().Softmax(-1).Amax(-1)
		}
	}()
	for range 40 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
		if live(t) <= base {
			return
		}
	}
	t.Fatalf("%d bytes were never collected", live(t)-base)
}

func TestFromHandsOver(t *testing.T) {
	x := Ones(3)
	Do(func(s *Scope) {
		if y := s.From(x); y.Scope() != s || y.Sum().Item() != 3 {
			t.Fatal("the scope has it")
		}
	})
	err := Try(func() { x.Sum() })
	if !errors.Is(err, ErrFreed) || !strings.Contains(err.Error(), "handed over") || !strings.Contains(err.Error(), "x.In(s)") {
		t.Fatalf("got %v", err)
	}
}
