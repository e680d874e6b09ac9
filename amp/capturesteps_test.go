package amp_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// trainStep makes a step for parameter w, and also for v if withV is true. If amp is true, the step
// uses the scaler.
func (p *scaled) trainStep(s *tensor.Scope, amp, withV bool) {
	x := p.x.In(s)
	loss := p.w.In(s).Mul(x).Square().Sum()
	if withV {
		loss = loss.Add(p.v.In(s).Reshape(4).Mul(x).Square().Mean())
	}
	if amp {
		p.s.Scale(loss).Backward()
		p.s.Step(p.opt)
		p.s.Update()
	} else {
		loss.Backward()
		p.opt.Step()
	}
	p.w.ZeroGrad()
	p.v.ZeroGrad()
}

// A capture contains several steps of one optimizer, with updates of an average between them. The
// scalars in the optimizer's rule change from step to step within a replay. With a scaler, the
// device decides which steps are made. Several steps can then be captured only if the device can
// also choose their scalars.
func TestCapturedSeveralSteps(t *testing.T) {
	for _, c := range []struct {
		rule string
		amp  bool
	}{{"AdamW", false}, {"NAdam", false}, {"ASGD", false}, {"SGD", false}, {"AdamW", true}, {"SGD", true}, {"Rprop", true}} {
		if testing.Short() && c.rule != "AdamW" {
			continue
		}
		run := func(captured bool) []float64 {
			p := newScaled(t, 0, rules[c.rule])
			means := optim.NewSWA(&struct {
				W *tensor.Tensor `nn:"w"`
			}{p.w})
			step := func(s *tensor.Scope) {
				for range 3 {
					p.trainStep(s, c.amp, true)
					means.Update()
				}
			}
			do := func() error { tensor.Do(step); return nil }
			if captured {
				g, err := tensor.Capture(p.dev, step)
				if err != nil {
					t.Fatalf("%s: %v", c.rule, err)
				}
				defer g.Close()
				do = g.Replay
			}
			for k := range 8 {
				p.feed(k)
				if !c.amp && overflows[k] {
					continue
				}
				if err := do(); err != nil {
					t.Fatalf("%s: %v", c.rule, err)
				}
			}
			return append(append(p.numbers(), means.Averages()["w"].Floats()...), float64(means.Updates()))
		}
		if want, got := run(false), run(true); !slices.Equal(got, want) {
			t.Errorf("%s, scaler %v: replays give\n%v, eager steps\n%v", c.rule, c.amp, got, want)
		}
	}
	// The host must know the scalars when it queues a replay. In these combinations it does not, so
	// the captures are errors, and leave nothing behind.
	for want, f := range map[string]func(p *scaled, s *tensor.Scope){
		"of different parameters":   func(p *scaled, s *tensor.Scope) { p.trainStep(s, true, true); p.trainStep(s, true, false) },
		"may be left out and other": func(p *scaled, s *tensor.Scope) { p.trainStep(s, true, true); p.trainStep(s, false, true) },
		"go on from step to step":   func(p *scaled, s *tensor.Scope) { p.trainStep(s, true, true); p.trainStep(s, true, true) },
	} {
		rule := "AdamW"
		if strings.HasPrefix(want, "go on") {
			rule = "NAdam"
		}
		p := newScaled(t, 0, rules[rule])
		p.feed(1)
		if err := capture(p, func(s *tensor.Scope) { f(p, s) }); !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		g, err := tensor.Capture(p.dev, func(s *tensor.Scope) { p.trainStep(s, true, true) })
		if err == nil {
			err = errors.Join(g.Replay(), g.Close())
		}
		if err != nil || p.opt.Steps() != 1 {
			t.Errorf("after %q: %v, %d steps", want, err, p.opt.Steps())
		}
	}
}

