// Package sched changes the learning rates of an optimizer from step to step, as
// torch.optim.lr_scheduler does.
//
// A program makes a schedule for an optimizer ([NewCosineAnnealing], [NewOneCycle], …). If the
// schedule's numbers count steps, the program calls the schedule's Step after each step of the
// optimizer. If they count epochs, the program calls Step after each epoch. [NewWarmUp],
// [NewSequential] and [NewChained] combine schedules. [NewPlateau] follows a metric.
//
// A schedule begins when it is made. It stores each group's learning rate as the group's InitialLR,
// unless an earlier schedule has done so. Then it sets the rate of step 0. Some schedules change
// the momentum too.
//
// As in PyTorch, most schedules compute a rate from the previous rate ("chainable"). They can
// therefore be combined, and continue from a rate that the program has changed. In float64 the
// rates are bitwise equal to PyTorch's.
//
// StateDict and LoadStateDict save and load the state under torch's names. As in PyTorch, loading a
// schedule does not change the optimizer. The optimizer's own state has the rates. Load it after
// making the schedule, which sets the rate of step 0.
//
// Invalid arguments panic with an *[optim.Error]. A tree that does not fit is an
// *[optim.StateError].
package sched

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/internal/exact"
)

// An Optimizer has groups with learning rates.
type Optimizer interface{ Groups() []*optim.Group }

// A Schedule has the methods of all schedules.
type Schedule interface {
	LastLR() []float64 // learning rates that the latest step has set, by group
	StateDict() map[string]any
	LoadStateDict(tree map[string]any) error
}

// A Scheduler is a schedule that depends on the number of steps.
type Scheduler interface {
	Schedule
	Step() // sets the next learning rates
}

// A MetricScheduler is a schedule that depends on a measured value, such as the validation loss.
type MetricScheduler interface {
	Schedule
	StepMetric(v float64) // records the newest value, and sets the learning rates
}

// A member is a schedule that can be part of another schedule.
type member interface {
	Scheduler
	optimizer() Optimizer
	begin()          // does what torch's _initial_step does
	undo()           // undoes the count of one step
	restart()        // does what torch's _update_lr(0) does
	plan() []setting // returns the entries of the schedule's state
	title() string
}

// LR is a schedule of learning rates. The constructor determines its rule.
type LR struct {
	name      string
	opt       Optimizer
	base      []float64
	lastEpoch int
	stepCount int
	initial   bool
	last      []float64
	settings  []setting // the schedule's own settings, with torch's names

	// next returns the next rate of group i, whose present rate is lr.
	next func(l *LR, i int, lr float64) float64
	// closed returns the rate as a function of lastEpoch and base only. Schedules without such a
	// formula have a nil closed and use next.
	closed func(l *LR, base float64) float64
	// count replaces the usual count of a step, which adds one to lastEpoch. It may be nil.
	count func()
}

func fail(name, format string, a ...any) {
	panic(&optim.Error{Optimizer: name, Msg: fmt.Sprintf(format, a...)})
}

// finite panics if the argument v is NaN or infinite, because all rates would become NaN or
// infinite.
func (l *LR) finite(what string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		fail(l.name, "%s is %v", what, v)
	}
}

// start initialises l and sets the rates of step 0.
func (l *LR) start() *LR {
	if l.opt == nil || len(l.opt.Groups()) == 0 {
		fail(l.name, "there is no optimizer")
	}
	for _, g := range l.opt.Groups() {
		if g.InitialLR == 0 {
			g.InitialLR = g.LR
		}
		l.base = append(l.base, g.InitialLR)
	}
	l.lastEpoch = -1
	l.begin()
	return l
}

func (l *LR) begin() {
	l.stepCount, l.initial = 0, true
	l.Step()
	l.initial = false
}

// Step sets the learning rates for the next step.
func (l *LR) Step() {
	if l.count != nil {
		l.count()
	} else {
		l.stepCount++
		l.lastEpoch++
	}
	l.update(l.next)
}

func (l *LR) restart() {
	l.lastEpoch = 0
	if l.closed == nil {
		l.update(l.next)
		return
	}
	l.update(func(l *LR, i int, _ float64) float64 { return l.closed(l, l.base[i]) })
}

func (l *LR) update(next func(l *LR, i int, lr float64) float64) {
	groups := l.opt.Groups()
	if len(groups) != len(l.base) {
		fail(l.name, "the optimizer has %d groups, it had %d when the schedule was made", len(groups), len(l.base))
	}
	rates := make([]float64, len(groups))
	for i, g := range groups {
		rates[i] = next(l, i, g.LR)
	}
	for i, g := range groups {
		g.LR = rates[i]
	}
	l.last = rates
}

func (l *LR) undo() { l.lastEpoch-- }

func (l *LR) optimizer() Optimizer { return l.opt }

func (l *LR) title() string { return l.name }

// LastLR returns the learning rates that the latest step has set, by group.
func (l *LR) LastLR() []float64 { return append([]float64(nil), l.last...) }

