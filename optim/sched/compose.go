package sched

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/optim/internal/exact"
)

// members checks the schedules of a composed schedule, and returns them as members.
func members(name string, opt Optimizer, list []Scheduler) []member {
	if len(list) == 0 {
		fail(name, "there are no schedules")
	}
	var out []member
	for i, s := range list {
		m, ok := s.(member)
		if !ok {
			fail(name, "schedule %d is a %T; the parts are schedules of this package", i, s)
		}
		if opt == nil {
			opt = m.optimizer()
		}
		if m.optimizer() != opt {
			fail(name, "schedule %d belongs to another optimizer", i)
		}
		out = append(out, m)
	}
	return out
}

// trees returns the setting "_schedulers" of a composed schedule. It holds the states of the
// members.
func trees(list []member) setting {
	get := func() any {
		out := make([]any, len(list))
		for i, m := range list {
			out[i] = m.StateDict()
		}
		return out
	}
	return setting{"_schedulers", get, func(v any) (func(), string) {
		states, ok := v.([]any)
		if !ok || len(states) != len(list) {
			return nil, fmt.Sprintf("is a %T, want a list of %d states", v, len(list))
		}
		var all []func()
		for i, s := range states {
			t, ok := s.(map[string]any)
			if !ok {
				return nil, fmt.Sprintf("holds a %T, want the state of a %s", s, list[i].title())
			}
			apply, path, wrong := read(list[i].plan(), t)
			if wrong != "" {
				return nil, fmt.Sprintf("[%d]%s %s", i, path, wrong)
			}
			all = append(all, apply...)
		}
		return func() {
			for _, f := range all {
				f()
			}
		}, ""
	}}
}

// Sequential runs one schedule after another. It is torch's SequentialLR.
type Sequential struct {
	opt        Optimizer
	list       []member
	milestones []int
	lastEpoch  int
	last       []float64
}

// NewSequential returns a schedule that runs the schedules in list one after another. Each
// milestone is a number of steps at which the next schedule takes over and restarts. The schedules
// in list must be for the same optimizer.
func NewSequential(opt Optimizer, list []Scheduler, milestones []int) *Sequential {
	const name = "SequentialLR"
	q := &Sequential{opt: opt, list: members(name, opt, list), milestones: slices.Clone(milestones)}
	if len(milestones) != len(list)-1 {
		fail(name, "%d milestones between %d schedules", len(milestones), len(list))
	}
	if !slices.IsSorted(milestones) {
		fail(name, "the milestones %v do not ascend", milestones)
	}
	for _, g := range opt.Groups() {
		g.LR = g.InitialLR
	}
	q.undoParts()
	at, _ := slices.BinarySearch(q.milestones, 1)
	first := q.list[at]
	first.begin()
	q.last = first.LastLR()
	return q
}

func (q *Sequential) undoParts() {
	for _, m := range q.list {
		m.undo()
	}
}

// Step sets the learning rates for the next step.
func (q *Sequential) Step() {
	q.lastEpoch++
	i, _ := slices.BinarySearch(q.milestones, q.lastEpoch+1)
	if i > 0 && q.milestones[i-1] == q.lastEpoch {
		q.list[i].restart()
	} else {
		q.list[i].Step()
	}
	q.last = q.list[i].LastLR()
}

// LastLR returns the learning rates that the latest step has set, by group.
func (q *Sequential) LastLR() []float64 { return append([]float64(nil), q.last...) }

func (q *Sequential) plan() []setting {
	return []setting{integerEntries("_milestones", &q.milestones), integerEntry("last_epoch", &q.lastEpoch), reals("_last_lr", &q.last), trees(q.list)}
}

// StateDict returns the state as a tree with torch's names. Its entry "_schedulers" has the states
// of the schedules in the list.
func (q *Sequential) StateDict() map[string]any { return tree(q.plan()) }

// LoadStateDict loads the state from a tree made by StateDict or by torch. If the tree does not
// fit, the error is an *[optim.StateError], and nothing was changed.
func (q *Sequential) LoadStateDict(m map[string]any) error { return load(q.title(), q.plan(), m) }

