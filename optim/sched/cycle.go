package sched

import (
	"math"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/internal/exact"
)

// spread returns one value for each of n groups. The slice values has one value for all groups, or
// a value for each.
func spread(name, what string, values []float64, n int) []float64 {
	if len(values) == 1 {
		out := make([]float64, n)
		for i := range out {
			out[i] = values[0]
		}
		return out
	}
	if len(values) != n {
		fail(name, "%d values of %s for %d groups", len(values), what, n)
	}
	return append([]float64(nil), values...)
}

// momentum sets the momentum of a group: the option "momentum", or the first number of "betas".
type momentum struct{ beta bool }

func momentumOf(name string, opt Optimizer) momentum {
	g := opt.Groups()[0]
	if _, ok := g.Option("betas"); ok {
		return momentum{true}
	}
	if _, ok := g.Option("momentum"); !ok {
		fail(name, "the optimizer has neither a momentum nor betas that could cycle; set KeepMomentum")
	}
	return momentum{}
}

func (m momentum) set(name string, g *optim.Group, v float64) {
	option, value := "momentum", any(v)
	if m.beta {
		old, _ := g.Option("betas")
		list := append([]any(nil), old.([]any)...)
		list[0] = v
		option, value = "betas", list
	}
	if err := g.SetOption(option, value); err != nil {
		fail(name, "%v", err)
	}
}

func keep(g *optim.Group, values map[string]float64) {
	if g.Extra == nil {
		g.Extra = map[string]any{}
	}
	for k, v := range values {
		g.Extra[k] = v
	}
}

// OneCycleConfig configures a one-cycle policy. Zero values of Rise, Div, FinalDiv, BaseMomentum
// and MaxMomentum mean torch's defaults: 0.3, 25, 1e4, 0.85 and 0.95.
type OneCycleConfig struct {
	MaxLR []float64 // highest learning rate, for all groups or for each group
	// Steps is the number of steps of the cycle: torch's total_steps, or epochs times
	// steps_per_epoch.
	Steps int
	// Rise is the fraction of the steps in which the rate rises, torch's pct_start.
	Rise         float64
	Linear       bool // changes the rate linearly instead of along half cosines
	KeepMomentum bool // leaves the momentum unchanged
	// bounds of the momentum, which is lowest where the rate is highest
	BaseMomentum, MaxMomentum float64
	Div                       float64 // divisor of MaxLR that gives the first rate, MaxLR/Div
	FinalDiv                  float64 // divisor that gives the last rate, MaxLR/Div/FinalDiv
	ThreePhase                bool    // returns to the first rate before the last phase
}

