package cuda

import (
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// constant is a dataset in which all elements of a sample are equal.
type constant struct{ n int }

func (d constant) Len() int { return d.n }
func (d constant) Get(i int) (data.Sample, error) {
	return data.Sample{X: make([]float32, 64), Y: i}, nil
}

// TestCopiesRunBesideSteps compares two trainings, in which a step takes about as long as the
// copies of a batch. With a loader that copies ahead from page-locked memory, the training must
// take only the time of the steps. With copies in each step, it must take the time of steps and
// copies. The test uses the emulated device's clock, and sets the latencies of steps and copies.
func TestCopiesRunBesideSteps(t *testing.T) {
	// each batch needs two copies: of X and of Y
	const steps, step, copied = 12, 1000 * time.Microsecond, 450 * time.Microsecond
	for _, ahead := range []bool{true, false} {
		e, err := emu.New(emu.Config{Memory: 16 << 20, Latency: func(op emu.Op) time.Duration {
			switch op.Kind {
			case emu.KindKernel:
				return step
			case emu.KindCopyHtoD:
				return copied
			}
			return 0
		}})
		must(t, err)
		p, err := newPlatform(e)
		must(t, err)
		d, err := p.open(0)
		must(t, err)
		c := data.Config{Batch: 8, Workers: 1, Prefetch: 2}
		if ahead {
			c.Device, c.Pin = d, true
		}
		l, err := data.NewLoader(constant{8 * steps}, c)
		must(t, err)
		// A kernel is loaded only once. Loading it here keeps that time out of the measurement.
		tensor.Do(func(s *tensor.Scope) { s.Zeros(8, 64).Neg() }, tensor.On(d))
		must(t, d.Synchronize())
		begin, n := e.Now(), 0
		uploads := d.Counters().Uploads
		var starts, ends []time.Duration // start and end times of the steps
		for b, err := range l.Batches() {
			must(t, err)
			n++
			// The loader gets time to run as far ahead as it can, because its real speed is not
			// measured.
			if ahead {
				want := uploads + uint64(2*min(n+c.Prefetch, steps))
				for i := 0; d.Counters().Uploads < want; i++ {
					if i == 5000 {
						t.Fatalf("batch %d: %d copies are queued, want %d", n, d.Counters().Uploads-uploads, want-uploads)
					}
					time.Sleep(time.Millisecond)
				}
			}
			tensor.Do(func(s *tensor.Scope) {
				x := s.From(b.X)
				y := s.From(b.Y)
				from, to := timed(t, d), timed(t, d)
				mark(t, d, from)
				x.Neg() // this kernel takes the time of a step
				mark(t, d, to)
				// reading an element waits for the step, as reading the loss does in a real program
				if y.Select(0, 0).Item() != float64(8*(n-1)) {
					t.Fatal("the wrong batch")
				}
				starts, ends = append(starts, since(t, d, from)), append(ends, since(t, d, to))
			}, tensor.On(d))
		}
		total := e.Now() - begin
		both := steps * (step + 2*copied)
		t.Logf("ahead %v: %v for %d steps of %v with copies of %v", ahead, total, n, step, 2*copied)
		switch {
		case n != steps:
			t.Errorf("%d steps", n)
		case ahead && total > steps*step+4*copied+steps*step/10:
			t.Errorf("copies ahead: %v, want little more than the steps' %v", total, steps*step)
		case !ahead && total < both:
			t.Errorf("copies in the step: %v, want the %v of both", total, both)
		}
		// once the first batches have arrived, no step waits for a copy
		for k := 1; k < steps && ahead; k++ {
			if gap := starts[k] - ends[k-1]; gap > step/10 {
				t.Errorf("step %d begins %v after the one before ended", k, gap)
			}
		}
	}
}

var origins = map[*Device]cu.Event{}

// timed returns an event that measures time. The times of a device are counted from the first call
// of timed for that device.
func timed(t *testing.T, d *Device) cu.Event {
	t.Helper()
	must(t, d.enter())
	defer d.leave()
	if _, ok := origins[d]; !ok {
		o, err := d.api.EventCreate(cu.EventDefault)
		must(t, err)
		must(t, d.api.EventRecord(o, d.main.handle))
		origins[d] = o
	}
	e, err := d.api.EventCreate(cu.EventDefault)
	must(t, err)
	return e
}

func mark(t *testing.T, d *Device, e cu.Event) {
	t.Helper()
	must(t, d.enter())
	defer d.leave()
	must(t, d.api.EventRecord(e, d.main.handle))
}

func since(t *testing.T, d *Device, e cu.Event) time.Duration {
	t.Helper()
	must(t, d.enter())
	defer d.leave()
	at, err := d.api.EventElapsed(origins[d], e)
	must(t, err)
	return at
}
