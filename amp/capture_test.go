package amp_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// scaled is a training with a scaler. The gradients of a batch overflow if its fourth number is
// infinite.
type scaled struct {
	dev  *cuda.Device
	w, v *tensor.Tensor
	x    *tensor.Tensor // batch
	opt  optim.Optimizer
	s    *amp.GradScaler
	told []amp.Warning
}

func newScaled(t testing.TB, seed int, make func([]*tensor.Tensor) optim.Optimizer) *scaled {
	t.Helper()
	list, err := cuda.Emulate(fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed))
	if err != nil {
		t.Fatal(err)
	}
	p := &scaled{dev: list[0]}
	root := tensor.Root().On(p.dev)
	p.w = root.From([]float32{1, -2, 0.5, 3}).RequiresGrad()
	p.v = root.From([]float32{0.1, 0.2, -0.3, 0.4}).Reshape(2, 2).RequiresGrad()
	p.x = root.Zeros(4)
	p.opt = make([]*tensor.Tensor{p.w, p.v})
	p.s = amp.NewGradScaler(amp.InitScale(1024), amp.GrowthInterval(3), amp.WarnAfter(2, func(w amp.Warning) { p.told = append(p.told, w) }))
	return p
}

// step makes one training step, eagerly or in a capture.
func (p *scaled) step(s *tensor.Scope) {
	x := p.x.In(s)
	loss := p.w.In(s).Mul(x).Square().Sum().Add(p.v.In(s).Reshape(4).Mul(x).Square().Mean())
	p.s.Scale(loss).Backward()
	p.s.Unscale(p.opt)
	optim.ClipGradNorm(p.opt.Params(), 0.8)
	p.s.Step(p.opt)
	p.s.Update()
	p.w.ZeroGrad()
	p.v.ZeroGrad()
}

// overflows has the steps whose gradients overflow: the first step, a single step, and series of
// two and of three steps.
var overflows = map[int]bool{0: true, 7: true, 12: true, 13: true, 18: true, 19: true, 20: true}

func (p *scaled) feed(k int) {
	x := []float32{0.5, float32(math.Sin(float64(k + 1))), 0.25, 0.1}
	if overflows[k] {
		x[3] = float32(math.Inf(1))
	}
	tensor.Do(func(s *tensor.Scope) { p.x.In(s).Copy(s.From(x)) }, tensor.NoGrad())
	p.opt.SetLR(0.05 / (1 + 0.1*float64(k)))
}

func (p *scaled) numbers() []float64 {
	return append(append(p.w.Detach().Floats(), p.v.Detach().Floats()...), p.s.Value(), float64(p.s.GrowthTracker()), float64(p.opt.Steps()), float64(p.s.Skipped()))
}

var rules = map[string]func([]*tensor.Tensor) optim.Optimizer{
	"SGD": func(p []*tensor.Tensor) optim.Optimizer {
		return optim.NewSGD(p, optim.SGDConfig{LR: 0.05, Momentum: 0.9, Dampening: 0.5})
	},
	"AdamW": func(p []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdamWGroups(optim.With[optim.AdamConfig]{Params: p[:1], Config: optim.AdamConfig{LR: 0.05, WeightDecay: 0.1}},
			optim.With[optim.AdamConfig]{Params: p[1:], Config: optim.AdamConfig{LR: 0.05, AMSGrad: true}})
	},
	"NAdam": func(p []*tensor.Tensor) optim.Optimizer { return optim.NewNAdam(p, optim.NAdamConfig{LR: 0.05}) },
	"ASGD":  func(p []*tensor.Tensor) optim.Optimizer { return optim.NewASGD(p, optim.ASGDConfig{LR: 0.05}) },
	"Adagrad": func(p []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdagrad(p, optim.AdagradConfig{LR: 0.05, InitialAccumulator: 0.3, LRDecay: 0.1})
	},
	"Rprop": func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRprop(p, optim.RpropConfig{LR: 0.05}) },
	"Muon": func(p []*tensor.Tensor) optim.Optimizer {
		return optim.NewMuonGroups(optim.With[optim.MuonConfig]{Params: p[1:], Config: optim.MuonConfig{LR: 0.05, WeightDecay: 0.1}})
	},
	"Adafactor": func(p []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdafactorGroups(optim.With[optim.AdafactorConfig]{Params: p[:1], Config: optim.AdafactorConfig{LR: 0.05, WeightDecay: 0.1}},
			optim.With[optim.AdafactorConfig]{Params: p[1:], Config: optim.AdafactorConfig{LR: 0.05, Maximize: true}})
	},
	"RAdam": func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRAdam(p, optim.RAdamConfig{LR: 0.05}) },
}

