//flambeau:ignore unusedmode,nesteddo,unclosedscope these are the tests of modes that do nothing

package tensor_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/tensor"
)

func weights() *tensor.Tensor { return tensor.Root().Ones(2, 2).RequiresGrad() }

// here returns the position of the line that is n lines below the caller's line, as file:line.
func here(n int) string {
	_, file, line, _ := runtime.Caller(1)
	return callsite.String(file, line+n)
}

// composed is an op that consists of several ops and has one autocast class.
func composed(w *tensor.Tensor) *tensor.Tensor {
	return tensor.WithAutocast("composed", tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor { return in[0].MatMul(in[0]) }, w)
}

// TestModesThatDoNothing opens scopes with modes that have no effect. Closing the scope must report
// the mode.
func TestModesThatDoNothing(t *testing.T) {
	w := weights()
	bf := tensor.Autocast(dtype.BF16)
	var line string
	for name, c := range map[string]struct {
		f     func()
		words string
	}{
		"no grad": {func() {
			line = here(1)
			tensor.Do(func(s *tensor.Scope) { w.MulScalar(2) }, tensor.NoGrad())
		}, "NoGrad did nothing: the scope that was opened with it at"},
		"autocast": {func() {
			line = here(1)
			tensor.Do(func(s *tensor.Scope) { w.Detach().MatMul(w.Detach()) }, bf)
		}, "Autocast(bfloat16) did nothing: the scope"},
		"both": {func() {
			line = here(1)
			tensor.Do(func(s *tensor.Scope) { w.MatMul(w) }, tensor.NoGrad(), bf, tensor.Named("eval"))
		}, `the scope "eval" that was opened with it at`},
		"a composed op": {func() {
			line = here(1)
			tensor.Do(func(s *tensor.Scope) { composed(w) }, tensor.NoGrad())
		}, "recorded a graph"},
		"closed by hand": {func() {
			line = here(1)
			s := tensor.NewScope(tensor.NoGrad())
			w.MulScalar(2)
			s.Close()
		}, "ran in the root scope and recorded a graph"},
		"deferred": {func() {
			line = here(1)
			s := tensor.Root().New(tensor.NoGrad())
			defer s.Close()
			w.MulScalar(2)
		}, "ran in the root scope and recorded a graph"},
		"a child": {func() {
			tensor.Do(func(s *tensor.Scope) {
				x := w.In(s)
				line = here(1)
				s.Do(func(c *tensor.Scope) { x.MulScalar(2) }, tensor.NoGrad())
			})
		}, "in the scope opened at"},
		"no autocast": {func() {
			tensor.Do(func(s *tensor.Scope) {
				x := w.In(s)
				line = here(1)
				s.Do(func(c *tensor.Scope) { x.MatMul(x) }, tensor.NoAutocast())
			}, bf)
		}, "NoAutocast did nothing"},
		"a nested Do of the root": {func() {
			line = here(1)
			tensor.Do(func(s *tensor.Scope) {
				tensor.Do(func(t *tensor.Scope) { w.In(t).MulScalar(2) })
			}, tensor.NoGrad())
		}, "NoGrad did nothing"},
	} {
		err := tensor.Try(c.f)
		var e *tensor.Error
		if !errors.Is(err, tensor.ErrScope) || !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Site != line || !strings.Contains(e.Error(), c.words) || !strings.Contains(e.Error(), "x.In(s)") || !strings.Contains(e.Error(), line) {
			t.Errorf("%s, opened at %s: %v", name, line, err)
		}
	}
	if n := tensor.Vigils(); n != 0 {
		t.Errorf("%d scopes are watched after all have closed", n)
	}
}

