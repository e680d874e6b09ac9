package tensor_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCompiled compares calls of a compiled function with eager calls, for each combination of
// shapes and modes. The bits must be equal, also for random numbers and for gradients of older
// leaves. The first call of a combination runs the function, and the second captures it.
func TestCompiled(t *testing.T) { recorders(t, testCompiled) }

func testCompiled(t *testing.T, open func(seed int) device.Device) {
	dev := open(0)
	run := func(compiled bool) (all []float64) {
		gen := tensor.NewGenerator(4)
		w := tensor.Root().On(dev).Full(0.5, 3, 2).RequiresGrad()
		calls := 0
		f := func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
			calls++
			y := x[0].MatMul(w).Dropout(0.5)
			y.Sum().Backward()
			return []*tensor.Tensor{y, x[1].MulScalar(2)}
		}
		c := tensor.Compile(f)
		defer func() { ok(t, c.Close()) }()
		for k := range 5 {
			for _, rows := range []int{2, 5} {
				for _, low := range []dtype.Type{0, dtype.BF16} {
					tensor.Do(func(s *tensor.Scope) {
						x := s.Linspace(0, float64(k+1), rows*3).Reshape(rows, 3)
						n := s.Typed(dtype.I64).Full(float64(k), 4)
						var y []*tensor.Tensor
						if compiled {
							y = c.Call(s, x, n)
						} else {
							y = f(s, x, n)
						}
						for _, v := range y {
							all = append(all, v.Floats()...)
						}
						if y[0].NeedsGrad() && compiled {
							t.Error("a result has a gradient graph")
						}
					}, tensor.On(dev), tensor.WithGenerator(gen), tensor.Autocast(low))
				}
			}
		}
		if compiled {
			if n := len(c.Graphs()); n != 4 || calls != 8 {
				t.Errorf("%d graphs of %d calls, want 4 of 8", n, calls)
			}
		}
		_, offset := gen.State()
		return append(append(all, w.Grad().Floats()...), float64(offset))
	}
	if want, got := run(false), run(true); !slices.Equal(want, got) {
		t.Errorf("compiled\n%v\neager\n%v", got, want)
	}
}

// TestNotCompiled calls a function that cannot be captured. The call must panic, or run eagerly
// with OrEager. The function that was passed to OrEager must receive the reason once.
func TestNotCompiled(t *testing.T) {
	waits := func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{x[0].AddScalar(x[0].Sum().Item())}
	}
	x := tensor.Ones(3)
	call := func(c *tensor.Compiled, x ...*tensor.Tensor) (v float64, err error) {
		err = tensor.Try(func() { tensor.Do(func(s *tensor.Scope) { v = c.Call(s, x...)[0].Floats()[0] }) })
		return v, err
	}
	c := tensor.Compile(waits)
	if v, err := call(c, x); v != 4 || err != nil {
		t.Errorf("the first call: %v, %v", v, err)
	}
	for range 2 {
		if _, err := call(c, x); !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), "item") {
			t.Errorf("a call that cannot be captured: %v", err)
		}
	}
	var reasons []error
	c = tensor.Compile(waits, tensor.OrEager(func(err error) { reasons = append(reasons, err) }))
	for range 4 {
		if v, err := call(c, x); v != 4 || err != nil {
			t.Errorf("eagerly: %v, %v", v, err)
		}
	}
	if len(reasons) != 1 || !errors.Is(reasons[0], tensor.ErrCapture) {
		t.Errorf("the reasons: %v", reasons)
	}
	if _, err := call(c, tensor.Ones(3).RequiresGrad()); !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), "operand 0") {
		t.Errorf("an operand with a gradient: %v", err)
	}
	if _, err := call(c, nil); !errors.Is(err, tensor.ErrValue) {
		t.Errorf("a nil operand: %v", err)
	}
	ok(t, c.Close())
	ok(t, c.Close())
	if _, err := call(c, x); !errors.Is(err, tensor.ErrFreed) {
		t.Errorf("a call after Close: %v", err)
	}
	if err := tensor.Try(func() { tensor.Compile(nil) }); !errors.Is(err, tensor.ErrValue) {
		t.Errorf("no function: %v", err)
	}
}

