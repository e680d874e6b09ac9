package amp_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// devices returns the CPU and two emulated GPUs.
func devices(t testing.TB) []device.Device {
	t.Helper()
	host, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	return []device.Device{host, gpus[0], gpus[1]}
}

// trajectory is a run of torch's scaler that the script _golden/amp.py has recorded.
type trajectory struct {
	Planted        []int
	Scale          []float64
	Tracker, Steps []int
	Weights        [][2]float64
	State          map[string]float64
}

func golden(t *testing.T) trajectory {
	t.Helper()
	text, err := os.ReadFile("testdata/scaler.json")
	if err != nil {
		t.Fatal(err)
	}
	var g trajectory
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// Gradients have infinities and NaN in some of 500 steps. After every step the scale, the number of
// good steps, the weights and the number of steps equal torch's. A GPU makes only the first hundred
// steps. A second run reads nothing between the steps.
func TestTrajectory(t *testing.T) {
	g := golden(t)
	for k, dev := range devices(t)[:2] {
		for _, ask := range []bool{true, false} {
			n := len(g.Scale)
			if k > 0 {
				n = 100
			}
			planted := map[int]bool{}
			for _, i := range g.Planted {
				planted[i] = true
			}
			s := amp.NewGradScaler(amp.InitScale(1024), amp.GrowthInterval(7))
			w := tensor.Root().On(dev).From([]float32{1, -2}).RequiresGrad()
			c := tensor.Root().On(dev).From([]float32{0.5, 0.25})
			opt := optim.NewAdam([]*tensor.Tensor{w}, optim.AdamConfig{LR: 0.01})
			same := func(i int) {
				t.Helper()
				if v := s.Value(); v != g.Scale[i] {
					t.Fatalf("%s, step %d: the scale is %v, torch's %v", dev.Name(), i, v, g.Scale[i])
				}
				if v := s.GrowthTracker(); v != g.Tracker[i] {
					t.Fatalf("%s, step %d: the tracker is %v, torch's %v", dev.Name(), i, v, g.Tracker[i])
				}
				if v := opt.Steps(); v != g.Steps[i] {
					t.Fatalf("%s, step %d: %v steps were done, torch has done %v", dev.Name(), i, v, g.Steps[i])
				}
				if i%20 == 0 {
					for e, v := range w.Detach().Floats() {
						if want := g.Weights[i/20][e]; math.Abs(v-want) > 1e-6*math.Abs(want) {
							t.Fatalf("%s, step %d: weight %d is %v, torch's %v", dev.Name(), i, e, v, want)
						}
					}
				}
			}
			for i := range n {
				tensor.Do(func(sc *tensor.Scope) {
					opt.ZeroGrad()
					s.Scale(w.In(sc).Mul(c).Sum().MulScalar(float64(1 + i%5))).Backward()
					if planted[i] {
						bad := math.NaN()
						if i%3 != 0 {
							bad = math.Inf(1)
						}
						w.Grad().Detach().Select(0, i%2).Fill(bad)
					}
					s.Step(opt)
					s.Update()
				})
				if ask {
					same(i)
				}
			}
			same(n - 1)
			skipped := 0
			for i := range n {
				if planted[i] {
					skipped++
				}
			}
			if s.Skipped() != skipped {
				t.Errorf("%s: %d steps were left out, want %d", dev.Name(), s.Skipped(), skipped)
			}
			if k == 0 {
				for key, v := range s.StateDict() {
					f, ok := v.(float64)
					if n, whole := v.(int64); whole {
						f, ok = float64(n), true
					}
					if !ok || f != g.State[key] {
						t.Errorf("state %q is %v (%T), torch's %v", key, v, v, g.State[key])
					}
				}
			}
		}
	}
}

// optimizers returns every optimizer that can skip a step on the device, and one that cannot.
func optimizers() map[string]func(p []*tensor.Tensor) optim.Optimizer {
	return map[string]func(p []*tensor.Tensor) optim.Optimizer{
		"SGD": func(p []*tensor.Tensor) optim.Optimizer {
			return optim.NewSGD(p, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Dampening: 0.5})
		},
		"AdamW": func(p []*tensor.Tensor) optim.Optimizer {
			return optim.NewAdamW(p, optim.AdamConfig{LR: 0.1, WeightDecay: 0.1, AMSGrad: true})
		},
		"NAdam":    func(p []*tensor.Tensor) optim.Optimizer { return optim.NewNAdam(p, optim.NAdamConfig{LR: 0.1}) },
		"RAdam":    func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRAdam(p, optim.RAdamConfig{LR: 0.1}) },
		"ASGD":     func(p []*tensor.Tensor) optim.Optimizer { return optim.NewASGD(p, optim.ASGDConfig{LR: 0.1}) },
		"Adagrad":  func(p []*tensor.Tensor) optim.Optimizer { return optim.NewAdagrad(p, optim.AdagradConfig{LR: 0.1}) },
		"Adadelta": func(p []*tensor.Tensor) optim.Optimizer { return optim.NewAdadelta(p, optim.AdadeltaConfig{LR: 0.1}) },
		"Adamax":   func(p []*tensor.Tensor) optim.Optimizer { return optim.NewAdamax(p, optim.AdamaxConfig{LR: 0.1}) },
		"RMSprop": func(p []*tensor.Tensor) optim.Optimizer {
			return optim.NewRMSprop(p, optim.RMSpropConfig{LR: 0.1, Momentum: 0.5})
		},
		"Rprop": func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRprop(p, optim.RpropConfig{LR: 0.1}) },
		"Lion":  func(p []*tensor.Tensor) optim.Optimizer { return optim.NewLion(p, optim.LionConfig{LR: 0.1}) },
		"Adafactor": func(p []*tensor.Tensor) optim.Optimizer {
			return optim.NewAdafactor(p, optim.AdafactorConfig{LR: 0.1})
		},
		"Muon": func(p []*tensor.Tensor) optim.Optimizer { return optim.NewMuon(p, optim.MuonConfig{LR: 0.1}) },
	}
}

