package cuda_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// whole is a training step with mixed precision, recomputation, dropout, batch normalisation,
// gradients accumulated over two passes, clipping, a loss scale and an average of the weights.
type whole struct {
	*stepper
	scaler *amp.GradScaler
	mean   *optim.Averaged
	at     func(stage int) // called between the stages of the step
}

func newWhole(dev *cuda.Device) *whole {
	w := &whole{stepper: newStepperOn(dev, adamW), at: func(int) {}}
	// with this initial scale, float16 gradients overflow in the first steps
	w.scaler = amp.NewGradScaler(amp.InitScale(1<<20), amp.GrowthInterval(2))
	w.mean = optim.NewEMA(w.m, 0.8)
	return w
}

const stages = 7

func (w *whole) step(s *tensor.Scope) {
	var total *tensor.Tensor
	for i := range 2 {
		s.Do(func(c *tensor.Scope) {
			forward := func(x ...*tensor.Tensor) *tensor.Tensor { return w.m.Forward(x[0]) }
			x, y := w.x.In(c).Narrow(0, 4*i, 4), w.y.In(c).Narrow(0, 4*i, 4)
			loss := nn.CrossEntropy(autograd.Checkpoint(forward, x), y).MulScalar(0.5)
			w.at(2 * i)
			w.scaler.Scale(loss).Backward()
			w.at(2*i + 1)
			if i == 0 {
				total = loss.Detach()
				c.Close(total)
			} else {
				w.loss.In(c).Copy(total.Add(loss.Detach()))
			}
		}, tensor.Autocast(dtype.F16))
	}
	w.scaler.Unscale(w.opt)
	optim.ClipGradNorm(w.opt.Params(), 0.5)
	w.at(4)
	w.scaler.Step(w.opt)
	w.at(5)
	w.scaler.Update()
	w.opt.ZeroGrad()
	w.mean.Update()
	w.at(6)
}

func (w *whole) numbers() []float64 {
	v := append(w.stepper.numbers(), w.scaler.Value(), float64(w.scaler.GrowthTracker()), float64(w.scaler.Skipped()), float64(w.mean.Updates()))
	m := w.mean.Averages()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v = append(v, m[name].Floats()...)
	}
	return v
}

func wholeOn(t *testing.T, seed int, pages bool) *whole {
	t.Helper()
	list, err := cuda.Emulate(fmt.Sprintf("emulate,mem=32MiB,segment=1KiB,seed=%d", seed))
	if err != nil {
		t.Fatal(err)
	}
	if err := list[0].SetExpandableSegments(pages); err != nil {
		t.Fatal(err)
	}
	return newWhole(list[0])
}

func (w *whole) eager(t *testing.T, k int) {
	t.Helper()
	w.feed(k)
	if err := tensor.Try(func() { tensor.Do(w.step, w.options()...) }); err != nil {
		t.Fatalf("step %d: %v", k, err)
	}
}

// TestCapturedWhole checks that replays of the training step of type whole compute the same bits as
// eager steps.
func TestCapturedWhole(t *testing.T) {
	steps := 8
	if testing.Short() {
		steps = 4
	}
	for _, seed := range []int{0, 6} {
		if testing.Short() && seed == 0 {
			continue
		}
		run := func(captured bool) (all [][]float64) {
			w := wholeOn(t, seed, false)
			var g *tensor.Graph
			if captured {
				var err error
				if g, err = tensor.Capture(w.dev, w.step, w.options()...); err != nil {
					t.Fatal(err)
				}
				defer g.Close()
			}
			for k := range steps {
				if g == nil {
					w.eager(t, k)
				} else {
					w.feed(k)
					if err := g.Replay(); err != nil {
						t.Fatal(err)
					}
				}
				if seed == 0 || k == steps-1 {
					all = append(all, w.numbers())
				}
			}
			if n := w.scaler.Skipped(); n == 0 || n == steps {
				t.Errorf("%d of %d steps were left out: the test does not test what it should", n, steps)
			}
			return all
		}
		want, got := run(false), run(true)
		for k := range want {
			if !slices.Equal(want[k], got[k]) {
				t.Errorf("seed %d, reading %d: replays give\n%v, eager steps\n%v", seed, k, got[k], want[k])
				break
			}
		}
	}
}

