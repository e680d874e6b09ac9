package sched

import (
	"math"
)

// PlateauConfig configures a schedule that waits for a plateau. Zero values of Factor, Patience,
// Threshold and Eps mean torch's defaults, 0.1, 10, 1e-4 and 1e-8.
type PlateauConfig struct {
	Max    bool    // whether a larger value is an improvement
	Factor float64 // factor by which the rate is multiplied, below 1
	// Patience is the number of consecutive values without an improvement that are tolerated. -1
	// means 0.
	Patience  int
	Threshold float64 // fraction of the best value that an improvement must exceed
	Absolute  bool    // Threshold is a difference instead of a fraction
	Cooldown  int     // number of values that are ignored after a change of the rate
	// MinLR is the lower bound of the rate, for all groups or for each group. Nil means 0.
	MinLR []float64
	Eps   float64 // a rate stays the same if it would change by Eps or less
}

// Plateau is torch's ReduceLROnPlateau. It lowers the rates when a value no longer improves.
type Plateau struct {
	opt                     Optimizer
	mode, thresholdMode     string
	factor, threshold, eps  float64
	patience, cooldown      int
	least                   []float64
	only                    any // lower bound for all groups; nil if each group has its own
	best, worst             float64
	waiting, bad, lastEpoch int
	last                    []float64
}

// NewPlateau returns the schedule. It changes nothing before the first StepMetric.
func NewPlateau(opt Optimizer, c PlateauConfig) *Plateau {
	const name = "ReduceLROnPlateau"
	if opt == nil || len(opt.Groups()) == 0 {
		fail(name, "there is no optimizer")
	}
	p := &Plateau{opt: opt, mode: "min", thresholdMode: "rel", factor: c.Factor, threshold: c.Threshold, eps: c.Eps, patience: c.Patience, cooldown: c.Cooldown}
	if p.factor == 0 {
		p.factor = 0.1
	}
	if p.threshold == 0 {
		p.threshold = 1e-4
	}
	if p.eps == 0 {
		p.eps = 1e-8
	}
	switch {
	case p.patience == 0:
		p.patience = 10
	case p.patience < 0:
		p.patience = 0
	}
	if !(p.factor < 1) {
		fail(name, "the factor %v is not below 1", p.factor)
	}
	if c.Max {
		p.mode = "max"
	}
	if c.Absolute {
		p.thresholdMode = "abs"
	}
	given := c.MinLR
	if len(given) == 0 {
		given = []float64{0}
	}
	if len(given) == 1 {
		p.only = given[0]
	}
	p.least = spread(name, "MinLR", given, len(opt.Groups()))
	p.setWorst()
	p.best = p.worst
	p.last = rates(opt)
	return p
}

func (p *Plateau) setWorst() {
	p.worst = math.Inf(1)
	if p.mode == "max" {
		p.worst = math.Inf(-1)
	}
}

func (p *Plateau) better(v float64) bool {
	switch {
	case p.mode == "min" && p.thresholdMode == "rel":
		return v < p.best*(1-p.threshold)
	case p.mode == "min":
		return v < p.best-p.threshold
	case p.thresholdMode == "rel":
		return v > p.best*(p.threshold+1)
	}
	return v > p.best+p.threshold
}

// StepMetric records the newest value of the watched quantity, such as the validation loss, and
// lowers the rates if a reduction is due.
func (p *Plateau) StepMetric(v float64) {
	p.lastEpoch++
	if p.better(v) {
		p.best, p.bad = v, 0
	} else {
		p.bad++
	}
	if p.waiting > 0 {
		p.waiting--
		p.bad = 0
	}
	if p.bad > p.patience {
		groups := p.opt.Groups()
		if len(groups) != len(p.least) {
			if p.only == nil {
				fail("ReduceLROnPlateau", "%d least rates for %d groups", len(p.least), len(groups))
			}
			p.least = spread("ReduceLROnPlateau", "MinLR", []float64{p.only.(float64)}, len(groups))
		}
		for i, g := range groups {
			if lr := max(g.LR*p.factor, p.least[i]); g.LR-lr > p.eps {
				g.LR = lr
			}
		}
		p.waiting, p.bad = p.cooldown, 0
	}
	p.last = rates(p.opt)
}

// LastLR returns the learning rates after the last StepMetric, by group.
func (p *Plateau) LastLR() []float64 { return append([]float64(nil), p.last...) }

func (p *Plateau) plan() []setting {
	only := setting{"default_min_lr", func() any { return p.only }, func(v any) (func(), string) {
		f, ok := number(v)
		if !ok && v != nil {
			return nil, "is neither a number nor nil"
		}
		return func() {
			p.only = v
			if ok {
				p.only = f
			}
		}, ""
	}}
	return []setting{real("factor", &p.factor), only, reals("min_lrs", &p.least), integerEntry("patience", &p.patience), integerEntry("cooldown", &p.cooldown),
		real("eps", &p.eps), integerEntry("last_epoch", &p.lastEpoch), reals("_last_lr", &p.last), text("mode", &p.mode, "min", "max"),
		real("threshold", &p.threshold), text("threshold_mode", &p.thresholdMode, "rel", "abs"), real("mode_worse", &p.worst), real("best", &p.best),
		integerEntry("cooldown_counter", &p.waiting), integerEntry("num_bad_epochs", &p.bad)}
}

// StateDict returns the state as a tree with torch's names.
func (p *Plateau) StateDict() map[string]any { return tree(p.plan()) }

// LoadStateDict loads the state from a tree made by StateDict or by torch. If the tree does not
// fit, the error is an *[optim.StateError], and nothing was changed.
func (p *Plateau) LoadStateDict(m map[string]any) error {
	if err := load("ReduceLROnPlateau", p.plan(), m); err != nil {
		return err
	}
	p.setWorst()
	return nil
}