// The weights and the state of a run in which steps 0 and 2 overflow are bitwise equal to those of
// a run without these two steps.
func TestLeftOut(t *testing.T) {
	for k, dev := range devices(t)[:2] {
		for name, make := range optimizers() {
			if k > 0 && name != "AdamW" && name != "NAdam" && name != "SGD" && name != "Muon" && name != "Adafactor" {
				continue
			}
			run := func(steps []int, bad map[int]bool) ([]float64, map[string]any) {
				w := tensor.Root().On(dev).From([][]float32{{1, -2, 3}, {0.5, 0.25, -1}}).RequiresGrad()
				opt := make([]*tensor.Tensor{w})
				s := amp.NewGradScaler(amp.InitScale(256))
				for _, i := range steps {
					tensor.Do(func(sc *tensor.Scope) {
						opt.ZeroGrad()
						y := w.In(sc).Square().MulScalar(float64(i + 1)).Sum()
						if bad[i] {
							y = y.MulScalar(math.Inf(1))
						}
						s.Scale(y).Backward()
						s.Step(opt)
						s.Update()
					})
				}
				return w.Detach().Floats(), opt.StateDict()
			}
			got, state := run([]int{0, 1, 2, 3}, map[int]bool{0: true, 2: true})
			want, clean := run([]int{1, 3}, nil)
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%s on %s: weight %d is %v, without the steps that were left out %v", name, dev.Name(), i, got[i], want[i])
				}
			}
			a, b := state["state"].(map[int64]any)[0].(map[string]any), clean["state"].(map[int64]any)[0].(map[string]any)
			for key, v := range b {
				x, y := a[key].(*tensor.Tensor).Floats(), v.(*tensor.Tensor).Floats()
				for i := range y {
					if x[i] != y[i] {
						t.Errorf("%s on %s: %s[%d] of the state is %v, want %v", name, dev.Name(), key, i, x[i], y[i])
					}
				}
			}
		}
	}
}

