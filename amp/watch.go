package amp

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Warning says that a scaler skips one step after another, so the training makes no progress.
type Warning struct {
	Skipped int     // number of consecutive skipped steps
	Scale   float64 // scale after these steps
	Floor   bool    // whether Scale is the lowest scale
}

func (w Warning) String() string {
	if w.Floor {
		return fmt.Sprintf("amp: a step was left out at the least scale, %v: gradients are infinite or NaN for another reason than the scale; GradScaler.Overflowed names the parameters", w.Scale)
	}
	return fmt.Sprintf("amp: %d steps in a row were left out, the scale has fallen to %v: gradients are infinite or NaN; GradScaler.Overflowed names the parameters", w.Skipped, w.Scale)
}

// late is the greatest number of updates by which the host may be behind the device.
const late = 16

// watch is the host's copy of the scale's state. When the device reports whether a step was
// skipped, the host changes its copy in the same way as the device changed the scale.
type watch struct {
	coming  []*tensor.LateItem
	scale   float32
	tracked int
	run     int // number of consecutive skipped steps
	total   int
	warned  bool
}

func (w *watch) add(s *settings, l *tensor.LateItem) {
	w.coming = append(w.coming, l)
	w.catchUp(s, late)
}

// catchUp processes the reports that have arrived, and then waits until at most limit reports are
// outstanding.
func (w *watch) catchUp(s *settings, limit int) {
	for len(w.coming) > limit || len(w.coming) > 0 && w.coming[0].Done() {
		w.next(s)
	}
}

// waitAll waits for all reports and processes them.
func (w *watch) waitAll(s *settings) {
	for len(w.coming) > 0 {
		w.next(s)
	}
}

func (w *watch) next(s *settings) {
	bad := w.coming[0].Item() != 0
	w.coming = w.coming[1:]
	if !bad {
		w.run, w.warned = 0, false
		if w.tracked++; w.tracked == s.interval {
			w.tracked = 0
			if v := float32(float64(w.scale) * s.growth); v-v == 0 {
				w.scale = v
			}
		}
		return
	}
	atFloor := s.floor > 0 && w.scale <= float32(s.floor)
	w.scale, w.tracked = max(float32(float64(w.scale)*s.backoff), float32(s.floor)), 0
	w.run++
	w.total++
	if (w.run >= s.patience || atFloor) && !w.warned {
		w.warned = true
		s.warn(Warning{Skipped: w.run, Scale: float64(w.scale), Floor: atFloor})
	}
}

// Skipped returns the number of updates that have found an infinity or NaN since the scaler was
// made or its state was loaded. It waits for the device.
func (g *GradScaler) Skipped() int {
	g.watch.waitAll(&g.settings)
	return g.watch.total
}
