package amp

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Warning says that a scaler leaves steps out and the training does not go on.
type Warning struct {
	Skipped int     // steps in a row
	Scale   float64 // after them
	Floor   bool    // it is the least one
}

func (w Warning) String() string {
	if w.Floor {
		return fmt.Sprintf("amp: a step was left out at the least scale, %v: gradients are infinite or NaN for another reason than the scale; GradScaler.Overflowed names the parameters", w.Scale)
	}
	return fmt.Sprintf("amp: %d steps in a row were left out, the scale has fallen to %v: gradients are infinite or NaN; GradScaler.Overflowed names the parameters", w.Skipped, w.Scale)
}

// late is how many updates the host may be behind the device.
const late = 16

// watch is what the host knows of the scale: the device tells it later whether a step was left out,
// and it computes the rest as the device does.
type watch struct {
	coming  []*tensor.LateItem
	scale   float32
	tracked int
	run     int // steps left out in a row
	total   int
	warned  bool
}

func (w *watch) add(s *settings, l *tensor.LateItem) {
	w.coming = append(w.coming, l)
	w.catchUp(s, late)
}

// catchUp learns of what has come, and waits for what is more than most.
func (w *watch) catchUp(s *settings, most int) {
	for len(w.coming) > most || len(w.coming) > 0 && w.coming[0].Done() {
		w.next(s)
	}
}

// settle waits for all that is coming.
func (w *watch) settle(s *settings) {
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

// Skipped returns how many updates have found an infinity or NaN since the scaler was made or its
// state was loaded. It waits for the device.
func (g *GradScaler) Skipped() int {
	g.watch.settle(&g.settings)
	return g.watch.total
}
