package sched_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
)

const (
	steps = 60
	saved = 23
)

var initial = []float64{0.1, 0.013, 0.7}

func params() []*tensor.Tensor { return []*tensor.Tensor{tensor.Zeros(1).RequiresGrad()} }

func newOptimizer(kind string) optim.Optimizer {
	if kind == "adam" {
		var groups []optim.With[optim.AdamConfig]
		for _, lr := range initial {
			groups = append(groups, optim.With[optim.AdamConfig]{Params: params(), Config: optim.AdamConfig{LR: lr}})
		}
		return optim.NewAdamGroups(groups...)
	}
	var groups []optim.With[optim.SGDConfig]
	for _, lr := range initial {
		groups = append(groups, optim.With[optim.SGDConfig]{Params: params(), Config: optim.SGDConfig{LR: lr, Momentum: 0.9}})
	}
	return optim.NewSGDGroups(groups...)
}

var makers = map[string]func(o optim.Optimizer) sched.Schedule{
	"step":          func(o optim.Optimizer) sched.Schedule { return sched.NewStep(o, 7, 0.3) },
	"step defaults": func(o optim.Optimizer) sched.Schedule { return sched.NewStep(o, 30, 0.1) },
	"multistep":     func(o optim.Optimizer) sched.Schedule { return sched.NewMultiStep(o, []int{11, 5, 40, 11}, 0.5) },
	"constant":      func(o optim.Optimizer) sched.Schedule { return sched.NewConstant(o, 0.3, 9) },
	"linear":        func(o optim.Optimizer) sched.Schedule { return sched.NewLinear(o, 0.25, 0.75, 13) },
	"linear warm": func(o optim.Optimizer) sched.Schedule {
		return sched.NewWarmUp(o, sched.WarmUpConfig{Steps: 20, Start: 0.1}, nil)
	},
	"exponential":     func(o optim.Optimizer) sched.Schedule { return sched.NewExponential(o, 0.93) },
	"polynomial":      func(o optim.Optimizer) sched.Schedule { return sched.NewPolynomial(o, 50, 2) },
	"polynomial root": func(o optim.Optimizer) sched.Schedule { return sched.NewPolynomial(o, 40, 0.9) },
	"cosine":          func(o optim.Optimizer) sched.Schedule { return sched.NewCosineAnnealing(o, 25, 0.001) },
	"cosine odd":      func(o optim.Optimizer) sched.Schedule { return sched.NewCosineAnnealing(o, 60, 0) },
	"restarts":        func(o optim.Optimizer) sched.Schedule { return sched.NewCosineWarmRestarts(o, 7, 2, 1e-4) },
	"restarts same":   func(o optim.Optimizer) sched.Schedule { return sched.NewCosineWarmRestarts(o, 9, 1, 0) },
	"onecycle": func(o optim.Optimizer) sched.Schedule {
		return sched.NewOneCycle(o, sched.OneCycleConfig{MaxLR: []float64{0.5, 0.05, 1}, Steps: 60})
	},
	"onecycle three": func(o optim.Optimizer) sched.Schedule {
		return sched.NewOneCycle(o, sched.OneCycleConfig{MaxLR: []float64{0.5}, Steps: 61, Rise: 0.4, Linear: true, ThreePhase: true, Div: 10, FinalDiv: 100,
			BaseMomentum: 0.7, MaxMomentum: 0.99})
	},
	"onecycle plain": func(o optim.Optimizer) sched.Schedule {
		return sched.NewOneCycle(o, sched.OneCycleConfig{MaxLR: []float64{0.5}, Steps: 60, KeepMomentum: true})
	},
	"cyclic": func(o optim.Optimizer) sched.Schedule {
		return sched.NewCyclic(o, sched.CyclicConfig{BaseLR: []float64{0.01, 0.001, 0.1}, MaxLR: []float64{0.1, 0.02, 0.5}, Up: 7, Down: 11})
	},
	"cyclic two": func(o optim.Optimizer) sched.Schedule {
		return sched.NewCyclic(o, sched.CyclicConfig{BaseLR: []float64{0.01}, MaxLR: []float64{0.1}, Up: 8, Mode: "triangular2", KeepMomentum: true})
	},
	"cyclic exp": func(o optim.Optimizer) sched.Schedule {
		return sched.NewCyclic(o, sched.CyclicConfig{BaseLR: []float64{0.01}, MaxLR: []float64{0.1}, Up: 8, Mode: "exp_range", Gamma: 0.97,
			BaseMomentum: 0.5, MaxMomentum: 0.95})
	},
	"lambda": func(o optim.Optimizer) sched.Schedule {
		return sched.NewLambda(o, func(t int) float64 { return 1 / (1 + float64(0.1*float64(t))) })
	},
	"lambda each": func(o optim.Optimizer) sched.Schedule {
		return sched.NewLambda(o, func(int) float64 { return 1 }, func(t int) float64 { return 0.5 * float64(t) }, func(t int) float64 { return 1 / (1 + float64(t)) })
	},
	"multiplicative": func(o optim.Optimizer) sched.Schedule {
		return sched.NewMultiplicative(o, func(t int) float64 { return 0.9 + float64(0.001*float64(t)) })
	},
	"plateau": func(o optim.Optimizer) sched.Schedule {
		return sched.NewPlateau(o, sched.PlateauConfig{Factor: 0.5, Patience: 3, Cooldown: 2})
	},
	"plateau max": func(o optim.Optimizer) sched.Schedule {
		return sched.NewPlateau(o, sched.PlateauConfig{Max: true, Factor: 0.7, Patience: -1, Threshold: 0.01, Absolute: true, MinLR: []float64{0.001, 0.002, 0.3}})
	},
	"sequential": func(o optim.Optimizer) sched.Schedule {
		return sched.NewWarmUp(o, sched.WarmUpConfig{Steps: 10, Start: 0.1}, sched.NewCosineAnnealing(o, 40, 0.001))
	},
	"sequential three": func(o optim.Optimizer) sched.Schedule {
		return sched.NewSequential(o, []sched.Scheduler{sched.NewConstant(o, 0.2, 100), sched.NewExponential(o, 0.9), sched.NewStep(o, 4, 0.5)}, []int{5, 30})
	},
	"sequential restarts": func(o optim.Optimizer) sched.Schedule {
		return sched.NewSequential(o, []sched.Scheduler{sched.NewLambda(o, func(t int) float64 { return 0.1 + float64(0.05*float64(t)) }),
			sched.NewCosineWarmRestarts(o, 6, 2, 0), sched.NewPolynomial(o, 20, 1.5), sched.NewMultiStep(o, []int{3, 5}, 0.1)}, []int{4, 25, 50})
	},
	"chained": func(o optim.Optimizer) sched.Schedule {
		return sched.NewChained(sched.NewConstant(o, 0.1, 6), sched.NewExponential(o, 0.95))
	},
}

