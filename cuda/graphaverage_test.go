package cuda_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCapturedAverages updates averages of the weights in a captured step. They must have the same
// bits as with eager steps. That includes the first update, which copies the parameters.
func TestCapturedAverages(t *testing.T) {
	for name, make := range map[string]func(m any) *optim.Averaged{
		"EMA":              func(m any) *optim.Averaged { return optim.NewEMA(m, 0.9) },
		"EMA back":         func(m any) *optim.Averaged { return optim.NewEMA(m, 0.3) },
		"SWA":              func(m any) *optim.Averaged { return optim.NewSWA(m) },
		"SWA with buffers": func(m any) *optim.Averaged { return optim.NewSWA(m, optim.AverageBuffers()) },
		"EMA with buffers": func(m any) *optim.Averaged { return optim.NewEMA(m, 0.75, optim.AverageBuffers()) },
	} {
		if testing.Short() && name != "EMA" {
			continue
		}
		run := func(captured bool) (all [][]float64) {
			p := newStepper(t, 3, adamW)
			a := make(p.m)
			step := func(s *tensor.Scope) { p.step(s); a.Update() }
			do := func() error { return tensor.Try(func() { tensor.Do(step, p.options()...) }) }
			// The first update must not be captured, because later updates average the batch
			// counter differently.
			if name == "EMA with buffers" {
				if captured {
					if _, err := tensor.Capture(p.dev, step, p.options()...); !errors.Is(err, tensor.ErrCapture) {
						t.Errorf("%s: %v", name, err)
					}
				}
				a.Update()
			}
			if captured {
				g, err := tensor.Capture(p.dev, step, p.options()...)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				defer g.Close()
				do = g.Replay
			}
			for k := range 5 {
				p.feed(k)
				if err := do(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				v := append(p.numbers(), float64(a.Updates()))
				m := a.Averages()
				for _, n := range slices.Sorted(maps.Keys(m)) {
					v = append(v, m[n].Floats()...)
				}
				all = append(all, v)
			}
			if captured {
				var oe *optim.Error
				a.With(func() {
					if err := do(); !errors.As(err, &oe) {
						t.Errorf("%s: a replay with the averages in the model: %v", name, err)
					}
				})
				if err := a.LoadStateDict(a.StateDict()); err != nil {
					t.Fatal(err)
				}
				if err := do(); !errors.As(err, &oe) {
					t.Errorf("%s: a replay with averages that were loaded: %v", name, err)
				}
			}
			return all
		}
		want, got := run(false), run(true)
		for k := range want {
			if !slices.Equal(want[k], got[k]) {
				t.Errorf("%s, step %d: replays give\n%v, eager steps\n%v", name, k, got[k], want[k])
				break
			}
		}
	}
}

// TestCapturedMuon captures a step in which Muon updates the matrices, and AdamW updates all other
// parameters. Replays must compute the same bits as eager steps. Learning rate, momentum and decay
// change between replays. A change of settings that choose the kernels must be refused.
func TestCapturedMuon(t *testing.T) {
	steps := 5
	if testing.Short() {
		steps = 3
	}
	run := func(captured bool) (all [][]float64) {
		var muon *optim.Muon
		p := newStepper(t, 2, func(params []*tensor.Tensor) optim.Optimizer {
			var matrices, rest []*tensor.Tensor
			for _, w := range params {
				if w.Rank() == 2 {
					matrices = append(matrices, w)
				} else {
					rest = append(rest, w)
				}
			}
			muon = optim.NewMuon(matrices, optim.MuonConfig{LR: 0.02, WeightDecay: 0.1, Iterations: 2})
			return optim.NewAdamW(rest, optim.AdamConfig{LR: 0.05})
		})
		step := func(s *tensor.Scope) {
			loss := nn.CrossEntropy(p.m.Forward(p.x.In(s)), p.y.In(s))
			loss.Backward()
			muon.Step()
			p.opt.Step()
			muon.ZeroGrad()
			p.opt.ZeroGrad()
		}
		do := func() error { return tensor.Try(func() { tensor.Do(step, p.options()...) }) }
		if captured {
			g, err := tensor.Capture(p.dev, step, p.options()...)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			do = g.Replay
		}
		set := func(name string, v any) {
			if err := muon.Groups()[0].SetOption(name, v); err != nil {
				t.Fatal(err)
			}
		}
		for k := range steps {
			p.feed(k)
			muon.SetLR(0.02 / float64(k+1))
			if k == 2 {
				set("momentum", 0.9)
				set("weight_decay", 0.2)
			}
			if err := do(); err != nil {
				t.Fatal(err)
			}
			all = append(all, append(p.numbers(), float64(muon.Steps())))
		}
		if captured {
			before := p.numbers()
			set("ns_steps", int64(4))
			var oe *optim.Error
			if err := do(); !errors.As(err, &oe) {
				t.Errorf("a replay with other kernels: %v", err)
			}
			if !slices.Equal(before, p.numbers()) {
				t.Error("it has changed something")
			}
		}
		return all
	}
	if want, got := run(false), run(true); !slices.EqualFunc(want, got, slices.Equal) {
		t.Errorf("replays give\n%v, eager steps\n%v", got, want)
	}
}

// TestNotCapturedOnce captures updates and steps that would run in the capture, but not in replays.
// The capture must return an error and change nothing.
func TestNotCapturedOnce(t *testing.T) {
	for name, c := range map[string]func(p *stepper, a *optim.Averaged) func(s *tensor.Scope){
		"an average before the forward pass": func(p *stepper, a *optim.Averaged) func(s *tensor.Scope) {
			return func(s *tensor.Scope) { a.Update(); p.step(s) }
		},
		"an average before the backward pass": func(p *stepper, a *optim.Averaged) func(s *tensor.Scope) {
			return func(s *tensor.Scope) {
				loss := nn.CrossEntropy(p.m.Forward(p.x.In(s)), p.y.In(s))
				a.Update()
				loss.Backward()
				p.opt.Step()
			}
		},
		"a step with old gradients": func(p *stepper, a *optim.Averaged) func(s *tensor.Scope) {
			tensor.Do(func(s *tensor.Scope) { nn.CrossEntropy(p.m.Forward(p.x.In(s)), p.y.In(s)).Backward() }, p.options()...)
			return func(s *tensor.Scope) { p.x.In(s).AddScalar(1); p.opt.Step() }
		},
		"clipping of old gradients": func(p *stepper, a *optim.Averaged) func(s *tensor.Scope) {
			tensor.Do(func(s *tensor.Scope) { nn.CrossEntropy(p.m.Forward(p.x.In(s)), p.y.In(s)).Backward() }, p.options()...)
			return func(s *tensor.Scope) { p.x.In(s).AddScalar(1); optim.ClipGradValue(p.opt.Params(), 1e-3) }
		},
	} {
		p := newStepper(t, 0, adamW)
		p.feed(0)
		tensor.Do(p.step, p.options()...)
		a := optim.NewEMA(&struct {
			W *tensor.Tensor `nn:"w"`
			// The struct lacks the model's running statistics, because these would also cause an
			// error.
		}{p.opt.Params()[0]}, 0.5)
		a.Update()
		f := c(p, a)
		read := func() []float64 {
			v := append(p.numbers(), float64(a.Updates()))
			m := a.Averages()
			for _, n := range slices.Sorted(maps.Keys(m)) {
				v = append(v, m[n].Floats()...)
			}
			for _, w := range p.opt.Params() {
				if d := w.Grad(); d != nil {
					v = append(v, d.Floats()...)
				}
			}
			return v
		}
		before := read()
		g, err := tensor.Capture(p.dev, f, p.options()...)
		if g != nil || !errors.Is(err, tensor.ErrCapture) {
			t.Errorf("%s: %v, %v", name, g, err)
		}
		if !slices.Equal(read(), before) {
			t.Errorf("%s: the capture has changed something", name)
		}
		p.feed(1)
		if err := tensor.Try(func() { tensor.Do(p.step, p.options()...); a.Update() }); err != nil || a.Updates() != 2 || p.opt.Steps() != 2 {
			t.Errorf("%s: a step afterwards: %v, %d updates after %d steps", name, err, a.Updates(), p.opt.Steps())
		}
	}
}
