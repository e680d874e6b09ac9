package cuda_test

import (
	"errors"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// emulated returns an emulated device with the given memory.
func emulated(t *testing.T, mem string) *cuda.Device {
	t.Helper()
	d, err := cuda.Emulate("emulate,mem=" + mem)
	if err != nil {
		t.Fatal(err)
	}
	return d[0]
}

// trainer is a perceptron on the digits data set. Each step allocates some megabytes.
type trainer struct {
	m    *nn.Sequential
	opt  optim.Optimizer
	set  *digits.Set
	step int
}

func newTrainer(t *testing.T, dev device.Device, hidden int) *trainer {
	t.Helper()
	set, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	m := nn.To(nn.NewSequential(nn.NewLinear(digits.Pixels, hidden), nn.GELU{Tanh: true}, nn.NewLinear(hidden, digits.Classes)), dev)
	return &trainer{m: m, opt: optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.05, Momentum: 0.9}), set: set}
}

// batch returns the next 16 images of digits with their classes.
func (r *trainer) batch(t *testing.T) (x, y *tensor.Tensor) {
	t.Helper()
	var index []int
	for k := range 16 {
		index = append(index, (16*r.step+k)%r.set.Len())
	}
	r.step++
	x, y, err := r.set.GetBatch(index)
	if err != nil {
		t.Fatal(err)
	}
	return x, y
}

func (r *trainer) scoped(t *testing.T, dev device.Device) (loss float64) {
	x, y := r.batch(t)
	tensor.Do(func(s *tensor.Scope) {
		l := nn.CrossEntropy(r.m.Forward(s.From(x)), s.From(y))
		l.Backward()
		r.opt.Step()
		r.opt.ZeroGrad()
		loss = l.Item()
	}, tensor.On(dev))
	return loss
}

// unscoped runs a training step in a program that does not use scopes.
func (r *trainer) unscoped(t *testing.T, dev device.Device) float64 {
	x, y := r.batch(t)
	l := nn.CrossEntropy(r.m.Forward(x.To(dev)), y.To(dev))
	l.Backward()
	r.opt.Step()
	nn.ZeroGrad(r.m)
	return l.Item()
}

func (r *trainer) free() {
	for _, p := range nn.Parameters(r.m) {
		p.ZeroGrad()
		p.Free()
	}
}

// memoryRun returns the sizes of a memory test. With FLAMBEAU_SOAK the test has 300 steps on 64
// MiB. In total, the steps must allocate at least ten times as much. Otherwise the test is shorter.
func memoryRun() (mem string, n, hidden, allocated int) {
	switch {
	case os.Getenv("FLAMBEAU_SOAK") != "":
		return "64MiB", 300, 5120, 10 * 64 << 20
	case testing.Short():
		return "4MiB", 12, 512, 2 << 20
	}
	return "4MiB", 24, 1024, 3 * 4 << 20
}

// TestScopesKeepMemoryFlat trains with scopes while the garbage collector is off. Memory use must
// stay constant.
func TestScopesKeepMemoryFlat(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	mem, n, hidden, allocated := memoryRun()
	dev := emulated(t, mem)
	r := newTrainer(t, dev, hidden)
	first := r.scoped(t, dev)
	r.scoped(t, dev)
	flat := dev.Stats()
	var last float64
	for range n - 2 {
		last = r.scoped(t, dev)
		if now := dev.Stats(); now.Allocated != flat.Allocated || now.Reserved != flat.Reserved {
			t.Fatalf("step %d: %d bytes allocated and %d reserved, %d and %d after the second step", r.step, now.Allocated, now.Reserved, flat.Allocated, flat.Reserved)
		}
	}
	end := dev.Stats()
	if end.AllocatedTotal < allocated {
		t.Errorf("only %d bytes were allocated in all", end.AllocatedTotal)
	}
	if !(last < first) {
		t.Errorf("the loss went from %v to %v", first, last)
	}
	t.Logf("%d steps, %d MiB allocated in all, %d KiB live, peak %d KiB", n, end.AllocatedTotal>>20, end.Allocated>>10, end.AllocatedPeak>>10)
}

// TestWithoutScopesTheCollectorSuffices trains without scopes. The garbage collector's ordinary
// runs must free enough memory.
func TestWithoutScopesTheCollectorSuffices(t *testing.T) {
	mem, n, hidden, allocated := memoryRun()
	dev := emulated(t, mem)
	r := newTrainer(t, dev, hidden)
	first := r.unscoped(t, dev)
	var last float64
	for range n - 1 {
		last = r.unscoped(t, dev)
	}
	end := dev.Stats()
	if end.AllocatedTotal < allocated || !(last < first) || end.OOMs != 0 {
		t.Errorf("loss from %v to %v, %+v", first, last, end)
	}
	t.Logf("%d steps, %d MiB allocated in all, %d climbs of the ladder", n, end.AllocatedTotal>>20, end.Retries)
}

// TestFourModelsOnOneDevice trains four models in four goroutines on one device. At the end, memory
// use must be as before.
func TestFourModelsOnOneDevice(t *testing.T) {
	dev := emulated(t, "64MiB")
	before := dev.Stats().Allocated
	var wg sync.WaitGroup
	losses := make([][2]float64, 4)
	for k := range losses {
		wg.Go(func() {
			r := newTrainer(t, dev, 64)
			losses[k][0] = r.scoped(t, dev)
			for range 9 {
				losses[k][1] = r.scoped(t, dev)
			}
			r.free()
		})
	}
	wg.Wait()
	for k, l := range losses {
		if !(l[1] < l[0]) {
			t.Errorf("model %d: loss from %v to %v", k, l[0], l[1])
		}
	}
	// Only the optimizers' state is left in memory, and the garbage collector can free it.
	for range 50 {
		runtime.GC()
		if dev.Stats().Allocated == before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%d bytes are left, %d at the start", dev.Stats().Allocated, before)
}

// TestOutOfMemoryText makes an allocation fail. The typed error must list what holds the memory,
// and the program must be able to continue.
func TestOutOfMemoryText(t *testing.T) {
	dev := emulated(t, "64MiB")
	tensor.Do(func(s *tensor.Scope) {
		var held []*tensor.Tensor
		for range 12 {
			held = append(held, s.Zeros(1<<20)) // allocates 4 MiB
		}
		err := tensor.Try(func() { s.Zeros(8, 1<<20) })
		if !errors.Is(err, device.ErrOutOfMemory) {
			t.Fatalf("got %v", err)
		}
		text := err.Error()
		for _, want := range []string{`zeros`, `32\.0+ MiB`, `free`, `reserved`, `[Ll]argest free block`, `48\.00? MiB in 12 blocks: \[1048576\] float32`, `training_test\.go:\d+`} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
		if n := strings.Count(text, "float32"); n > 12 {
			t.Errorf("%d owners are listed:\n%s", n, text)
		}
		t.Log(text)
		for _, h := range held {
			h.Free()
		}
		if got := s.Ones(8, 1<<20).Narrow(1, 0, 2).Sum().Item(); got != 16 {
			t.Errorf("the program goes on: %v", got)
		}
	}, tensor.On(dev))
}