// Replays of a captured step with a scaler are bitwise equal to eager steps, whether or not the
// program reads values between the steps. Some steps are skipped, including the first. The scale
// grows and falls, learning rates change, and eager steps run between replays. The number of steps,
// the skipped steps and the warnings are the same too.
func TestCapturedSteps(t *testing.T) {
	const steps = 24
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		if testing.Short() && name != "AdamW" {
			continue
		}
		for seed, ask := range []bool{false, true, false} {
			if seed != 0 && (testing.Short() || name != "AdamW") {
				continue
			}
			run := func(captured bool, between bool) (all [][]float64, p *scaled) {
				p = newScaled(t, seed, rules[name])
				eager := func() error { return tensor.Try(func() { tensor.Do(p.step) }) }
				do := eager
				if captured {
					g, err := tensor.Capture(p.dev, p.step)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					defer func() {
						if err := g.Close(); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}()
					do = g.Replay
				}
				for k := range steps {
					p.feed(k)
					now := do
					if between && k%5 == 3 {
						now = eager
					}
					if err := now(); err != nil {
						t.Fatalf("%s, step %d: %v", name, k, err)
					}
					if ask || k == steps-1 {
						all = append(all, p.numbers())
					}
				}
				return all, p
			}
			want, e := run(false, false)
			if last := want[len(want)-1]; last[len(last)-1] != float64(len(overflows)) || last[len(last)-2] != float64(steps-len(overflows)) || len(e.told) != 2 {
				t.Fatalf("%s: %v steps, %v left out, %d warnings: the test does not test what it should", name, last[len(last)-2], last[len(last)-1], len(e.told))
			}
			for _, between := range []bool{false, true} {
				if testing.Short() && !between {
					continue
				}
				got, p := run(true, between)
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Errorf("%s, seed %d, asked %v, eager steps between %v: reading %d: replays give\n%v, eager steps\n%v", name, seed, ask, between, i, got[i], want[i])
						break
					}
				}
				if !slices.Equal(p.told, e.told) {
					t.Errorf("%s: warnings %v, by eager steps %v", name, p.told, e.told)
				}
				for _, d := range [][2]map[string]any{{p.opt.StateDict(), e.opt.StateDict()}, {p.s.StateDict(), e.s.StateDict()}} {
					if a, b := numeric(d[0]), numeric(d[1]); !reflect.DeepEqual(a, b) {
						t.Errorf("%s: the state is\n%v, by eager steps\n%v", name, a, b)
					}
				}
			}
		}
	}
}

// numeric returns a state in which numbers replace tensors.
func numeric(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, x := range v {
			m[k] = numeric(x)
		}
		return m
	case map[int64]any:
		m := map[int64]any{}
		for k, x := range v {
			m[k] = numeric(x)
		}
		return m
	case []any:
		var l []any
		for _, x := range v {
			l = append(l, numeric(x))
		}
		return l
	case *tensor.Tensor:
		return v.Floats()
	}
	return v
}