// If the first step is skipped, the optimizer has no state, as if Step had never been called.
func TestFirstLeftOut(t *testing.T) {
	w := tensor.From([]float32{1, 2}).RequiresGrad()
	opt := optim.NewAdam([]*tensor.Tensor{w}, optim.AdamConfig{LR: 0.1})
	s := amp.NewGradScaler()
	s.Scale(w.MulScalar(math.Inf(1)).Sum()).Backward()
	s.Step(opt)
	s.Update()
	if n := len(opt.StateDict()["state"].(map[int64]any)); n != 0 || opt.Steps() != 0 || s.Value() != 32768 {
		t.Errorf("%d parameters have a state after %d steps, the scale is %v", n, opt.Steps(), s.Value())
	}
	if v := w.Detach().Floats(); v[0] != 1 || v[1] != 2 {
		t.Errorf("the weights are %v", v)
	}
}

// Clipping between Unscale and Step uses unscaled gradients.
func TestClip(t *testing.T) {
	for _, dev := range devices(t)[:2] {
		w := tensor.Root().On(dev).From([]float32{3, 4}).RequiresGrad()
		opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 1})
		s := amp.NewGradScaler()
		s.Scale(w.Square().MulScalar(0.5).Sum()).Backward()
		s.Unscale(opt)
		if n := optim.ClipGradNorm(opt.Params(), 1).Item(); n != 5 {
			t.Errorf("the norm is %v", n)
		}
		s.Step(opt)
		s.Update()
		for i, want := range []float64{3 - 0.6, 4 - 0.8} {
			if v := w.Detach().Floats()[i]; math.Abs(v-want) > 1e-5 {
				t.Errorf("weight %d is %v, want %v", i, v, want)
			}
		}
	}
}

// Two optimizers share a scaler. Only the optimizer with an infinite gradient skips its step, and
// the scale falls once. Parameters may be on several devices.
func TestSeveral(t *testing.T) {
	list := devices(t)
	a := tensor.Root().On(list[1]).From([]float32{1}).RequiresGrad()
	b := tensor.Root().On(list[2]).From([]float32{1}).RequiresGrad()
	c := tensor.Root().On(list[1]).From([]float32{1}).RequiresGrad()
	both, alone := optim.NewSGD([]*tensor.Tensor{a, b}, optim.SGDConfig{LR: 1}), optim.NewSGD([]*tensor.Tensor{c}, optim.SGDConfig{LR: 1})
	s := amp.NewGradScaler()
	s.Scale(a.Sum().Add(c.Sum()).Add(b.MulScalar(math.Inf(1)).Sum().To(list[1]))).Backward()
	s.Step(both)
	s.Step(alone)
	s.Update()
	if a.Detach().Item() != 1 || b.Detach().Item() != 1 || c.Detach().Item() != 0 {
		t.Errorf("the weights are %v, %v and %v, want 1, 1 and 0", a.Detach().Item(), b.Detach().Item(), c.Detach().Item())
	}
	if v := s.Value(); v != 32768 || both.Steps() != 0 || alone.Steps() != 1 {
		t.Errorf("the scale is %v after %d and %d steps", v, both.Steps(), alone.Steps())
	}
}

// After Restart an abandoned iteration can begin again. Without Restart its new gradients would
// stay scaled.
func TestRestart(t *testing.T) {
	w := tensor.From([]float32{1}).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 1})
	s := amp.NewGradScaler()
	for range 2 {
		opt.ZeroGrad()
		s.Restart()
		s.Scale(w.MulScalar(0.25).Sum()).Backward()
		s.Unscale(opt)
	}
	s.Step(opt)
	s.Update()
	if v := w.Detach().Item(); v != 0.75 || s.Value() != 65536 {
		t.Errorf("the weight is %v, the scale %v", v, s.Value())
	}
}

