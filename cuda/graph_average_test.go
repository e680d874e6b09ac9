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

// TestCapturedAverages: averages that are updated in a captured step are those of eager steps, bit for bit, from the first update on, which copies.
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
			if name == "EMA with buffers" { // whose count of batches has another first update
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

// TestCapturedMuon: matrices that Muon steps in a capture, beside what AdamW steps, are those of eager steps, with rates, momentum and decay that change;
// what chooses the kernels may not.
func TestCapturedMuon(t *testing.T) {
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
			muon = optim.NewMuon(matrices, optim.MuonConfig{LR: 0.02, WeightDecay: 0.1})
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
		for k := range 5 {
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
			set("ns_steps", int64(3))
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
