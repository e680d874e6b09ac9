package cuda_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// stepper is a perceptron with dropout and its training step. Tests run the step eagerly or
// captured.
type stepper struct {
	dev  *cuda.Device
	m    *nn.Sequential
	opt  optim.Optimizer
	gen  *tensor.Generator
	x, y *tensor.Tensor // inputs that each step overwrites
	loss *tensor.Tensor // loss of the last step, in a tensor that outlives the step
	clip func(params []*tensor.Tensor)
}

func newStepper(t *testing.T, seed int, opt func([]*tensor.Tensor) optim.Optimizer) *stepper {
	t.Helper()
	list, err := cuda.Emulate(fmt.Sprintf("emulate,mem=64MiB,seed=%d", seed))
	if err != nil {
		t.Fatal(err)
	}
	return newStepperOn(list[0], opt)
}

func newStepperOn(dev *cuda.Device, opt func([]*tensor.Tensor) optim.Optimizer) *stepper {
	p := &stepper{dev: dev, gen: tensor.NewGenerator(11)}
	layers := nn.NewSequential(nn.NewLinear(6, 10), nn.NewBatchNorm1d(10), nn.GELU{}, nn.NewDropout(0.25), nn.NewLinear(10, 5))
	g := tensor.NewGenerator(3)
	tensor.Do(func(s *tensor.Scope) {
		for _, w := range nn.Parameters(layers) {
			w.In(s).NormalInPlace(0, 0.3)
		}
	}, tensor.WithGenerator(g), tensor.NoGrad())
	p.m = nn.To(layers, p.dev)
	p.opt = opt(nn.Parameters(p.m))
	m := tensor.Root().On(p.dev)
	p.x, p.y, p.loss = m.Zeros(8, 6), m.Typed(dtype.I64).Zeros(8), m.Zeros()
	return p
}

// step is the training step that tests run or capture.
func (p *stepper) step(s *tensor.Scope) {
	loss := nn.CrossEntropy(p.m.Forward(p.x.In(s)), p.y.In(s))
	loss.Backward()
	if p.clip != nil {
		p.clip(nn.Parameters(p.m))
	}
	p.opt.Step()
	p.opt.ZeroGrad()
	s.Do(func(c *tensor.Scope) { p.loss.In(c).Copy(loss.Detach()) }, tensor.NoGrad())
}

// feed copies batch k to the inputs, and sets the learning rate of step k.
func (p *stepper) feed(k int) {
	tensor.Do(func(s *tensor.Scope) {
		x, y := make([]float32, 48), make([]int64, 8)
		for i := range x {
			x[i] = float32(math.Sin(float64(i*(k+1)))) + float32(i%5)*0.1
		}
		for i := range y {
			y[i] = int64((i*k + k) % 5)
		}
		p.x.In(s).Copy(s.From(x).Reshape(8, 6))
		p.y.In(s).Copy(s.From(y))
	}, tensor.NoGrad())
	p.opt.SetLR(0.05 / (1 + 0.3*float64(k)))
}

// numbers returns the values of everything that a step changes: the loss, parameters and states.
func (p *stepper) numbers() (v []float64) {
	v = append(v, p.loss.Item())
	d := nn.StateDict(p.m)
	for _, name := range slices.Sorted(maps.Keys(d)) {
		v = append(v, d[name].Floats()...)
	}
	seed, offset := p.gen.State()
	return append(v, float64(seed), float64(offset), float64(p.opt.Steps()))
}

func (p *stepper) options() []tensor.Option {
	return []tensor.Option{tensor.On(p.dev), tensor.WithGenerator(p.gen)}
}

func adamW(params []*tensor.Tensor) optim.Optimizer {
	n := len(params) / 2
	return optim.NewAdamWGroups(optim.With[optim.AdamConfig]{Params: params[:n], Config: optim.AdamConfig{LR: 0.05, WeightDecay: 0.01}},
		optim.With[optim.AdamConfig]{Params: params[n:], Config: optim.AdamConfig{LR: 0.05}})
}

