package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func gpu(t testing.TB, seed int) *cuda.Device {
	t.Helper()
	d, err := cuda.Emulate(fmt.Sprintf("emulate,mem=64MiB,seed=%d", seed))
	if err != nil {
		t.Fatal(err)
	}
	return d[0]
}

// recorders runs f on each kind of device that can record work: an emulated GPU and a rank of the
// CPU.
func recorders(t *testing.T, f func(t *testing.T, open func(seed int) device.Device)) {
	t.Run("gpu", func(t *testing.T) { f(t, func(seed int) device.Device { return gpu(t, seed) }) })
	t.Run("cpu", func(t *testing.T) { f(t, func(int) device.Device { return newRank(t) }) })
}

var ranks atomic.Int64

// newRank returns a rank of the CPU that no other test uses, so that its memory can be counted.
func newRank(t testing.TB) device.Device { return opened(t, fmt.Sprintf("cpu:%d", 20+ranks.Add(1))) }

func opened(t testing.TB, name string) device.Device {
	t.Helper()
	d, err := device.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// launches returns how many launches dev has counted: 0 on the CPU, which counts none.
func launches(dev device.Device) int {
	if d, ok := dev.(*cuda.Device); ok {
		return int(d.Counters().Launches)
	}
	return 0
}

// pinned returns how many bytes of page-locked memory the driver of dev has allocated.
func pinned(dev device.Device) int {
	if d, ok := dev.(device.PinnedAllocator); ok {
		return d.PinnedStats().Allocated
	}
	return 0
}

func capture(t testing.TB, dev device.Device, f func(s *tensor.Scope), opts ...tensor.Option) *tensor.Graph {
	t.Helper()
	g, err := tensor.Capture(dev, f, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCapturedForward captures a forward pass. Nothing may run during the capture, and each replay
// must be one launch. A replay must read what was written to a static input just before it, also on
// another stream. A later write must not overtake the replay.
func TestCapturedForward(t *testing.T) { recorders(t, testCapturedForward) }

func testCapturedForward(t *testing.T, open func(seed int) device.Device) {
	for seed := range 8 {
		dev := open(seed)
		side, err := dev.NewStream(0)
		ok(t, err)
		m := tensor.Root().On(dev)
		x, w, seen := m.Ones(4, 8), m.Full(0.25, 8, 3), m.Zeros(4, 3)
		var y *tensor.Tensor
		launched, gpu := launches(dev), dev.Info().Kind == "cuda"
		g := capture(t, dev, func(s *tensor.Scope) {
			s.Do(func(c *tensor.Scope) { y = x.In(c).MatMul(w).Tanh().AddScalar(1); c.Close(y) })
			seen.In(s).AddInPlace(y)
		}, tensor.NoGrad())
		if n := launches(dev) - launched; n != 0 {
			t.Errorf("%d launches by the capture", n)
		}
		want := make([]float64, 12)
		for k := range 5 {
			on := dev.DefaultStream()
			if k%2 == 1 {
				on = side
			}
			tensor.Do(func(s *tensor.Scope) { x.In(s).Fill(float64(k)) }, tensor.NoGrad(), tensor.Stream(on))
			launched := launches(dev)
			ok(t, g.Replay())
			if n := launches(dev) - launched; n != 1 && gpu {
				t.Errorf("%d launches by a replay", n)
			}
			// this write must run after the replay
			tensor.Do(func(s *tensor.Scope) { x.In(s).Fill(99) }, tensor.NoGrad(), tensor.Stream(side))
			for i := range want {
				want[i] += 1 + math.Tanh(2*float64(k))
			}
		}
		if got := seen.Floats(); math.Abs(got[0]-want[0]) > 1e-4 || got[0] != got[11] {
			t.Errorf("seed %d: the sum is %v, want %v", seed, got, want)
		}
		if v := y.Floats()[0]; math.Abs(v-(1+math.Tanh(8))) > 1e-6 {
			t.Errorf("seed %d: the result is %v", seed, v)
		}
		// Eager work may use the graph's results after a replay.
		if v := y.SubScalar(1).Sum().Item(); math.Abs(v-12*math.Tanh(8)) > 1e-4 {
			t.Errorf("seed %d: the sum of the result is %v", seed, v)
		}
		ok(t, g.Close())
		ok(t, g.Close())
		if err := tensor.Try(func() { y.Item() }); !errors.Is(err, tensor.ErrScope) {
			t.Errorf("a result after Close: %v", err)
		}
		if err := g.Replay(); !errors.Is(err, tensor.ErrFreed) {
			t.Errorf("a replay after Close: %v", err)
		}
		x.Free()
		w.Free()
		seen.Free()
		ok(t, dev.Synchronize())
		dev.Empty()
		if s := dev.Stats(); s.Allocated != 0 || s.Reserved != 0 {
			t.Errorf("%d bytes are allocated and %d reserved after Close", s.Allocated, s.Reserved)
		}
	}
}

// TestCapturedRandom compares the random numbers of replayed steps with those of eager steps, for
// all generators. The bits must be equal. Afterwards the generators must have the same state as
// after eager steps.
func TestCapturedRandom(t *testing.T) { recorders(t, testCapturedRandom) }

func testCapturedRandom(t *testing.T, open func(seed int) device.Device) {
	own := tensor.NewGenerator(5)
	step := func(s *tensor.Scope, x *tensor.Tensor, out []*tensor.Tensor) {
		h := x.In(s)
		put := func(i int, v *tensor.Tensor) { out[i].In(s).Copy(v.Reshape(-1).Narrow(0, 0, 6)) }
		put(0, h.Dropout(0.5))
		put(1, s.Rand(2, 3).Add(s.Randn(2, 3)))
		put(2, s.RandInt(0, 1000, 6).Float())
		s.Do(func(c *tensor.Scope) { put(3, c.Typed(dtype.F64).Rand(6).Float()) }, tensor.Seed(9))
		s.Do(func(c *tensor.Scope) { put(4, h.In(c).AlphaDropout(0.3).Add(c.Randn(4, 4))) }, tensor.WithGenerator(own))
		put(5, h.Reshape(1, 2, 2, 4).Dropout2d(0.5))
		put(6, s.On(s.Device()).RandPerm(6).Float())
		put(7, tensor.ScaledDotProductAttention(h.Reshape(1, 1, 4, 4), h.Reshape(1, 1, 4, 4), h.Reshape(1, 1, 4, 4), tensor.AttentionOptions{Dropout: 0.4}))
		put(8, h.Cast(dtype.BF16).DropoutAdd(h, 0.5))
	}
	const steps = 6
	run := func(captured bool) (all []float64, state [4]uint64) {
		dev := open(3)
		own.SetState(5, 0)
		gen := tensor.NewGenerator(77)
		m := tensor.Root().On(dev)
		x := m.Linspace(-1, 1, 16).Reshape(4, 4)
		out := make([]*tensor.Tensor, 9)
		for i := range out {
			out[i] = m.Zeros(6)
		}
		opts := []tensor.Option{tensor.On(dev), tensor.WithGenerator(gen), tensor.NoGrad()}
		once := func() { tensor.Do(func(s *tensor.Scope) { step(s, x, out) }, opts...) }
		if captured {
			g := capture(t, dev, func(s *tensor.Scope) { step(s, x, out) }, opts...)
			defer g.Close()
			once = func() { ok(t, g.Replay()) }
		}
		for k := range steps {
			if k == 3 { // replays continue from a state that was set by hand
				gen.SetState(78, 1000)
			}
			once()
			for _, o := range out {
				all = append(all, o.Floats()...)
			}
		}
		state[0], state[1] = gen.State()
		state[2], state[3] = own.State()
		return all, state
	}
	want, wantState := run(false)
	got, gotState := run(true)
	if !slices.Equal(got, want) {
		t.Errorf("replays draw\n%v\neager steps\n%v", got, want)
	}
	if gotState != wantState {
		t.Errorf("the generators are at %v, after eager steps at %v", gotState, wantState)
	}
	if slices.Equal(want[:6], want[54:60]) || !slices.Equal(want[18:24], want[54+18:54+24]) {
		t.Error("the test draws the same numbers each time, or a seeded scope different ones")
	}
}

// TestNotCapturable captures work that replays could not repeat correctly. Capture must refuse it
// with an error that names the op and the caller's line. Nothing of the capture may remain, and the
// device must still be usable.
func TestNotCapturable(t *testing.T) {
	list, err := cuda.Emulate("emulate:2,mem=64MiB")
	ok(t, err)
	t.Run("gpu", func(t *testing.T) { testNotCapturable(t, list[0], list[1], opened(t, "cpu")) })
	t.Run("cpu", func(t *testing.T) { testNotCapturable(t, newRank(t), newRank(t), opened(t, "cpu")) })
}

func testNotCapturable(t *testing.T, dev, second, cpu device.Device) {
	m := tensor.Root().On(dev)
	x, index := m.Linspace(1, 2, 16).Reshape(4, 4), m.Typed(dtype.I64).Zeros(4)
	far, near := tensor.Root().On(second).Ones(4, 4), tensor.Root().Ones(4, 4)
	w := m.Ones(4, 4).RequiresGrad()
	total := func() (v float64) {
		tensor.Do(func(s *tensor.Scope) { v = x.In(s).Sum().Item() })
		return v
	}
	total()
	stats := dev.Stats()
	for name, row := range map[string]struct {
		op string
		f  func(s *tensor.Scope)
	}{
		"item":       {"item", func(s *tensor.Scope) { x.In(s).Sum().Item() }},
		"data":       {"data", func(s *tensor.Scope) { tensor.Data[float32](x.In(s).AddScalar(1)) }},
		"print":      {"string", func(s *tensor.Scope) { _ = fmt.Sprint(x.In(s).AddScalar(1)) /* fmt catches the panic */ }},
		"nonzero":    {"nonzero", func(s *tensor.Scope) { x.In(s).Nonzero() }},
		"unique":     {"unique", func(s *tensor.Scope) { x.In(s).Unique(tensor.UniqueOptions{}) }},
		"masked":     {"masked_select", func(s *tensor.Scope) { x.In(s).MaskedSelect(x.In(s).Gt(x)) }},
		"bincount":   {"bincount", func(s *tensor.Scope) { index.In(s).Bincount(nil, 0) }},
		"to the CPU": {"to", func(s *tensor.Scope) { x.In(s).CPU() }},
		"item later": {"item_later", func(s *tensor.Scope) { x.In(s).Sum().ItemLater() }},
		"read copy":  {"item", func(s *tensor.Scope) { x.In(s).Sum().To(cpu, tensor.NonBlocking()).Item() }},
		"from":       {"", func(s *tensor.Scope) { s.From([]float32{1, 2, 3}) }},
		"on the CPU": {"add_scalar", func(s *tensor.Scope) { near.In(s).AddScalar(1) }},
		"second":     {"add_scalar", func(s *tensor.Scope) { far.In(s).AddScalar(1) }},
		"linalg":     {"inverse", func(s *tensor.Scope) { x.In(s).Inverse() }},
		// y is computed from older tensors only, so it would be computed once, during the capture,
		// and not by replays
		"outside": {"", func(s *tensor.Scope) {
			y := x.AddScalar(1)
			defer y.Free()
			y.In(s).MulScalar(2)
		}},
		// Sum would run during the capture, on a gradient that only a replay computes
		"recorded outside": {"sum", func(s *tensor.Scope) {
			w.In(s).Sum().Backward()
			tensor.Do(func(other *tensor.Scope) { w.Grad().In(other).Sum() })
		}},
		"misuse":      {"add", func(s *tensor.Scope) { x.In(s).Add(w.In(s).Reshape(2, 8)) }},
		"gradient":    {"item", func(s *tensor.Scope) { w.In(s).Sum().Backward(); x.In(s).Sum().Item() }},
		"closed":      {"capture", func(s *tensor.Scope) { s.Close() }},
		"between":     {"to", func(s *tensor.Scope) { far.In(s).To(dev) }},
		"from a host": {"to", func(s *tensor.Scope) { near.In(s).To(dev) }},
	} {
		onCPU := dev.Info().Host
		switch {
		case onCPU && (name == "between" || name == "from a host"):
			continue // allowed: all memory is the host's, and each replay repeats the copy
		case onCPU && name == "read copy":
			row.op = "to"
		}
		g, err := tensor.Capture(dev, row.f)
		var e *tensor.Error
		if g != nil || !errors.As(err, &e) {
			t.Errorf("%s: %v, %v", name, g, err)
			continue
		}
		if kind := tensor.ErrCapture; !errors.Is(err, kind) && name != "misuse" && name != "closed" {
			t.Errorf("%s: not of the kind ErrCapture: %v", name, err)
		}
		if row.op != "" && e.Op != row.op || !strings.Contains(e.Site, "tensor/capture_test.go:") && name != "print" {
			t.Errorf("%s: op %q, site %q: %v", name, e.Op, e.Site, err)
		}
		if w.Grad() != nil {
			t.Errorf("%s: a gradient that was never computed is left", name)
			w.ZeroGrad()
		}
		if now := dev.Stats(); now.Allocated != stats.Allocated {
			t.Fatalf("%s: %d bytes are allocated, %d were before", name, now.Allocated, stats.Allocated)
		}
	}
	if v := total(); math.Abs(v-24) > 1e-4 {
		t.Errorf("the sum is %v", v)
	}
	// Panics that are not errors of the library are passed on. They leave nothing of the capture
	// either.
	func() {
		defer func() {
			if r := recover(); r != "mine" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, _ = tensor.Capture(dev, func(s *tensor.Scope) { x.In(s).AddScalar(1); panic("mine") })
	}()
	if now := dev.Stats(); now.Allocated != stats.Allocated {
		t.Errorf("after a panic %d bytes are allocated, %d were before", now.Allocated, stats.Allocated)
	}
}

// TestDroppedGraph drops a graph without closing it. The garbage collector must close the graph,
// but only after its results were dropped too.
func TestDroppedGraph(t *testing.T) { recorders(t, testDroppedGraph) }

func testDroppedGraph(t *testing.T, open func(seed int) device.Device) {
	dev := open(0)
	x := tensor.Root().On(dev).Ones(8)
	y := func() (y *tensor.Tensor) {
		g := capture(t, dev, func(s *tensor.Scope) { y = x.In(s).Add(s.Rand(8)) })
		ok(t, g.Replay())
		return y
	}()
	runtime.GC()
	if v := y.Floats()[0]; v < 1 || v >= 2 {
		t.Errorf("the result of a graph that was dropped is %v", v)
	}
	runtime.KeepAlive(y)
	y = nil
	for range 200 {
		runtime.GC()
		if pinned(dev) == 0 && dev.Stats().Allocated == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d bytes of page-locked memory and %d of the device's are left", pinned(dev), dev.Stats().Allocated)
}

// TestCaptureWithoutMemory makes and replays a graph in meta mode, in which nothing is computed.
func TestCaptureWithoutMemory(t *testing.T) {
	list, err := cuda.Emulate("emulate,mem=64GiB,mode=meta")
	ok(t, err)
	x := tensor.Root().On(list[0]).Ones(1<<14, 1<<14)
	g := capture(t, list[0], func(s *tensor.Scope) { x.In(s).MatMul(x).Dropout(0.5) }, tensor.NoGrad())
	for range 3 {
		ok(t, g.Replay())
	}
	ok(t, g.Close())
	x.Free()
}

// TestMovedSinceCapture moves or converts a leaf, or its gradient, after a capture. Replay must
// then return an error, because the leaf has left the memory that the graph uses. Other changes
// must not matter.
func TestMovedSinceCapture(t *testing.T) { recorders(t, testMovedSinceCapture) }

func testMovedSinceCapture(t *testing.T, open func(seed int) device.Device) {
	cpu, err := device.Open("cpu")
	ok(t, err)
	for name, row := range map[string]struct {
		f    func(w *tensor.Tensor)
		left bool
	}{
		"moved there and back": {func(w *tensor.Tensor) { d := w.Device(); w.MoveTo(cpu); w.MoveTo(d) }, true},
		"converted":            {func(w *tensor.Tensor) { w.CastInPlace(dtype.F64); w.CastInPlace(dtype.F32) }, true},
		"nowhere":              {func(w *tensor.Tensor) { w.MoveTo(w.Device()); w.CastInPlace(dtype.F32) }, false},
		// the graph keeps the memory of w, so this replay succeeds
		"freed": {func(w *tensor.Tensor) { w.Free() }, false},
	} {
		dev := open(0)
		m := tensor.Root().On(dev)
		w, x := m.Full(0.5, 4, 4).RequiresGrad(), m.Ones(2, 4)
		g := capture(t, dev, func(s *tensor.Scope) {
			w.ZeroGrad()
			x.In(s).MatMul(w).Sum().Backward()
		})
		ok(t, g.Replay())
		row.f(w)
		launched := launches(dev)
		if err := g.Replay(); errors.Is(err, tensor.ErrCapture) != row.left || err != nil && (!row.left || !strings.Contains(err.Error(), "capture it again")) {
			t.Errorf("%s: a replay gives %v", name, err)
		}
		if n := launches(dev) - launched; (n == 0) != row.left && dev.Info().Kind == "cuda" {
			t.Errorf("%s: %d launches", name, n)
		}
		ok(t, g.Close())
	}
}

// TestCapturedHooksFail lets functions of Check and Then panic. After a panic in Check, Replay must
// return the error and queue nothing. After a panic in Then, the other functions must still be
// called.
func TestCapturedHooksFail(t *testing.T) { recorders(t, testCapturedHooksFail) }

func testCapturedHooksFail(t *testing.T, open func(seed int) device.Device) {
	dev := open(0)
	x := tensor.Root().On(dev).Zeros(3)
	bad, late, counted := false, false, 0
	g := capture(t, dev, func(s *tensor.Scope) {
		x.In(s).AddScalarInPlace(1)
		g := s.Capture()
		g.Check(func() error {
			if bad {
				panic(tensor.NewError("check", tensor.ErrValue, "a mishap before"))
			}
			return nil
		})
		g.Then(func() {
			if late {
				panic(tensor.NewError("then", tensor.ErrValue, "a mishap behind"))
			}
		})
		g.Then(func() { counted++ })
	})
	ok(t, g.Replay())
	bad = true
	if err := g.Replay(); !errors.Is(err, tensor.ErrValue) || !strings.Contains(err.Error(), "mishap before") {
		t.Errorf("a check that panics: %v", err)
	}
	bad, late = false, true
	if err := g.Replay(); !errors.Is(err, tensor.ErrValue) || !strings.Contains(err.Error(), "mishap behind") {
		t.Errorf("a function behind that panics: %v", err)
	}
	late = false
	ok(t, g.Replay())
	if v := x.Floats()[0]; v != 3 || counted != 3 {
		t.Errorf("%v replays, %d of them counted", v, counted)
	}
	ok(t, g.Close())
}