// NewStep returns torch's StepLR. It multiplies the rate by gamma whenever the number of steps is a
// multiple of size.
func NewStep(opt Optimizer, size int, gamma float64) *LR {
	l := &LR{name: "StepLR", opt: opt}
	if size <= 0 {
		fail(l.name, "%d steps between changes", size)
	}
	l.finite("gamma", gamma)
	l.settings = []setting{integerEntry("step_size", &size), real("gamma", &gamma)}
	l.next = func(l *LR, _ int, lr float64) float64 {
		if l.lastEpoch == 0 || l.lastEpoch%size != 0 {
			return lr
		}
		return lr * gamma
	}
	l.closed = func(l *LR, base float64) float64 { return base * exact.Pow(gamma, float64(l.lastEpoch/size)) }
	return l.start()
}

// NewMultiStep returns torch's MultiStepLR. It multiplies the rate by gamma at each milestone.
// A milestone is a number of steps.
func NewMultiStep(opt Optimizer, milestones []int, gamma float64) *LR {
	l := &LR{name: "MultiStepLR", opt: opt}
	l.finite("gamma", gamma)
	at := slices.Sorted(slices.Values(milestones))
	before := func(n int) int { i, _ := slices.BinarySearch(at, n); return i }
	l.settings = []setting{counter("milestones", &at), real("gamma", &gamma)}
	l.next = func(l *LR, _ int, lr float64) float64 {
		n := before(l.lastEpoch+1) - before(l.lastEpoch)
		if n == 0 {
			return lr
		}
		return lr * exact.Pow(gamma, float64(n))
	}
	l.closed = func(l *LR, base float64) float64 { return base * exact.Pow(gamma, float64(before(l.lastEpoch+1))) }
	return l.start()
}

// NewConstant returns torch's ConstantLR. It multiplies the rate by factor, in [0, 1], for the
// given number of steps. After that it restores the initial rate. This works even if factor is 0,
// while torch fails in this case.
func NewConstant(opt Optimizer, factor float64, steps int) *LR {
	l := &LR{name: "ConstantLR", opt: opt}
	if !(factor >= 0 && factor <= 1) {
		fail(l.name, "the factor %v is not in [0, 1]", factor)
	}
	l.settings = []setting{real("factor", &factor), integerEntry("total_iters", &steps)}
	l.next = func(l *LR, i int, lr float64) float64 {
		switch {
		case l.lastEpoch == 0:
			return lr * factor
		case l.lastEpoch == steps && factor == 0:
			return l.base[i]
		case l.lastEpoch == steps:
			return lr * (1 / factor)
		}
		return lr
	}
	l.closed = func(l *LR, base float64) float64 {
		if l.lastEpoch >= steps {
			return base * (factor + (1 - factor))
		}
		return base * factor
	}
	return l.start()
}

// NewLinear returns torch's LinearLR. The factor of the rate changes linearly from start to end in
// the given number of steps.
func NewLinear(opt Optimizer, start, end float64, steps int) *LR {
	l := &LR{name: "LinearLR", opt: opt}
	if !(start > 0 && start <= 1) {
		fail(l.name, "the factor %v at the start is not in (0, 1]", start)
	}
	if !(end >= 0 && end <= 1) {
		fail(l.name, "the factor %v at the end is not in [0, 1]", end)
	}
	if steps <= 0 {
		fail(l.name, "a line of %d steps", steps)
	}
	l.settings = []setting{real("start_factor", &start), real("end_factor", &end), integerEntry("total_iters", &steps)}
	l.next = func(l *LR, _ int, lr float64) float64 {
		switch {
		case l.lastEpoch == 0:
			return lr * start
		case l.initial || l.lastEpoch > steps:
			return lr
		}
		return lr * (1 + (end-start)/(float64(float64(steps)*start)+float64(float64(l.lastEpoch-1)*(end-start))))
	}
	l.closed = func(l *LR, base float64) float64 {
		return base * (start + float64((end-start)*float64(min(steps, l.lastEpoch)))/float64(steps))
	}
	return l.start()
}

// NewExponential returns torch's ExponentialLR. It multiplies the rate by gamma in every step.
func NewExponential(opt Optimizer, gamma float64) *LR {
	l := &LR{name: "ExponentialLR", opt: opt}
	l.finite("gamma", gamma)
	l.settings = []setting{real("gamma", &gamma)}
	l.next = func(l *LR, _ int, lr float64) float64 {
		if l.initial {
			return lr
		}
		return lr * gamma
	}
	l.closed = func(l *LR, base float64) float64 { return base * exact.Pow(gamma, float64(l.lastEpoch)) }
	return l.start()
}