// The scaler refuses what torch's scaler refuses.
func TestMisuse(t *testing.T) {
	fresh := func() (*amp.GradScaler, *tensor.Tensor, *optim.SGD) {
		w := tensor.From([]float32{1}).RequiresGrad()
		return amp.NewGradScaler(), w, optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 1})
	}
	for what, f := range map[string]func(){
		"step before scale":    func() { s, _, o := fresh(); s.Step(o) },
		"unscale before scale": func() { s, _, o := fresh(); s.Unscale(o) },
		"update before scale":  func() { s, _, _ := fresh(); s.Update() },
		"no gradient":          func() { s, w, o := fresh(); s.Scale(w.Sum()); s.Step(o) },
		"update without step":  func() { s, w, _ := fresh(); s.Scale(w.Sum()).Backward(); s.Update() },
		"unscale twice":        func() { s, w, o := fresh(); s.Scale(w.Sum()).Backward(); s.Unscale(o); s.Unscale(o) },
		"unscale after step":   func() { s, w, o := fresh(); s.Scale(w.Sum()).Backward(); s.Step(o); s.Unscale(o) },
		"step twice":           func() { s, w, o := fresh(); s.Scale(w.Sum()).Backward(); s.Step(o); s.Step(o) },
		"half parameters": func() {
			w := tensor.From([]float32{1}).Half().Detach().RequiresGrad()
			s := amp.NewGradScaler()
			s.Scale(w.Sum()).Backward()
			s.Step(optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 1}))
		},
		"no loss":         func() { amp.NewGradScaler().Scale(nil) },
		"no optimizer":    func() { s, w, _ := fresh(); s.Scale(w.Sum()).Backward(); s.Step(nil) },
		"a nil optimizer": func() { s, w, _ := fresh(); s.Scale(w.Sum()).Backward(); s.Unscale((*optim.SGD)(nil)) },
		"a nil parameter": func() { s, w, _ := fresh(); s.Scale(w.Sum()).Backward(); s.Step(&slice{w, nil}) },
		"a slice":         func() { s, w, _ := fresh(); s.Scale(w.Sum()).Backward(); s.Step(slice{w}) },
		"growth factor":   func() { amp.NewGradScaler(amp.GrowthFactor(1)) },
		"backoff factor":  func() { amp.NewGradScaler(amp.BackoffFactor(1)) },
		"scale":           func() { amp.NewGradScaler(amp.InitScale(math.NaN())) },
		"growth interval": func() { amp.NewGradScaler(amp.GrowthInterval(0)) },
		"floor":           func() { amp.NewGradScaler(amp.Floor(1e9)) },
	} {
		if err := tensor.Try(f); !errors.Is(err, tensor.ErrValue) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// slice is an optimizer that does nothing. As a slice, it cannot be the key of a map.
type slice []*tensor.Tensor

func (s slice) Params() []*tensor.Tensor { return s }
func (s slice) Step()                    {}

// A series of skipped steps causes one warning, and a later series causes another. A step skipped
// at the lowest scale causes a warning too.
func TestWarning(t *testing.T) {
	var told []amp.Warning
	w := tensor.From([]float32{1}).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1})
	step := func(s *amp.GradScaler, factor float64) {
		tensor.Do(func(sc *tensor.Scope) {
			opt.ZeroGrad()
			s.Scale(w.In(sc).MulScalar(factor).Sum()).Backward()
			s.Step(opt)
			s.Update()
		})
	}
	s := amp.NewGradScaler(amp.InitScale(1024), amp.WarnAfter(3, func(w amp.Warning) { told = append(told, w) }))
	for range 5 {
		step(s, math.NaN())
	}
	step(s, 1)
	for range 4 {
		step(s, math.NaN())
	}
	if len(told) != 2 || told[0] != (amp.Warning{Skipped: 3, Scale: 128}) || told[1] != (amp.Warning{Skipped: 3, Scale: 4}) {
		t.Errorf("told: %v", told)
	}
	told = nil
	s = amp.NewGradScaler(amp.InitScale(4), amp.Floor(2), amp.WarnAfter(100, func(w amp.Warning) { told = append(told, w) }))
	for range 3 {
		step(s, math.Inf(-1))
	}
	if len(told) != 1 || !told[0].Floor || s.Value() != 2 || !strings.Contains(told[0].String(), "least scale") {
		t.Errorf("told: %v, the scale is %v", told, s.Value())
	}
}