func (q *Sequential) optimizer() Optimizer { return q.opt }
func (q *Sequential) title() string        { return "SequentialLR" }
func (q *Sequential) undo()                { q.undoParts() }

func (q *Sequential) begin() {
	fail(q.title(), "a sequence cannot be a part of a sequence; give it the parts")
}

func (q *Sequential) restart() { q.begin() }

// Chained steps several schedules together. Each schedule starts from the rate that the previous
// one has set. Chained is torch's ChainedScheduler.
type Chained struct {
	opt  Optimizer
	list []member
	last []float64
}

// NewChained returns a schedule whose Step calls Step of all given schedules, in order.
func NewChained(list ...Scheduler) *Chained {
	c := &Chained{list: members("ChainedScheduler", nil, list)}
	c.opt = c.list[0].optimizer()
	c.last = rates(c.opt)
	return c
}

func rates(opt Optimizer) []float64 {
	var out []float64
	for _, g := range opt.Groups() {
		out = append(out, g.LR)
	}
	return out
}

// Step sets the learning rates for the next step.
func (c *Chained) Step() {
	for _, m := range c.list {
		m.Step()
	}
	c.last = rates(c.opt)
}

// LastLR returns the learning rates that the latest step has set, by group.
func (c *Chained) LastLR() []float64 { return append([]float64(nil), c.last...) }

func (c *Chained) plan() []setting { return []setting{reals("_last_lr", &c.last), trees(c.list)} }

// StateDict returns the state as a tree with torch's names. Its entry "_schedulers" has the states
// of the schedules in the list.
func (c *Chained) StateDict() map[string]any { return tree(c.plan()) }

// LoadStateDict loads the state from a tree made by StateDict or by torch. If the tree does not
// fit, the error is an *[optim.StateError], and nothing was changed.
func (c *Chained) LoadStateDict(m map[string]any) error { return load(c.title(), c.plan(), m) }

func (c *Chained) optimizer() Optimizer { return c.opt }
func (c *Chained) title() string        { return "ChainedScheduler" }

func (c *Chained) undo() { c.begin() }

func (c *Chained) begin() {
	fail(c.title(), "a chain cannot be a part of a sequence")
}

func (c *Chained) restart() { c.begin() }

// WarmUpConfig configures a warm-up.
type WarmUpConfig struct {
	Steps  int     // number of steps of the warm-up
	Start  float64 // factor of the initial rate in step 0, in (0, 1]; 0 means 1/Steps
	Cosine bool    // increase along half a cosine instead of linearly
}

// NewWarmUp returns a schedule whose rate increases to the initial rate. The last argument is the
// schedule that follows the warm-up. If it is nil, the rate stays constant after the warm-up. A
// linear warm-up is torch's SequentialLR of a LinearLR and the schedule that follows.
func NewWarmUp(opt Optimizer, c WarmUpConfig, then Scheduler) Scheduler {
	const name = "WarmUp"
	if c.Steps <= 0 {
		fail(name, "a warm-up of %d steps", c.Steps)
	}
	if c.Start == 0 {
		c.Start = 1 / float64(c.Steps)
	}
	if !(c.Start > 0 && c.Start <= 1) {
		fail(name, "the factor %v at the start is not in (0, 1]", c.Start)
	}
	var warm *LR
	if c.Cosine {
		warm = NewLambda(opt, func(step int) float64 {
			if step >= c.Steps {
				return 1
			}
			return c.Start + float64((1-c.Start)*(1-exact.Cos(math.Pi*float64(step)/float64(c.Steps))))/2
		})
	} else {
		warm = NewLinear(opt, c.Start, 1, c.Steps)
	}
	if then == nil {
		// As a [Sequential] does, the warm-up starts from the initial rate and not from the current
		// one.
		for i, g := range opt.Groups() {
			g.LR = warm.base[i]
		}
		warm.undo()
		warm.begin()
		return warm
	}
	return NewSequential(opt, []Scheduler{warm, then}, []int{c.Steps})
}