// TestModesThatDoSomething opens scopes with modes that have an effect. Closing the scope must
// report nothing.
func TestModesThatDoSomething(t *testing.T) {
	w := weights()
	frozen := tensor.Root().Ones(2, 2)
	bf := tensor.Autocast(dtype.BF16)
	for name, f := range map[string]func(s *tensor.Scope){
		"in":              func(s *tensor.Scope) { w.MulScalar(2); w.In(s).MulScalar(2) },
		"from":            func(s *tensor.Scope) { w.MulScalar(2); s.From([]float32{1}) },
		"made":            func(s *tensor.Scope) { s.Zeros(2); w.MatMul(w) },
		"a child":         func(s *tensor.Scope) { s.Do(func(c *tensor.Scope) {}); w.MatMul(w) },
		"device":          func(s *tensor.Scope) { s.Device(); w.MatMul(w) },
		"generator":       func(s *tensor.Scope) { w.MatMul(w); s.Generator() },
		"grad enabled":    func(s *tensor.Scope) { w.MatMul(w); s.GradEnabled() },
		"no op":           func(s *tensor.Scope) {},
		"parts of an op":  func(s *tensor.Scope) { composed(frozen) },
		"nothing to lose": func(s *tensor.Scope) { _ = fmt.Sprint(frozen.Add(frozen).T(), w) },
		"another goroutine": func(s *tensor.Scope) {
			var wg sync.WaitGroup
			wg.Go(func() { w.MatMul(w).Sum().Backward() })
			wg.Wait()
		},
		"a graph that is asked for": func(s *tensor.Scope) {
			tensor.Do(func(c *tensor.Scope) { w.In(c).MulScalar(2) }, tensor.WithGrad(), tensor.NoAutocast())
		},
		"modes of its own": func(s *tensor.Scope) {
			tensor.Do(func(c *tensor.Scope) { w.In(c).MatMul(w) }, tensor.NoGrad(), bf)
		},
	} {
		if err := tensor.Try(func() { tensor.Do(f, tensor.NoGrad(), bf) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := tensor.Try(func() { s := tensor.NewScope(tensor.NoGrad(), bf); f(s); s.Close() }); err != nil {
			t.Errorf("%s, closed by hand: %v", name, err)
		}
	}
	if n := tensor.Vigils(); n != 0 {
		t.Errorf("%d scopes are watched after all have closed", n)
	}
}

// TestUnaskedScopeInPanic panics in a scope whose mode had no effect. The error for the mode must
// not replace the panic.
func TestUnaskedScopeInPanic(t *testing.T) {
	w := weights()
	for name, f := range map[string]func(){
		"do": func() { tensor.Do(func(*tensor.Scope) { w.MatMul(w); panic("mine") }, tensor.NoGrad()) },
		"deferred": func() {
			s := tensor.NewScope(tensor.NoGrad())
			defer s.Close()
			w.MatMul(w)
			panic("mine")
		},
	} {
		func() {
			defer func() {
				if r := recover(); r != "mine" {
					t.Errorf("%s: %v", name, r)
				}
			}()
			f()
		}()
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		s := tensor.NewScope(tensor.NoGrad())
		defer s.Close()
		w.MatMul(w)
		runtime.Goexit()
	}()
	<-done
	if n := tensor.Vigils(); n != 0 {
		t.Errorf("%d scopes are watched after all have closed", n)
	}
}

// TestUnaskedScopeOfAnotherGoroutine starts goroutines, which may have the address of an earlier
// goroutine that has ended. Their ops must not be reported for a scope that the earlier goroutine
// opened and did not use. That scope must not be kept alive.
func TestUnaskedScopeOfAnotherGoroutine(t *testing.T) {
	w := weights()
	open := make(chan *tensor.Scope)
	for range 20 {
		go func() { open <- tensor.NewScope(tensor.NoGrad()) }()
		s := <-open
		done := make(chan bool)
		go func() { w.MulScalar(2); done <- true }()
		<-done
		if err := tensor.Try(func() { s.Close() }); err != nil {
			t.Fatal(err)
		}
	}
	func() { tensor.NewScope(tensor.NoGrad()) }()
	for range 50 {
		runtime.GC()
		if tensor.Vigils() == 0 {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d scopes are watched that nobody has", tensor.Vigils())
}

// TestUnaskedCosts opens a scope with a mode. Until its first use, the scope is watched, and an op
// outside of it may make at most one more allocation. The first use must end the watch.
func TestUnaskedCosts(t *testing.T) {
	w, x := weights(), tensor.Root().Ones(2, 2)
	op := func() { x.Add(w).Free() }
	bare := testing.AllocsPerRun(100, op)
	s := tensor.NewScope(tensor.NoGrad())
	if n := tensor.Vigils(); n != 1 {
		t.Fatalf("%d scopes are watched, it should be 1", n)
	}
	op() // the watch notes this op
	if got := testing.AllocsPerRun(100, op); got > bare+1 {
		t.Errorf("an op makes %v allocations beside a scope that is not asked, %v without", got, bare)
	}
	y := w.In(s)
	if n := tensor.Vigils(); n != 0 {
		t.Errorf("%d scopes are watched after the first question", n)
	}
	y.Free()
	s.Close()
}

// TestInPlaceOnParameterSaysWhatToWrite changes a parameter in place outside of NoGrad. The error
// must show the call that the user must write, and that call must work.
func TestInPlaceOnParameterSaysWhatToWrite(t *testing.T) {
	w := weights()
	for method, f := range map[string]func(x *tensor.Tensor){
		"MulScalarInPlace": func(x *tensor.Tensor) { x.MulScalarInPlace(0.5) },
		"AddInPlace":       func(x *tensor.Tensor) { x.AddInPlace(tensor.Root().Ones(2, 2)) },
		"Zero":             func(x *tensor.Tensor) { x.Zero() },
		"Copy":             func(x *tensor.Tensor) { x.Copy(tensor.Root().Ones(2, 2)) },
		"Select(0, 0).":    func(x *tensor.Tensor) { x.Select(0, 0).ExpInPlace() },
	} {
		err := tensor.Try(func() { tensor.Do(func(s *tensor.Scope) { f(w) }, tensor.NoGrad()) })
		want := "x.In(s)." + method + "(…)"
		if method == "Select(0, 0)." {
			want = "x.In(s).ExpInPlace(…)"
		}
		if !errors.Is(err, tensor.ErrGrad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", method, err)
		}
		if err := tensor.Try(func() { tensor.Do(func(s *tensor.Scope) { f(w.In(s)) }, tensor.NoGrad()) }); err != nil {
			t.Errorf("%s in the scope: %v", method, err)
		}
	}
}