// TestCompiledWithinCapture calls a compiled function in a capture. Its work must belong to that
// capture. Goroutines may call the function at the same time, and old graphs of the function must
// be closed.
func TestCompiledWithinCapture(t *testing.T) {
	dev := newRank(t)
	before := dev.Stats().Allocated
	m := tensor.Root().On(dev)
	x, sum := m.Ones(4), m.Zeros(4)
	c := tensor.Compile(func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{x[0].MulScalar(3)}
	})
	g := capture(t, dev, func(s *tensor.Scope) { sum.In(s).AddInPlace(c.Call(s, x.In(s))[0]) }, tensor.NoGrad())
	for range 2 {
		ok(t, g.Replay())
	}
	if v := sum.Floats(); v[3] != 6 {
		t.Errorf("%v after two replays", v)
	}
	ok(t, g.Close())
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := range 40 {
				tensor.Do(func(s *tensor.Scope) {
					n := 1 + i/2
					if v := c.Call(s, s.Full(float64(k), n))[0].Floats(); len(v) != n || v[n-1] != float64(3*k) {
						t.Errorf("%v, want %d", v, 3*k)
					}
				}, tensor.On(dev))
			}
		})
	}
	wg.Wait()
	if n := len(c.Graphs()); n == 0 || n > 16 {
		t.Errorf("%d graphs", n)
	}
	ok(t, c.Close())
	x.Free()
	sum.Free()
	if now := dev.Stats().Allocated; now != before {
		t.Errorf("%d bytes are allocated, %d were before", now, before)
	}
}

// TestCompiledPanics calls a compiled function that panics while it is captured. Call must panic
// with the same value, and the function must be capturable later.
func TestCompiledPanics(t *testing.T) {
	fails := true
	c := tensor.Compile(func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
		if fails {
			panic("no")
		}
		return []*tensor.Tensor{x[0].MulScalar(float64(len(x)))}
	}, tensor.Warm(0))
	defer c.Close()
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float32{2})
		func() {
			defer func() {
				if r := recover(); r != "no" {
					t.Errorf("the panic was %v", r)
				}
			}()
			c.Call(s, x)
		}()
		fails = false
		if v := c.Call(s, x)[0].Item(); v != 2 {
			t.Errorf("the result is %v", v)
		}
	})
}

// TestCompiledResultsAreNew checks the memory of results, in eager calls and in replays. Results
// must share no memory with operands and parameters.
func TestCompiledResultsAreNew(t *testing.T) {
	p := tensor.Root().From([]float32{5})
	c := tensor.Compile(func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
		p.In(s).AddInPlace(x[0])
		y := x[0].Neg()
		return []*tensor.Tensor{p, x[0], y, y}
	})
	defer c.Close()
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float32{1})
		for i := range 3 {
			y := c.Call(s, x)
			for _, t := range y {
				t.Fill(0)
			}
			y[2].Fill(3)
			if p.Item() != float64(6+i) || x.Item() != 1 || y[3].Item() != 0 {
				t.Errorf("call %d: the parameter is %v, the operand %v, the other result %v", i, p.Item(), x.Item(), y[3].Item())
			}
		}
	})
}

// TestCompiledEvictedError lets a replay fail on the device. Then calls with other shapes make the
// Compiled close the graph of that replay. Close must return the error.
func TestCompiledEvictedError(t *testing.T) {
	dev, _ := emulated(t, 0)
	m := tensor.Root().On(dev)
	table := m.Ones(4)
	c := tensor.Compile(func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{table.In(s).Take(x[0])}
	}, tensor.Warm(0))
	tensor.Do(func(s *tensor.Scope) {
		c.Call(s, s.From([]int64{9}))
		for n := range 16 {
			c.Call(s, s.From(make([]int64, n+2)))
		}
	}, tensor.On(dev))
	if err := c.Close(); !errors.Is(err, tensor.ErrIndex) {
		t.Errorf("Close returned %v", err)
	}
	ok(t, c.Close())
	table.Free()
}
