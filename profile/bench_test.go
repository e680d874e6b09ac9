package profile_test

import (
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// BenchmarkOff measures a span while no profile runs. Every op has this cost.
func BenchmarkOff(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		profile.Span("x")()
	}
}

// BenchmarkOn measures a span while a profile runs.
func BenchmarkOn(b *testing.B) {
	p, err := profile.Start(profile.Options{MaxEvents: 1 << 22})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		profile.Span("x")()
	}
	if err := p.Stop(); err != nil {
		b.Fatal(err)
	}
}

// allOptions has all options that make a profile record more.
var allOptions = profile.Options{Memory: true, Shapes: true, Stacks: true, FLOPs: true}

// smallCNN returns a function that runs a training step of a small convolutional network on the
// CPU. With a batch of 64, a step takes some milliseconds. A profile costs about the same for each
// op, so its relative overhead is larger in a shorter step.
func smallCNN() (step func()) {
	m := nn.NewSequential(nn.NewConv2d(1, 16, 3), &nn.ReLU{}, nn.NewConv2d(16, 16, 3), &nn.ReLU{},
		&nn.Flatten{}, nn.NewLinear(16*24*24, 10))
	opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.01})
	x, y := tensor.Root().Randn(64, 1, 28, 28), tensor.Root().RandInt(0, 10, 64)
	return func() {
		tensor.Do(func(s *tensor.Scope) {
			nn.CrossEntropy(m.Forward(x.In(s)), y.In(s)).Backward()
			opt.Step()
			opt.ZeroGrad()
		})
	}
}

// pair runs one step with a profile and one without, and returns the ratio of their times on the
// given clock. The order of the two steps is random. Otherwise an event that recurs every few steps
// could always affect the step with the profile, or always the other step.
func pair(tb testing.TB, step func(), o profile.Options, clock func() time.Duration) float64 {
	var off, on time.Duration
	onFirst := rand.IntN(2) == 0
	take := func(d *time.Duration) {
		start := clock()
		step()
		*d = clock() - start
	}
	if !onFirst {
		take(&off)
	}
	p, err := profile.Start(o)
	if err != nil {
		tb.Fatal(err)
	}
	take(&on)
	if err := p.Stop(); err != nil {
		tb.Fatal(err)
	}
	if onFirst {
		take(&off)
	}
	return float64(on) / float64(off)
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkStep runs steps of a small convolutional network on the CPU, alternately without and
// with a profile. The metrics are medians of the ratios of neighbouring steps, by elapsed time and
// by CPU time. A ratio minus 1 is the overhead.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name string
		o    profile.Options
	}{{"times", profile.Options{}}, {"memory", profile.Options{Memory: true}}, {"shapes", profile.Options{Shapes: true}}, {"stacks", profile.Options{Stacks: true}}, {"all", allOptions}} {
		b.Run(c.name, func(b *testing.B) {
			step := smallCNN()
			pair(b, step, c.o, device.Now)
			var wall, cpu []float64
			for b.Loop() {
				wall = append(wall, pair(b, step, c.o, device.Now))
				cpu = append(cpu, pair(b, step, c.o, cpuTime))
			}
			b.ReportMetric(median(wall), "ratio")
			b.ReportMetric(median(cpu), "cpu-ratio")
		})
	}
}

// BenchmarkHeld measures how much memory a profile with all options keeps for a thousand ops,
// including all events within the ops.
func BenchmarkHeld(b *testing.B) {
	step := smallCNN()
	step()
	p, err := profile.Start(allOptions)
	if err != nil {
		b.Fatal(err)
	}
	step()
	n, before := 0, heap()
	for b.Loop() {
		step()
		n++
	}
	held := heap() - before
	if err := p.Stop(); err != nil {
		b.Fatal(err)
	}
	ops := 0
	for _, r := range p.KeyAverages().Rows {
		if r.Kind == "op" || r.Kind == "backward" {
			ops += r.Count
		}
	}
	b.ReportMetric(float64(held)/float64(ops)*float64(n+1)/float64(n)*1000, "B/1000ops")
}

// heap returns the bytes of live objects.
func heap() int {
	// Cleanups release memory that only a later collection frees.
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestOverhead compares steps with and without a profile that has all options. A profile must cost
// only a small fraction of a step. For each pair of steps, the ratio of times is above or below a
// bound. A sign test counts both cases, and ends when the result is certain to three standard
// deviations. On a busy machine, where the ratios vary by 20 %, the test takes longer but gives the
// same result.
func TestOverhead(t *testing.T) {
	most, pairs := 1.08, 2000
	switch {
	case os.Getenv("FLAMBEAU_SOAK") == "1":
		most, pairs = 1.05, 10000
	case testing.Short(): // the race detector, which CI runs with -short, changes the ratio
		most, pairs = 1.5, 400
	}
	// Limit the number of workers. A worker that spins between two ops adds to the CPU time, but is
	// no cost of the profile.
	d := tensor.Root().Device().(device.WorkerSharer)
	defer d.SetWorkers(0)
	d.SetWorkers(1)
	step := smallCNN()
	pair(t, step, allOptions, cpuTime)
	var list []float64
	below := 0
	for len(list) < pairs {
		q := pair(t, step, allOptions, cpuTime)
		list = append(list, q)
		if q < most {
			below++
		}
		// If ratios above and below the bound are equally likely, then after n pairs the standard
		// deviation of the difference of the two counts is √n.
		n := float64(len(list))
		if d := float64(2*below) - n; len(list)%20 == 0 && math.Abs(d) > 3*math.Sqrt(n) {
			break
		}
	}
	m := median(list)
	t.Logf("a step takes %.3f of the time without a profile, by %d pairs, %d below %v", m, len(list), below, most)
	if 2*below < len(list) {
		t.Errorf("a step takes %.3f of the time without a profile, at most %v is allowed", m, most)
	}
}

// TestHeld checks that the record of an op, with its primitives and its memory events, takes about
// a kilobyte.
func TestHeld(t *testing.T) {
	tr := newTrainer(open(t))
	tr.step()
	p, err := profile.Start(allOptions)
	if err != nil {
		t.Fatal(err)
	}
	tr.step()
	const n = 60
	before := heap()
	for range n {
		tr.step()
	}
	held := heap() - before
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	ops := 0
	for _, r := range p.KeyAverages().Rows {
		if r.Kind == "op" || r.Kind == "backward" {
			ops += r.Count * n / (n + 1)
		}
	}
	if each := held / ops; each < 150 || each > 1200 {
		t.Errorf("%d bytes an op", each)
	}
}

// TestWaiting checks that a profile costs nothing while its schedule waits.
func TestWaiting(t *testing.T) {
	recorded(t, profile.Options{Memory: true, Shapes: true, Stacks: true, Schedule: profile.Schedule{Wait: 1 << 20, Active: 1}}, func(p *profile.Profile) {
		if device.Tracing() != nil {
			t.Error("something traces")
		}
		if n := testing.AllocsPerRun(100, func() {
			profile.Span("x")()
			if err := p.Step(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations a step", n)
		}
	})
}