// NewPolynomial returns torch's PolynomialLR. In step t the factor of the rate is (1 -
// t/steps)^power. It reaches 0 after the given number of steps.
func NewPolynomial(opt Optimizer, steps int, power float64) *LR {
	l := &LR{name: "PolynomialLR", opt: opt}
	if steps <= 0 {
		fail(l.name, "a fall of %d steps", steps)
	}
	l.finite("power", power)
	l.settings = []setting{integerEntry("total_iters", &steps), real("power", &power)}
	l.next = func(l *LR, _ int, lr float64) float64 {
		if l.initial || l.lastEpoch > steps {
			return lr
		}
		n := float64(steps)
		return lr * exact.Pow((1-float64(l.lastEpoch)/n)/(1-float64(l.lastEpoch-1)/n), power)
	}
	l.closed = func(l *LR, base float64) float64 {
		return base * exact.Pow(1-float64(min(steps, l.lastEpoch))/float64(steps), power)
	}
	return l.start()
}

// NewLambda returns torch's LambdaLR. The rate of step t is the initial rate times f(t). Pass one
// function for all groups, or a function for each group. Functions are not saved.
func NewLambda(opt Optimizer, f ...func(step int) float64) *LR {
	l := &LR{name: "LambdaLR", opt: opt}
	f = l.functions(f)
	l.next = func(l *LR, i int, _ float64) float64 { return l.base[i] * f[i](l.lastEpoch) }
	return l.start()
}

// NewMultiplicative returns torch's MultiplicativeLR. Step t multiplies the rate by f(t). Pass one
// function for all groups, or a function for each group. Functions are not saved.
func NewMultiplicative(opt Optimizer, f ...func(step int) float64) *LR {
	l := &LR{name: "MultiplicativeLR", opt: opt}
	f = l.functions(f)
	l.next = func(l *LR, i int, lr float64) float64 {
		if l.initial {
			return lr
		}
		return lr * f[i](l.lastEpoch)
	}
	return l.start()
}

// functions returns one function for each group.
func (l *LR) functions(f []func(int) float64) []func(int) float64 {
	n := len(l.opt.Groups())
	if len(f) == 1 {
		for len(f) < n {
			f = append(f, f[0])
		}
	}
	if len(f) != n {
		fail(l.name, "%d functions for %d groups", len(f), n)
	}
	for i := range f {
		if f[i] == nil {
			fail(l.name, "function %d is nil", i)
		}
	}
	none := make([]any, n)
	l.settings = []setting{{"lr_lambdas", func() any { return none }, func(any) (func(), string) { return func() {}, "" }}}
	return f
}

// NewCosineAnnealing returns torch's CosineAnnealingLR. The rate falls along half a cosine, from
// the initial rate to the rate etaMin, in the given number of steps. Then it rises back in as many
// steps, and so on (I. Loshchilov, F. Hutter, arXiv:1608.03983, without the restarts).
func NewCosineAnnealing(opt Optimizer, steps int, etaMin float64) *LR {
	l := &LR{name: "CosineAnnealingLR", opt: opt}
	if steps <= 0 {
		fail(l.name, "half a period of %d steps", steps)
	}
	l.settings = []setting{integerEntry("T_max", &steps), real("eta_min", &etaMin)}
	at := func(t int) float64 { return 1 + exact.Cos(math.Pi*float64(t)/float64(steps)) }
	l.closed = func(l *LR, base float64) float64 { return etaMin + float64((base-etaMin)*at(l.lastEpoch))/2 }
	l.next = func(l *LR, i int, lr float64) float64 {
		switch {
		case l.initial:
			return lr
		case l.stepCount == 1 && l.lastEpoch > 0:
			return l.closed(l, l.base[i])
		case (l.lastEpoch-1-steps)%(2*steps) == 0:
			return lr + float64((l.base[i]-etaMin)*(1-exact.Cos(math.Pi/float64(steps))))/2
		}
		return float64(at(l.lastEpoch)/at(l.lastEpoch-1)*(lr-etaMin)) + etaMin
	}
	return l.start()
}

// NewCosineWarmRestarts returns torch's CosineAnnealingWarmRestarts. In each period the rate falls
// along half a cosine, from the initial rate to the rate etaMin. Then the next period starts. The
// first period has t0 steps. The length of each later period is that of the previous period,
// multiplied by tMult (I. Loshchilov, F. Hutter, arXiv:1608.03983).
func NewCosineWarmRestarts(opt Optimizer, t0, tMult int, etaMin float64) *LR {
	l := &LR{name: "CosineAnnealingWarmRestarts", opt: opt}
	if t0 <= 0 || tMult < 1 {
		fail(l.name, "a first period of %d steps that becomes %d times as long", t0, tMult)
	}
	now, period := -1, t0
	l.settings = []setting{integerEntry("T_0", &t0), integerEntry("T_i", &period), integerEntry("T_mult", &tMult), real("eta_min", &etaMin), integerEntry("T_cur", &now)}
	l.count = func() {
		if l.lastEpoch < 0 {
			now, period, l.lastEpoch = 0, t0, 0
			return
		}
		l.lastEpoch++
		now++
		if now >= period {
			now %= period
			period *= tMult
		}
	}
	l.next = func(l *LR, i int, _ float64) float64 {
		return etaMin + float64((l.base[i]-etaMin)*(1+exact.Cos(math.Pi*float64(now)/float64(period))))/2
	}
	return l.start()
}
