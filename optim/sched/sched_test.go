package sched_test

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
)

// Invalid arguments of a constructor panic.
func TestMisuse(t *testing.T) {
	o := newOptimizer("sgd")
	plain := optim.NewAdagrad(params(), optim.AdagradConfig{LR: 1})
	for name, f := range map[string]func(){
		"no optimizer":       func() { sched.NewExponential(nil, 0.5) },
		"no steps":           func() { sched.NewStep(o, 0, 0.5) },
		"a factor above 1":   func() { sched.NewConstant(o, 2, 5) },
		"a start of 0":       func() { sched.NewLinear(o, 0, 1, 5) },
		"an end above 1":     func() { sched.NewLinear(o, 0.5, 2, 5) },
		"a line of no steps": func() { sched.NewLinear(o, 0.5, 1, 0) },
		"a fall of no steps": func() { sched.NewPolynomial(o, 0, 1) },
		"a step to NaN":      func() { sched.NewStep(o, 1, math.NaN()) },
		"milestones to NaN":  func() { sched.NewMultiStep(o, []int{1}, math.NaN()) },
		"an infinite gamma":  func() { sched.NewExponential(o, math.Inf(1)) },
		"a power of NaN":     func() { sched.NewPolynomial(o, 5, math.NaN()) },
		"no period":          func() { sched.NewCosineAnnealing(o, 0, 0) },
		"no restarts":        func() { sched.NewCosineWarmRestarts(o, 5, 0, 0) },
		"two functions":      func() { sched.NewLambda(o, func(int) float64 { return 1 }, func(int) float64 { return 1 }) },
		"a nil function":     func() { sched.NewLambda(o, nil) },
		"two tops":           func() { sched.NewOneCycle(o, sched.OneCycleConfig{MaxLR: []float64{1, 2}, Steps: 10}) },
		"no cycle":           func() { sched.NewOneCycle(o, sched.OneCycleConfig{MaxLR: []float64{1}}) },
		"no momentum":        func() { sched.NewOneCycle(plain, sched.OneCycleConfig{MaxLR: []float64{1}, Steps: 10}) },
		"an unknown mode": func() {
			sched.NewCyclic(o, sched.CyclicConfig{BaseLR: []float64{1}, MaxLR: []float64{2}, Up: 3, Mode: "square"})
		},
		"a factor of 1":     func() { sched.NewPlateau(o, sched.PlateauConfig{Factor: 1}) },
		"no parts":          func() { sched.NewChained() },
		"no milestone":      func() { sched.NewSequential(o, []sched.Scheduler{sched.NewStep(o, 1, 1), sched.NewStep(o, 1, 1)}, nil) },
		"another optimizer": func() { sched.NewChained(sched.NewStep(o, 1, 1), sched.NewStep(plain, 1, 1)) },
		"a chain in a row": func() {
			sched.NewSequential(o, []sched.Scheduler{sched.NewChained(sched.NewStep(o, 1, 1)), sched.NewStep(o, 1, 1)}, []int{3})
		},
		"no warm-up": func() { sched.NewWarmUp(o, sched.WarmUpConfig{}, nil) },
		"beyond the cycle": func() {
			s := sched.NewOneCycle(newOptimizer("sgd"), sched.OneCycleConfig{MaxLR: []float64{1}, Steps: 2})
			for range 3 {
				s.Step()
			}
		},
		"a group more": func() {
			o := optim.NewSGD(params(), optim.SGDConfig{LR: 1})
			s := sched.NewExponential(o, 0.5)
			o.AddGroup(params(), optim.SGDConfig{LR: 1})
			s.Step()
		},
	} {
		func() {
			defer func() {
				if _, ok := recover().(*optim.Error); !ok {
					t.Errorf("%s was taken", name)
				}
			}()
			f()
		}()
	}
}

// Loading a tree that does not fit is an error, and changes nothing.
func TestWrongTrees(t *testing.T) {
	for name, make := range makers {
		kind := "sgd"
		s := make(newOptimizer(kind))
		good := s.StateDict()
		for key := range good {
			if key == "_is_initial" || key == "_get_lr_called_within_step" {
				continue
			}
			less := maps.Clone(good)
			delete(less, key)
			var typed *optim.StateError
			if err := s.LoadStateDict(less); !errors.As(err, &typed) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s without %s: %v", name, key, err)
			}
			if key == "lr_lambdas" || key == "_scale_fn_custom" {
				continue
			}
			wrong := maps.Clone(good)
			wrong[key] = []any{struct{}{}}
			if key != "last_epoch" && good["last_epoch"] != nil {
				wrong["last_epoch"] = int64(17)
			}
			if err := s.LoadStateDict(wrong); !errors.As(err, &typed) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s with nonsense for %s: %v", name, key, err)
			}
			compare(t, name, s.StateDict(), good)
		}
		if err := s.LoadStateDict(nil); err == nil {
			t.Errorf("%s took nothing", name)
		}
	}
}

// A cosine warm-up ends at the full rate, and the next schedule follows.
func TestCosineWarmUp(t *testing.T) {
	o := optim.NewSGD(params(), optim.SGDConfig{LR: 2})
	s := sched.NewWarmUp(o, sched.WarmUpConfig{Steps: 4, Start: 0.5, Cosine: true}, sched.NewExponential(o, 0.5))
	var got []float64
	for range 7 {
		got = append(got, o.LR())
		s.Step()
	}
	want := []float64{1, 1.1464466094067263, 1.5, 1.8535533905932737, 2, 1, 0.5}
	for i := range want {
		if d := got[i] - want[i]; d > 1e-15 || d < -1e-15 {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	alone := optim.NewSGD(params(), optim.SGDConfig{LR: 1})
	sched.NewWarmUp(alone, sched.WarmUpConfig{Steps: 4}, nil)
	if alone.LR() != 0.25 {
		t.Errorf("a warm-up of 4 steps begins at %v", alone.LR())
	}
}

// After a factor of 0 the initial rate is restored, where torch divides by 0.
func TestConstantZero(t *testing.T) {
	o := newOptimizer("sgd")
	initial := o.LR()
	s := sched.NewConstant(o, 0, 2)
	for i, want := range []float64{0, 0, initial, initial} {
		if o.LR() != want {
			t.Errorf("step %d: the rate is %v, want %v", i, o.LR(), want)
		}
		s.Step()
	}
}

// Steps after the end of the cycle panic. A program makes such steps if it passes a number of
// epochs as the number of steps.
func TestOneCycleEnds(t *testing.T) {
	s := sched.NewOneCycle(one(1), sched.OneCycleConfig{MaxLR: []float64{1}, Steps: 2})
	defer func() {
		if e, ok := recover().(*optim.Error); !ok || !strings.Contains(e.Msg, "epochs times loader.Len()") {
			t.Error(e)
		}
	}()
	for range 3 {
		s.Step()
	}
	t.Error("no panic")
}