// TestCaptureFailsAnywhere checks that a failed capture has no lasting effect. Each request for
// memory fails in turn, or the step panics between two stages. This happens before the first step
// or after several. Later steps and a later capture must compute the same results as without the
// failure, and no memory may stay in use.
func TestCaptureFailsAnywhere(t *testing.T) {
	// With FLAMBEAU_SOAK, every request for memory fails in turn, otherwise only some.
	soak := os.Getenv("FLAMBEAU_SOAK") == "1"
	steps := func(w *whole, from int) []float64 {
		for k := from; k < from+3; k++ {
			w.eager(t, k)
		}
		g, err := tensor.Capture(w.dev, w.step, w.options()...)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		w.feed(9)
		for range 2 {
			if err := g.Replay(); err != nil {
				t.Fatal(err)
			}
		}
		return w.numbers()
	}
	for _, before := range []int{0, 5} { // gradients overflow in the first steps
		if testing.Short() && before > 0 {
			continue
		}
		undisturbed := wholeOn(t, 0, false)
		for k := range before {
			undisturbed.eager(t, k)
		}
		want := steps(undisturbed, before)
		mishap := errors.New("a mishap")
		fails := func(what string, pages bool, plan func(w *whole)) (failed bool) {
			w := wholeOn(t, 0, pages)
			for k := range before {
				w.eager(t, k)
			}
			w.feed(before)
			w.numbers()
			w.dev.Empty()
			seed, offset := w.gen.State()
			held := w.dev.Stats()
			plan(w)
			var g *tensor.Graph
			var err error
			func() {
				defer func() {
					if r := recover(); r != nil {
						err = r.(error)
					}
				}()
				g, err = tensor.Capture(w.dev, w.step, w.options()...)
			}()
			w.at = func(int) {}
			if e := w.dev.FailAlloc(0); e != nil {
				t.Fatal(e)
			}
			if err == nil {
				if err := g.Close(); err != nil {
					t.Error(err)
				}
				return false
			}
			if !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, mishap) {
				t.Errorf("%s: %v", what, err)
			}
			for _, p := range nn.Parameters(w.m) {
				if p.Grad() != nil {
					t.Errorf("%s: a gradient is left", what)
				}
			}
			if a, b := w.gen.State(); a != seed || b != offset {
				t.Errorf("%s: the generator went on", what)
			}
			runtime.GC()
			w.dev.Empty()
			state := 0
			// A step may have allocated state that stays in use: two moments of each parameter, and
			// the scaler's state.
			if before == 0 {
				for _, p := range nn.Parameters(w.m) {
					state += 2 * (p.Size()*4 + 511) &^ 511
				}
				state += 8 * 512
			} else {
				state = 2 * 512 // the counter of captured steps
			}
			if now := w.dev.Stats(); now.Allocated > held.Allocated+state {
				t.Errorf("%s: %d bytes are allocated, %d before", what, now.Allocated, held.Allocated)
			}
			if got := steps(w, before); !slices.Equal(got, want) {
				i := 0
				for got[i] == want[i] {
					i++
				}
				t.Errorf("%s, after %d steps: number %d of %d is %v after steps, %v without it", what, before, i, len(want), got[i], want[i])
			}
			return true
		}
		for _, pages := range []bool{false, true} {
			if pages && (testing.Short() || !soak && before > 0) {
				continue
			}
			n := 1
			for fails(fmt.Sprintf("pages %v, request %d", pages, n), pages, func(w *whole) {
				if err := w.dev.FailAlloc(n); err != nil {
					t.Fatal(err)
				}
			}) {
				if n++; !soak {
					n *= 2
				}
				if testing.Short() && n > 4 {
					break
				}
			}
			if n < 3 {
				t.Errorf("pages %v: the capture asks for memory less than twice", pages)
			}
		}
		for stage := range stages {
			if !soak && stage%3 != before%2 || testing.Short() && stage != 3 {
				continue
			}
			fails(fmt.Sprintf("a panic at %d", stage), false, func(w *whole) {
				w.at = func(i int) {
					if i == stage {
						panic(mishap)
					}
				}
			})
		}
	}
}