// convert converts recorded JSON to the values that a reader of torch's files returns.
func convert(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = convert(v[i])
		}
		return out
	case map[string]any:
		if s, ok := v["float"].(string); ok && len(v) == 1 {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				panic(err)
			}
			return f
		}
		if m, ok := v["ints"].(map[string]any); ok && len(v) == 1 {
			out := map[int64]any{}
			for k, e := range m {
				n, err := strconv.ParseInt(k, 10, 64)
				if err != nil {
					panic(err)
				}
				out[n] = convert(e)
			}
			return out
		}
		out := map[string]any{}
		for k := range v {
			out[k] = convert(v[k])
		}
		return out
	}
	return v
}

func compare(t *testing.T, path string, got, want any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			t.Fatalf("%s is %v, want %v", path, got, want)
		}
		for k := range w {
			compare(t, path+"."+k, g[k], w[k])
		}
	case map[int64]any:
		g, ok := got.(map[int64]any)
		if !ok || len(g) != len(w) {
			t.Fatalf("%s is %v, want %v", path, got, want)
		}
		for k := range w {
			compare(t, fmt.Sprint(path, ".", k), g[k], w[k])
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			t.Fatalf("%s is %v, want %v", path, got, want)
		}
		for k := range w {
			compare(t, fmt.Sprint(path, ".", k), g[k], w[k])
		}
	case float64:
		if n, ok := got.(int64); ok {
			got = float64(n)
		}
		if got != w {
			t.Fatalf("%s is %v, want %v", path, got, want)
		}
	default:
		if got != want {
			t.Fatalf("%s is %v, want %v", path, got, want)
		}
	}
}

func momentumOf(g *optim.Group) float64 {
	if v, ok := g.Option("betas"); ok {
		return v.([]any)[0].(float64)
	}
	v, _ := g.Option("momentum")
	return v.(float64)
}

// Learning rates and momenta are bitwise equal to PyTorch's. The state dicts have PyTorch's names
// and values. A schedule that loads PyTorch's state continues as PyTorch did.
func TestRatesEqualTorch(t *testing.T) {
	f, err := golden.Open("testdata/sched.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	var states map[string]map[string]any
	var metrics []float64
	for name, p := range map[string]any{"states": &states, "metrics": &metrics} {
		if err := json.Unmarshal([]byte(f.Meta[name]), p); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for key, state := range states {
		name, kind, _ := strings.Cut(key, "/")
		seen[name] = true
		lrs, err := f.Tensor(key + "/lr")
		if err != nil {
			t.Fatal(err)
		}
		var momenta []float64
		if m, err := f.Tensor(key + "/momentum"); err == nil {
			momenta = m.Float64s()
		}
		check := func(what string, o optim.Optimizer, s sched.Schedule, step int) {
			t.Helper()
			last := s.LastLR()
			for i, g := range o.Groups() {
				want := lrs.Float64s()[3*step+i]
				if math.Float64bits(g.LR) != math.Float64bits(want) || last[i] != g.LR {
					t.Fatalf("%s %s: step %d group %d: rate %v, last %v, want %v", key, what, step, i, g.LR, last[i], want)
				}
				m := 0.9
				if momenta != nil {
					m = momenta[3*step+i]
				}
				if got := momentumOf(g); got != m {
					t.Fatalf("%s %s: step %d group %d: momentum %v, want %v", key, what, step, i, got, m)
				}
			}
		}
		advance := func(s sched.Schedule, t int) {
			if m, ok := s.(sched.MetricScheduler); ok {
				m.StepMetric(metrics[t])
				return
			}
			s.(sched.Scheduler).Step()
		}
		if makers[name] == nil {
			t.Fatalf("no schedule %q", name)
		}
		o := newOptimizer(kind)
		s := makers[name](o)
		check("from the start", o, s, 0)
		for step := range saved {
			advance(s, step)
			check("from the start", o, s, step+1)
		}
		tree := convert(state).(map[string]any)
		compare(t, key, s.StateDict(), tree)
		again := newOptimizer(kind)
		r := makers[name](again)
		if err := r.LoadStateDict(tree); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if err := again.LoadStateDict(o.StateDict()); err != nil {
			t.Fatal(err)
		}
		compare(t, key+" loaded", r.StateDict(), tree)
		for step := saved; step < steps; step++ {
			advance(s, step)
			check("from the start", o, s, step+1)
			advance(r, step)
			check("resumed", again, r, step+1)
		}
	}
	for name := range makers {
		if !seen[name] {
			t.Errorf("no case %q", name)
		}
	}
}