// NewOneCycle returns torch's OneCycleLR. The rate rises from MaxLR/Div to MaxLR and then falls far
// below MaxLR/Div. The momentum falls while the rate rises, and rises while the rate falls (L.
// Smith, N. Topin, arXiv:1708.07120). Call Step once for each batch, and not more than Steps times.
// The groups' Extra has the bounds: "max_lr", "min_lr", "max_momentum" and "base_momentum".
func NewOneCycle(opt Optimizer, c OneCycleConfig) *LR {
	l := &LR{name: "OneCycleLR", opt: opt}
	for _, d := range []struct {
		p *float64
		v float64
	}{{&c.Rise, 0.3}, {&c.BaseMomentum, 0.85}, {&c.MaxMomentum, 0.95}, {&c.Div, 25}, {&c.FinalDiv, 1e4}} {
		if *d.p == 0 {
			*d.p = d.v
		}
	}
	if c.Steps <= 0 {
		fail(l.name, "a cycle of %d steps", c.Steps)
	}
	if !(c.Rise > 0 && c.Rise <= 1) {
		fail(l.name, "the rise takes %v of the steps, which is not in (0, 1]", c.Rise)
	}
	n := float64(c.Steps)
	phases := []phase{{float64(c.Rise*n) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"},
		{n - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"}}
	if c.ThreePhase {
		phases = []phase{phases[0], {float64(2*c.Rise*n) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"},
			{n - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"}}
	}
	groups := opt.Groups()
	var m momentum
	if !c.KeepMomentum {
		m = momentumOf(l.name, opt)
	}
	for i, top := range spread(l.name, "MaxLR", c.MaxLR, len(groups)) {
		g := groups[i]
		g.InitialLR = top / c.Div
		keep(g, map[string]float64{"max_lr": top, "min_lr": g.InitialLR / c.FinalDiv})
		if !c.KeepMomentum {
			m.set(l.name, g, c.MaxMomentum)
			keep(g, map[string]float64{"max_momentum": c.MaxMomentum, "base_momentum": c.BaseMomentum})
		}
	}
	anneal, cycled := "cos", !c.KeepMomentum
	if c.Linear {
		anneal = "linear"
	}
	l.settings = []setting{integerEntry("total_steps", &c.Steps), phasesOf(&phases), text("_anneal_func_type", &anneal, "cos", "linear"),
		flag("cycle_momentum", &cycled)}
	if cycled {
		l.settings = append(l.settings, flag("use_beta1", &m.beta))
	}
	l.next = func(l *LR, i int, _ float64) float64 {
		step, from := float64(l.lastEpoch), 0.0
		if l.lastEpoch > c.Steps {
			fail(l.name, "step %d of a cycle of %d steps; Steps is the number of all steps of the training, epochs times loader.Len()", l.lastEpoch, c.Steps)
		}
		g := opt.Groups()[i]
		for k, p := range phases {
			if step > p.end && k < len(phases)-1 {
				from = p.end
				continue
			}
			part := (step - from) / (p.end - from)
			if cycled {
				m.set(l.name, g, between(anneal, stored(l.name, g, p.fromMomentum), stored(l.name, g, p.toMomentum), part))
			}
			return between(anneal, stored(l.name, g, p.fromLR), stored(l.name, g, p.toLR), part)
		}
		panic("sched: a cycle without phases")
	}
	return l.start()
}

// A phase changes the rate and the momentum from a start value to an end value. These values are
// numbers in the groups' Extra, and the fields of type string hold the keys of the numbers. The
// phase ends at step end, which need not be a whole number.
type phase struct {
	end                                    float64
	fromLR, toLR, fromMomentum, toMomentum string
}

func phasesOf(p *[]phase) setting {
	get := func() any {
		var out []any
		for _, f := range *p {
			out = append(out, map[string]any{"end_step": f.end, "start_lr": f.fromLR, "end_lr": f.toLR, "start_momentum": f.fromMomentum, "end_momentum": f.toMomentum})
		}
		return out
	}
	return setting{"_schedule_phases", get, func(v any) (func(), string) {
		const wrong = "is not a list of phases as PyTorch has them"
		list, ok := v.([]any)
		if !ok || len(list) == 0 || len(list) > 3 {
			return nil, wrong
		}
		var out []phase
		for _, e := range list {
			m, _ := e.(map[string]any)
			end, ok := number(m["end_step"])
			f := phase{end: end}
			for _, name := range []struct {
				p    *string
				key  string
				with [3]string
			}{{&f.fromLR, "start_lr", [3]string{"initial_lr", "max_lr", "min_lr"}}, {&f.toLR, "end_lr", [3]string{"initial_lr", "max_lr", "min_lr"}},
				{&f.fromMomentum, "start_momentum", [3]string{"max_momentum", "base_momentum"}}, {&f.toMomentum, "end_momentum", [3]string{"max_momentum", "base_momentum"}}} {
				s, _ := m[name.key].(string)
				ok = ok && s != "" && (s == name.with[0] || s == name.with[1] || s == name.with[2])
				*name.p = s
			}
			if !ok {
				return nil, wrong
			}
			out = append(out, f)
		}
		return func() { *p = out }, ""
	}}
}

// stored returns the number with the given key in a group's Extra. For the key "initial_lr" it
// returns the group's initial rate.
func stored(name string, g *optim.Group, key string) float64 {
	if key == "initial_lr" {
		return g.InitialLR
	}
	v, ok := number(g.Extra[key])
	if !ok {
		fail(name, "a group has lost its %q", key)
	}
	return v
}

func between(anneal string, from, to, part float64) float64 {
	if anneal == "linear" {
		return float64((to-from)*part) + from
	}
	return to + float64((from-to)/2*(exact.Cos(math.Pi*part)+1))
}

// CyclicConfig configures a cycle between two rates. Zero values of the momenta mean torch's
// defaults, 0.8 and 0.9.
type CyclicConfig struct {
	BaseLR, MaxLR []float64 // bounds of the rate, one for all groups or one for each group
	Up, Down      int       // number of steps of the rise and of the fall; a Down of 0 means Up
	// Mode determines the heights of the cycles. With "triangular" or "" all cycles are equally
	// high. With "triangular2" each cycle is half as high as the one before. With "exp_range" the
	// height is Gamma to the power of the step.
	Mode         string
	Gamma        float64 // base of the height in the mode "exp_range"; 0 means 1
	KeepMomentum bool    // leaves the momentum unchanged
	// bounds of the momentum, which is lowest where the rate is highest
	BaseMomentum, MaxMomentum float64
}

// NewCyclic returns torch's CyclicLR. The rate rises and falls linearly between two values. The
// momentum falls while the rate rises, and rises while the rate falls (L. Smith, arXiv:1506.01186).
// torch's scale_fn, a custom function for the height, is not supported.
func NewCyclic(opt Optimizer, c CyclicConfig) *LR {
	l := &LR{name: "CyclicLR", opt: opt}
	for _, d := range []struct {
		p *float64
		v float64
	}{{&c.Gamma, 1}, {&c.BaseMomentum, 0.8}, {&c.MaxMomentum, 0.9}} {
		if *d.p == 0 {
			*d.p = d.v
		}
	}
	if c.Down == 0 {
		c.Down = c.Up
	}
	if c.Up <= 0 || c.Down < 0 {
		fail(l.name, "halves of %d and %d steps", c.Up, c.Down)
	}
	groups := opt.Groups()
	base, top := spread(l.name, "BaseLR", c.BaseLR, len(groups)), spread(l.name, "MaxLR", c.MaxLR, len(groups))
	for i, g := range groups {
		g.LR = base[i]
	}
	size := float64(c.Up) + float64(c.Down)
	ratio, mode, scaled := float64(c.Up)/size, c.Mode, "cycle"
	if mode == "" {
		mode = "triangular"
	}
	switch mode {
	case "triangular", "triangular2":
	case "exp_range":
		scaled = "iterations"
	default:
		fail(l.name, "unknown mode %q", mode)
	}
	scale := func(cycle float64) float64 {
		switch mode {
		case "triangular2":
			return 1 / exact.Pow(2, cycle-1)
		case "exp_range":
			return exact.Pow(c.Gamma, float64(l.lastEpoch))
		}
		return 1
	}
	cycled := !c.KeepMomentum
	var m momentum
	l.settings = []setting{reals("max_lrs", &top), real("total_size", &size), real("step_ratio", &ratio),
		text("mode", &mode, "triangular", "triangular2", "exp_range"), real("gamma", &c.Gamma), text("scale_mode", &scaled, "cycle", "iterations"),
		flag("cycle_momentum", &cycled), constant("_scale_fn_custom", nil)}
	low, high := spread(l.name, "BaseMomentum", []float64{c.BaseMomentum}, len(groups)), spread(l.name, "MaxMomentum", []float64{c.MaxMomentum}, len(groups))
	if cycled {
		m = momentumOf(l.name, opt)
		l.settings = append(l.settings, flag("use_beta1", &m.beta), reals("base_momentums", &low), reals("max_momentums", &high))
		for i, g := range groups {
			m.set(l.name, g, high[i])
			keep(g, map[string]float64{"max_momentum": high[i], "base_momentum": low[i]})
		}
	}
	l.next = func(l *LR, i int, _ float64) float64 {
		at := float64(l.lastEpoch) / size
		cycle := math.Floor(1 + at)
		x := 1 + at - cycle
		f := x / ratio
		if x > ratio {
			f = (x - 1) / (ratio - 1)
		}
		from := l.base[i]
		if cycled {
			m.set(l.name, opt.Groups()[i], high[i]-float64((high[i]-low[i])*f*scale(cycle)))
		}
		return from + float64((top[i]-from)*f*scale(cycle))
	}
	l.start()
	l.base = base // like torch, use the base rates and ignore the initial rates
	return l
}