// Overflowed names the parameters whose gradients have overflowed.
func TestOverflowed(t *testing.T) {
	m := nn.NewSequential(nn.NewLinear(2, 3), nn.ReLU{}, nn.NewLinear(3, 1))
	opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1})
	s := amp.NewGradScaler(amp.InitScale(1e30))
	tensor.Do(func(sc *tensor.Scope) {
		s.Scale(m.Forward(sc.Ones(4, 2)).MulScalar(1e-30).Square().Sum()).Backward()
		if names := s.Overflowed(m); len(names) != 0 {
			t.Errorf("nothing has overflowed, and %v are named", names)
		}
		opt.ZeroGrad()
		s.Scale(m.Forward(sc.Ones(4, 2)).Square().Sum().MulScalar(1e30)).Backward()
		if names := s.Overflowed(m); len(names) != 4 || names[0] != "2.bias" {
			t.Errorf("all have overflowed, and %v are named", names)
		}
	})
}

// A state can be loaded into another scaler. A state that does not fit is an error and changes
// nothing.
func TestState(t *testing.T) {
	s := amp.NewGradScaler(amp.InitScale(512), amp.GrowthInterval(3))
	w := tensor.From([]float32{1}).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1})
	step := func(s *amp.GradScaler) {
		opt.ZeroGrad()
		s.Scale(w.Sum()).Backward()
		s.Step(opt)
		s.Update()
	}
	step(s)
	step(s)
	state := s.StateDict()
	other := amp.NewGradScaler()
	step(other)
	if err := other.LoadStateDict(state); err != nil {
		t.Fatal(err)
	}
	step(other)
	if other.Value() != 1024 || other.GrowthTracker() != 0 {
		t.Errorf("after one more step the scale is %v, the tracker %d", other.Value(), other.GrowthTracker())
	}
	for key, v := range map[string]any{"scale": "x", "growth_factor": 0.5, "growth_interval": 2.5, "_growth_tracker": int64(-1), "backoff_factor": math.NaN()} {
		bad := map[string]any{}
		for k, old := range state {
			bad[k] = old
		}
		bad[key] = v
		var e *amp.StateError
		if err := other.LoadStateDict(bad); !errors.As(err, &e) {
			t.Errorf("%s = %v: %v", key, v, err)
		}
		delete(bad, key)
		if err := other.LoadStateDict(bad); !errors.As(err, &e) || e.Key != key {
			t.Errorf("without %s: %v", key, err)
		}
	}
	if err := other.LoadStateDict(nil); err == nil || other.Value() != 1024 {
		t.Errorf("an empty state: %v, the scale is %v", err, other.Value())
	}
}

// A scaler that is not enabled only calls the optimizer's Step.
func TestDisabled(t *testing.T) {
	s := amp.NewGradScaler(amp.Enabled(false))
	w := tensor.From([]float32{1}).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.5})
	loss := w.Sum()
	if s.Scale(loss) != loss || s.Enabled() {
		t.Error("the loss was scaled")
	}
	loss.Backward()
	s.Unscale(opt)
	s.Step(opt)
	s.Update()
	if w.Detach().Item() != 0.5 || s.Value() != 1 || len(s.StateDict()) != 0 || s.LoadStateDict(map[string]any{"x": 1}) != nil {
		t.Errorf("the weight is %v, the scale %v", w.Detach().Item(), s.Value())
	}
}

// A step with a scaler never makes the host wait. It copies only two numbers of four bytes to the
// host, and does not wait for them.
func TestNoHostReads(t *testing.T) {
	dev := devices(t)[1].(*cuda.Device)
	w := tensor.Root().On(dev).Ones(1000).RequiresGrad()
	opt := optim.NewAdamW([]*tensor.Tensor{w}, optim.AdamConfig{LR: 0.01})
	s := amp.NewGradScaler()
	for i := range 4 {
		before := dev.Counters()
		tensor.Do(func(sc *tensor.Scope) {
			opt.ZeroGrad()
			s.Scale(w.In(sc).Square().Sum()).Backward()
			s.Step(opt)
			s.Update()
		})
		if after := dev.Counters(); after.Downloads-before.Downloads > 2 || after.DownloadedBytes-before.DownloadedBytes > 8 {
			t.Errorf("step %d: %d downloads of %d bytes", i, after.Downloads-before.Downloads, after.DownloadedBytes-before.DownloadedBytes)
		}
	}
}
