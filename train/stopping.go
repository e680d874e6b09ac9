package train

import (
	"fmt"
	"math"
)

// EarlyStopping ends a training when a watched value has not improved for a while.
type EarlyStopping struct {
	// number of consecutive values without an improvement after which to stop; 0 means 1
	Patience int
	MinDelta float64 // smallest difference that counts as an improvement
	// Maximize means that greater values are better, as for an accuracy. By default smaller values
	// are better.
	Maximize bool

	best float64
	bad  int
	seen bool
}

// Observe records the next value and reports whether to stop. NaN is never an improvement.
func (e *EarlyStopping) Observe(v float64) (stop bool) {
	if e.better(v) {
		e.best, e.bad, e.seen = v, 0, true
		return false
	}
	e.bad++
	return e.bad >= max(e.Patience, 1)
}

func (e *EarlyStopping) better(v float64) bool {
	switch {
	case math.IsNaN(v):
		return false
	case !e.seen:
		return true
	case e.Maximize:
		return v > e.best+e.MinDelta
	}
	return v < e.best-e.MinDelta
}

// Best returns the best value so far, or NaN before the first.
func (e *EarlyStopping) Best() float64 {
	if !e.seen {
		return math.NaN()
	}
	return e.best
}

// StateDict returns the state for a checkpoint.
func (e *EarlyStopping) StateDict() map[string]any {
	return map[string]any{"best": e.best, "bad": int64(e.bad), "seen": e.seen}
}

// LoadStateDict restores a state that StateDict has returned.
func (e *EarlyStopping) LoadStateDict(sd map[string]any) error {
	best, ok1 := sd["best"].(float64)
	bad, ok2 := sd["bad"].(int64)
	seen, ok3 := sd["seen"].(bool)
	if !ok1 || !ok2 || !ok3 || bad < 0 {
		return &Error{"EarlyStopping", fmt.Sprintf("the state %v is not one of an EarlyStopping", sd)}
	}
	e.best, e.bad, e.seen = best, int(bad), seen
	return nil
}