// The host queues replays without waiting for earlier ones, even for an optimizer whose scalars
// depend on the number of steps.
func TestCapturedWithoutWaiting(t *testing.T) {
	p := newScaled(t, 0, rules["AdamW"])
	g, err := tensor.Capture(p.dev, p.step)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	p.feed(1)
	if err := p.dev.Synchronize(); err != nil {
		t.Fatal(err)
	}
	before := p.dev.Counters().Downloads
	w := &waits{}
	if !device.SetTracer(w) {
		t.Fatal("another tracer is set")
	}
	defer device.SetTracer(nil)
	for range 4 {
		if err := g.Replay(); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.dev.Counters().Downloads - before; n != 8 || w.n != 0 {
		t.Errorf("four replays make the host wait %d times, and bring %d numbers to it, which are 2 each", w.n, n)
	}
}

// waits is a tracer that counts how often the host waits.
type waits struct {
	n int
}

func (w *waits) Wants() device.TraceWants        { return device.TraceWants{} }
func (w *waits) Begin(device.Span) device.SpanID { return device.NewSpanID() }
func (w *waits) End(device.SpanID)               {}
func (w *waits) Recorded(uint64)                 {}
func (w *waits) Sync(device.SyncEvent)           { w.n++ }
func (w *waits) Copy(device.CopyEvent)           {}
func (w *waits) Kernel(device.KernelEvent)       {}
func (w *waits) Memory(device.MemoryEvent)       {}

// Two graphs share an optimizer and a scaler. If two goroutines replay them in any order, the
// replays run one after another.
func TestCapturedStepsTakeTurns(t *testing.T) {
	run := func(captured bool) []float64 {
		p := newScaled(t, 5, rules["AdamW"])
		p.feed(1)
		var do []func() error
		for range 2 {
			eager := func() error { tensor.Do(p.step); return nil }
			if captured {
				g, err := tensor.Capture(p.dev, p.step)
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				eager = g.Replay
			}
			do = append(do, eager)
		}
		var wg sync.WaitGroup
		for _, f := range do {
			wg.Go(func() {
				for range 8 {
					if err := f(); err != nil {
						t.Error(err)
					}
				}
			})
			if !captured {
				wg.Wait()
			}
		}
		wg.Wait()
		return p.numbers()
	}
	if want, got := run(false), run(true); !slices.Equal(got, want) {
		t.Errorf("replays give %v, eager steps %v", got, want)
	}
}

// Capturing only a part of the scaler's step is an error that says what to do. A later step works.
func TestNotCapturedWhole(t *testing.T) {
	for what, c := range map[string]struct {
		f    func(p *scaled)
		want string
	}{
		"no update":           {func(p *scaled) { p.s.Step(p.opt) }, "without an Update"},
		"unscale alone":       {func(p *scaled) { p.s.Unscale(p.opt) }, "without an Update"},
		"twice":               {func(p *scaled) { p.s.Unscale(p.opt); p.s.Unscale(p.opt) }, "unscaled already"},
		"a panic":             {func(p *scaled) { p.s.Unscale(p.opt); panic(errors.New("a mishap")) }, "a mishap"},
		"plain":               {func(p *scaled) { p.s.Step(&steps{p.opt.Params()}) }, "cannot leave a step out on the device"},
		"a scale that is set": {func(p *scaled) { p.s.Step(p.opt); p.s.UpdateTo(8) }, "the scale is set by the host"},
		"a restart":           {func(p *scaled) { p.s.Step(p.opt); p.s.Restart() }, "replays repeat them"},
		"restart early":       {func(p *scaled) { p.s.Unscale(p.opt); p.s.Restart() }, "replays repeat them"},
		"a state": {func(p *scaled) {
			p.s.Step(p.opt)
			if err := p.s.LoadStateDict(map[string]any{"scale": 8.0}); err != nil {
				panic(err)
			}
		}, "a step of the scaler is being captured"},
		"without backward": {func(p *scaled) { p.opt.ZeroGrad(); p.s.Step(p.opt) }, "no parameter of the optimizer has a gradient"},
	} {
		p := newScaled(t, 0, rules["AdamW"])
		p.feed(1)
		tensor.Do(p.step)
		err := capture(p, func(s *tensor.Scope) {
			p.s.Scale(p.w.In(s).Mul(p.x.In(s)).Square().Sum()).Backward()
			c.f(p)
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if p.w.Grad() != nil {
			t.Errorf("%s: a gradient is left", what)
		}
		p.feed(2)
		if err := tensor.Try(func() { tensor.Do(p.step) }); err != nil || p.opt.Steps() != 2 {
			t.Errorf("%s: a step afterwards: %v, %d steps", what, err, p.opt.Steps())
		}
	}
}

func capture(p *scaled, f func(s *tensor.Scope)) (err error) {
	defer func() {
		if e, ok := recover().(error); ok {
			err = e
		}
	}()
	_, err = tensor.Capture(p.dev, f)
	return err
}

// steps is an optimizer without StepUnless, so the host decides whether to make a step.
type steps struct{ params []*tensor.Tensor }

func (s *steps) Params() []*tensor.Tensor { return s.params }
func (s *steps) Step()                    {}

// The next replay uses changed settings, and a scale that the program has set.
func TestCapturedSettings(t *testing.T) {
	run := func(captured bool) []float64 {
		p := newScaled(t, 0, rules["SGD"])
		do := func() error { tensor.Do(p.step); return nil }
		if captured {
			g, err := tensor.Capture(p.dev, p.step)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			do = g.Replay
		}
		for k := range 12 {
			switch k {
			case 2:
				p.s.SetGrowthFactor(4)
			case 4:
				p.s.SetGrowthInterval(2)
			case 6:
				p.s.SetBackoffFactor(0.25)
			case 9:
				p.s.UpdateTo(64)
			case 10:
				if err := p.s.LoadStateDict(p.s.StateDict()); err != nil {
					t.Fatal(err)
				}
			}
			p.feed(k)
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		return p.numbers()
	}
	if want, got := run(false), run(true); !slices.Equal(got, want) {
		t.Errorf("replays give %v, eager steps %v", got, want)
	}
}

// The index error of a replay is returned by a later replay, which queues nothing. No step is lost
// or counted twice.
func TestCapturedIndexError(t *testing.T) {
	run := func(captured bool) (v []float64, errs int) {
		p := newScaled(t, 0, rules["AdamW"])
		ids := tensor.Root().On(p.dev).Typed(dtype.I64).Zeros(3)
		step := func(s *tensor.Scope) {
			loss := p.w.In(s).IndexSelect(0, ids.In(s)).Square().Sum()
			p.s.Scale(loss).Backward()
			p.s.Step(p.opt)
			p.s.Update()
			p.opt.ZeroGrad()
		}
		do := func() error {
			tensor.Do(step)
			return nil
		}
		if captured {
			g, err := tensor.Capture(p.dev, step)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			do = g.Replay
		}
		for k := range 14 {
			ids.Fill(float64(k % 4))
			if k == 3 || k == 8 {
				ids.Fill(99)
			}
			var index *device.IndexError
			for err := do(); err != nil; err = do() {
				if !errors.As(err, &index) {
					t.Fatal(err)
				}
				errs++
			}
			if !captured {
				if err := p.dev.Synchronize(); err != nil && errors.As(err, &index) {
					errs++
				}
			}
		}
		return p.numbers(), errs
	}
	want, n := run(false)
	got, m := run(true)
	if !slices.Equal(got, want) || n != 2 || m != 2 {
		t.Errorf("replays give %v and %d errors, eager steps %v and %d", got, m, want, n)
	}
}