// TestCapturedTraining checks that replays of a captured training step compute the same bits as
// eager steps. It compares losses, parameters, running statistics, numbers of steps and the state
// of the generator. Inputs and learning rates change, and the driver chooses any order. Each replay
// must be one launch. Memory use must stay constant, and all memory must be given back.
func TestCapturedTraining(t *testing.T) {
	clip := func(params []*tensor.Tensor) { optim.ClipGradNorm(params, 0.7) }
	for name, row := range map[string]struct {
		opt          func([]*tensor.Tensor) optim.Optimizer
		clip         func([]*tensor.Tensor)
		seeds, steps int
	}{
		"AdamW": {adamW, clip, 3, 12},
		"SGD": {func(p []*tensor.Tensor) optim.Optimizer {
			return optim.NewSGD(p, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Dampening: 0.3})
		}, nil, 1, 6},
		"NAdam": {func(p []*tensor.Tensor) optim.Optimizer { return optim.NewNAdam(p, optim.NAdamConfig{LR: 0.01}) }, func(p []*tensor.Tensor) { optim.ClipGradValue(p, 0.05) }, 1, 6},
		"RAdam": {func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRAdam(p, optim.RAdamConfig{LR: 0.01}) }, nil, 1, 6},
		"Rprop": {func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRprop(p, optim.RpropConfig{LR: 0.01}) }, nil, 1, 6},
		"ASGD":  {func(p []*tensor.Tensor) optim.Optimizer { return optim.NewASGD(p, optim.ASGDConfig{LR: 0.01, T0: 3}) }, nil, 1, 6},
	} {
		if testing.Short() && name != "AdamW" {
			continue // without FLAMBEAU_SOAK only one optimizer is tested
		}
		t.Run(name, func(t *testing.T) {
			switch {
			case os.Getenv("FLAMBEAU_SOAK") != "":
				row.seeds *= 20
			case testing.Short():
				row.seeds, row.steps = 1, 3
			}
			eager := newStepper(t, 0, row.opt)
			eager.clip = row.clip
			var want [][]float64
			for k := range row.steps {
				eager.feed(k)
				tensor.Do(eager.step, eager.options()...)
				want = append(want, eager.numbers())
			}
			for seed := range row.seeds {
				p := newStepper(t, seed, row.opt)
				p.clip = row.clip
				before := p.numbers()
				launches := p.dev.Counters().Launches
				g, err := tensor.Capture(p.dev, p.step, p.options()...)
				if err != nil {
					t.Fatal(err)
				}
				// most of these launches clear the optimizer's state
				if n := p.dev.Counters().Launches - launches; n > 40 {
					t.Errorf("%d launches by the capture", n)
				}
				if !slices.Equal(p.numbers(), before) {
					t.Error("the capture has changed something")
				}
				for k := range row.steps {
					p.feed(k)
					before := p.dev.Counters().Launches
					if err := g.Replay(); err != nil {
						t.Fatal(err)
					}
					// Before the first replay of Rprop, one more launch stores the current learning
					// rate.
					if n := p.dev.Counters().Launches - before; n != 1 && (k > 0 || name != "Rprop") {
						t.Errorf("%d launches by a replay of %d operations", n, g.Operations())
					}
					if k%3 == 2 && !slices.Equal(p.numbers(), want[k]) {
						t.Fatalf("seed %d, step %d:\n%v\nwant\n%v", seed, k, p.numbers()[:20], want[k][:20])
					}
				}
				if err := g.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestCapturedAmongEager alternates eager steps and replays. Each step must continue from the state
// that the previous step left.
func TestCapturedAmongEager(t *testing.T) {
	run := func(captured bool) [][]float64 {
		p := newStepper(t, 2, adamW)
		var all [][]float64
		eager := func(k int) { p.feed(k); tensor.Do(p.step, p.options()...); all = append(all, p.numbers()) }
		eager(0)
		step := eager
		if captured {
			g, err := tensor.Capture(p.dev, p.step, p.options()...)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			step = func(k int) {
				p.feed(k)
				if err := g.Replay(); err != nil {
					t.Fatal(err)
				}
				all = append(all, p.numbers())
			}
		}
		step(1)
		step(2)
		eager(3)
		step(4)
		eager(5)
		return all
	}
	want, got := run(false), run(true)
	for k := range want {
		if !slices.Equal(want[k], got[k]) {
			t.Errorf("step %d differs", k)
		}
	}
}

// TestReplaysKeepMemoryFlat runs 100 replays without a wait. Memory use must stay constant, and all
// memory must be given back.
func TestReplaysKeepMemoryFlat(t *testing.T) {
	p := newStepper(t, 5, adamW)
	tensor.Do(p.step, p.options()...) // allocate the optimizer's state
	p.numbers()
	before := p.dev.Stats()
	g, err := tensor.Capture(p.dev, p.step, p.options()...)
	if err != nil {
		t.Fatal(err)
	}
	p.feed(1)
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	flat, pinned := p.dev.Stats(), p.dev.PinnedStats()
	n := 100
	if testing.Short() {
		n = 10
	}
	for range n {
		if err := g.Replay(); err != nil {
			t.Fatal(err)
		}
	}
	now := p.dev.Stats()
	if now.Allocated != flat.Allocated || now.Reserved != flat.Reserved || now.AllocatedTotal != flat.AllocatedTotal {
		t.Errorf("%d bytes allocated and %d reserved after the replays, %d and %d after one", now.Allocated, now.Reserved, flat.Allocated, flat.Reserved)
	}
	if p.dev.PinnedStats().Allocated != pinned.Allocated {
		t.Error("page-locked memory grows")
	}
	if v := p.loss.Item(); math.IsNaN(v) || p.opt.Steps() != n+2 {
		t.Errorf("a loss of %v after %d steps", v, p.opt.Steps())
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.dev.Synchronize(); err != nil {
		t.Fatal(err)
	}
	p.dev.Empty()
	if now := p.dev.Stats(); now.Allocated != before.Allocated || now.Reserved > before.Reserved {
		t.Errorf("%d bytes allocated and %d reserved after Close, %d and %d before the capture", now.Allocated, now.Reserved, before.Allocated, before.Reserved)
	}
	if n := p.dev.PinnedStats().Allocated; n != 0 {
		t.Errorf("%d bytes of page-locked memory are left", n)
	}
}

// TestGraphsOnTwoGoroutines tests two goroutines that capture and replay on one device at the same
// time.
func TestGraphsOnTwoGoroutines(t *testing.T) {
	list, err := cuda.Emulate("emulate,mem=64MiB,seed=9")
	if err != nil {
		t.Fatal(err)
	}
	dev := list[0]
	shared := tensor.Root().On(dev).Full(0.5, 16, 16)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			m := tensor.Root().On(dev)
			w, x := m.Full(0.25*float64(i+1), 16, 16).RequiresGrad(), m.Zeros(4, 16)
			opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1})
			g, err := tensor.Capture(dev, func(s *tensor.Scope) {
				x.In(s).MatMul(shared).MatMul(w).Sum().Backward()
				opt.Step()
				opt.ZeroGrad()
			})
			if err != nil {
				t.Error(err)
				return
			}
			for k := range 10 {
				tensor.Do(func(s *tensor.Scope) { x.In(s).Fill(float64(k)) })
				if err := g.Replay(); err != nil {
					t.Error(err)
					return
				}
			}
			// In replay k each element of the gradient is 4·k·16·0.5 = 32·k. The k add up to 45.
			want := 0.25*float64(i+1) - 0.1*32*45
			if got := w.Detach().Floats()[7]; math.Abs(got-want) > 1e-3 {
				t.Errorf("goroutine %d: %v, want %v", i, got, want)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestStaleCapture changes the optimizer's state after a capture. A replay must then return an
// error and change nothing.
func TestStaleCapture(t *testing.T) {
	p := newStepper(t, 0, adamW)
	g, err := tensor.Capture(p.dev, p.step, p.options()...)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
	before := p.numbers()
	if err := p.opt.LoadStateDict(p.opt.StateDict()); err != nil {
		t.Fatal(err)
	}
	var oe *optim.Error
	if err := g.Replay(); !errors.As(err, &oe) {
		t.Errorf("a replay with a state that was loaded: %v", err)
	}
	if !slices.Equal(p.numbers(), before) {
		t.Error("it has changed something")
	}
	if _, err := tensor.Capture(p.dev, func(s *tensor.Scope) { p.opt.Step() }); !errors.Is(err, tensor.ErrCapture) {
		t.Errorf("a capture of nothing: %v", err)
	}
	var d device.Device = p.dev
	if _, ok := d.(device.Recorder); !ok {
		t.Error("a GPU does not record")
	}
}

// TestCapturedGradients accumulates the gradients of two passes in a captured step, with and
// without an earlier gradient. They must equal those of eager steps. Gradients that the step does
// not free must be readable after a replay.
func TestCapturedGradients(t *testing.T) {
	run := func(captured, before bool) (all []float64) {
		list, err := cuda.Emulate("emulate,mem=64MiB,seed=3")
		if err != nil {
			t.Fatal(err)
		}
		dev := list[0]
		m := tensor.Root().On(dev)
		w, x := m.Full(0.5, 4, 4).RequiresGrad(), m.Zeros(2, 4)
		f := func(s *tensor.Scope) {
			if !before {
				w.ZeroGrad()
			}
			x.In(s).MatMul(w).Square().Sum().Backward()
			x.In(s).MulScalar(2).MatMul(w).Sum().Backward()
		}
		if before {
			tensor.Do(f, tensor.On(dev))
		}
		step := func() error { return tensor.Try(func() { tensor.Do(f, tensor.On(dev)) }) }
		if captured {
			g, err := tensor.Capture(dev, f)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			step = g.Replay
		}
		for k := range 4 {
			tensor.Do(func(s *tensor.Scope) { x.In(s).Fill(float64(k) + 0.25) })
			if err := step(); err != nil {
				t.Fatal(err)
			}
			all = append(all, w.Grad().Floats()...)
		}
		return all
	}
	for _, before := range []bool{false, true} {
		if want, got := run(false, before), run(true, before); !slices.Equal(want, got) {
			t.Errorf("a gradient before: %v: replays give %v, eager steps %v", before, got, want)
		}
	}
}

// TestNotCapturedSteps captures steps that compute on the host, and steps that a replay would not
// repeat. The capture must return an error.
func TestNotCapturedSteps(t *testing.T) {
	list, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := list[0]
	w := tensor.Root().On(dev).Full(0.5, 4, 4).RequiresGrad()
	params := []*tensor.Tensor{w}
	lbfgs := optim.NewLBFGS(params, optim.LBFGSConfig{LR: 0.1})
	sgd := optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
	for name, f := range map[string]func(){
		"LBFGS":      func() { lbfgs.Step(func() float64 { return w.Square().Sum().Item() }) },
		"norm check": func() { optim.ClipGradNorm(params, 1, optim.ErrorIfNonfinite()) },
	} {
		stats := dev.Stats().Allocated
		_, err := tensor.Capture(dev, func(s *tensor.Scope) {
			w.In(s).Square().Sum().Backward()
			f()
		})
		if !errors.Is(err, tensor.ErrCapture) {
			t.Errorf("%s: %v", name, err)
		}
		// An optimizer may have allocated its state during the failed capture.
		if w.Grad() != nil || dev.Stats().Allocated > stats+4096 {
			t.Errorf("%s: something is left of the capture", name)
		}
	}
	if _, err := tensor.Capture(dev, func(s *tensor.Scope) { s.Zeros(1 << 24) }); !errors.Is(err, device.ErrOutOfMemory) || errors.Is(err, tensor.ErrCapture) {
		t.Errorf("too much memory: %v", err)
	}
	tensor.Do(func(s *tensor.Scope) {
		w.In(s).Sum().Backward()
		sgd.Step()
	})
	if v := w.Detach().Floats()[3]; math.Abs(v-0.4) > 1e-6 {
		t.Errorf("an eager step after failed captures gives %v", v)
	}
}