// Two parameters have taken part in different numbers of steps, so they need different scalars. If
// both share a launch, a replay is an error. A new capture separates them. There is no error for an
// optimizer whose scalars do not depend on the number of steps.
func TestCapturedSomeParameters(t *testing.T) {
	for _, amp := range []bool{false, true} {
		for _, rule := range []string{"AdamW", "SGD"} {
			make := rules[rule]
			if rule == "AdamW" { // both parameters are in one group and share a launch
				make = func(p []*tensor.Tensor) optim.Optimizer { return optim.NewAdam(p, optim.AdamConfig{LR: 0.05}) }
			}
			run := func(captured bool) ([]float64, int) {
				p := newScaled(t, 0, make)
				p.feed(1)
				refused := 0
				var graphs [2]*tensor.Graph
				do := func(i int) {
					step := func(s *tensor.Scope) { p.trainStep(s, amp, i > 0) }
					if !captured {
						tensor.Do(step)
						return
					}
					for again := false; ; again = true {
						if graphs[i] == nil {
							g, err := tensor.Capture(p.dev, step)
							if err != nil {
								t.Fatal(err)
							}
							graphs[i] = g
						}
						err := graphs[i].Replay()
						if err == nil {
							return
						}
						var oe *optim.Error
						if !errors.As(err, &oe) || !strings.Contains(err.Error(), "different numbers of steps") || again {
							t.Fatal(err)
						}
						refused++
						if err := graphs[i].Close(); err != nil {
							t.Fatal(err)
						}
						graphs[i] = nil
					}
				}
				do(1)
				for range 3 {
					do(0)
					do(0)
					do(1)
				}
				tensor.Do(func(s *tensor.Scope) { p.trainStep(s, amp, false) })
				do(1)
				n := p.numbers()
				for _, g := range graphs {
					if g != nil {
						if err := g.Close(); err != nil {
							t.Fatal(err)
						}
					}
				}
				return n, refused
			}
			want, _ := run(false)
			got, refused := run(true)
			if !slices.Equal(got, want) {
				t.Errorf("%s, scaler %v: replays give\n%v, eager steps\n%v", rule, amp, got, want)
			}
			if n := map[string]int{"AdamW": 1}[rule]; refused != n {
				t.Errorf("%s, scaler %v: %d replays are refused, want %d", rule, amp, refused, n)
			}
		}
	}
}

// A capture may allocate tensors for the optimizer's state. Until the first step, they do not
// count as state, and a checkpoint does not contain them. The first step, replayed or eager, uses
// the learning rate that is set when it runs.
func TestStateOfCapture(t *testing.T) {
	for _, rule := range []string{"SGD", "Rprop", "AdamW", "ASGD", "NAdam"} {
		for _, load := range []bool{false, true} {
			run := func(captured bool) []float64 {
				p := newScaled(t, 0, rules[rule])
				p.feed(1)
				step := func(s *tensor.Scope) { p.trainStep(s, false, true) }
				first := p.opt.StateDict()
				if captured {
					for range 2 {
						g, err := tensor.Capture(p.dev, step)
						if err != nil {
							t.Fatal(err)
						}
						defer g.Close()
					}
					if got := p.opt.StateDict(); !reflect.DeepEqual(numeric(got), numeric(first)) {
						t.Errorf("%s: the state after a capture is %v, before %v", rule, got, first)
					}
				}
				if load {
					if err := p.opt.LoadStateDict(p.opt.StateDict()); err != nil {
						t.Fatal(err)
					}
				}
				p.opt.SetLR(0.5)
				tensor.Do(step)
				tensor.Do(step)
				return p.numbers()
			}
			if want, got := run(false), run(true); !slices.Equal(got, want) {
				t.Errorf("%s, loaded %v: steps after a capture give\n%v, without one\n%v", rule, load, got, want)
			}
		}
	}
}

// A step is captured even if the first parameter's gradient was computed before the capture. Each
// replay uses that gradient unchanged, also if an average is updated before the step.
func TestCapturedOldGradient(t *testing.T) {
	for _, clip := range []bool{false, true} {
		run := func(captured bool) []float64 {
			p := newScaled(t, 0, rules["AdamW"])
			tensor.Do(func(s *tensor.Scope) { p.w.In(s).Square().Sum().Backward() })
			means := optim.NewEMA(&struct {
				V *tensor.Tensor `nn:"v"`
			}{p.v}, 0.5)
			step := func(s *tensor.Scope) {
				p.v.In(s).Square().Sum().Backward()
				means.Update() // averages the values from before the step
				if clip {
					optim.ClipGradNorm(p.opt.Params(), 1)
				}
				p.opt.Step()
				p.v.ZeroGrad()
			}
			do := func() error { tensor.Do(step); return nil }
			if captured {
				g, err := tensor.Capture(p.dev, step)
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				do = g.Replay
			}
			if n := p.opt.Steps(); n != 0 {
				t.Errorf("%d steps were done by the capture", n)
			}
			for range 3 {
				if err := do(); err != nil {
					t.Fatal(err)
				}
			}
			return append(append(append(p.numbers(), p.w.Grad().Floats()...), means.Averages()["v"].Floats()...), float64(means.Updates()))
		}
		if want, got := run(false), run(true); !slices.Equal(got, want) {
			t.Errorf("clipping %v: replays give %v, eager steps %v", clip, got, want)
		}
	}
}
