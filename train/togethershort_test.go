package train_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// Allocations fail on any device at any point of a step. The training's result is bitwise equal to
// one without failures.
func TestTogetherFailuresLoseNothing(t *testing.T) {
	failures := 20
	if os.Getenv("FLAMBEAU_SOAK") == "1" {
		failures = 200
	}
	run := func(n, failures, steps int, half bool) (string, int) {
		gpus, err := cuda.Emulate(fmt.Sprintf("emulate:%d,mem=8MiB,segment=1KiB", n))
		if err != nil {
			t.Fatal(err)
		}
		m := nn.To(seeded(nn.NewSequential(nn.Flatten{}, nn.NewLinear(side*side, 24), nn.NewBatchNorm1d(24), nn.ReLU{}, nn.NewDropout(0.3),
			nn.NewLinear(24, 4))), device.Device(gpus[0]))
		opt := optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
		l, g := loader(t, pictures(t, 40), data.Config{Batch: 7, Shuffle: true, Seed: 2}), tensor.NewGenerator(9)
		held := make([]int, n)
		rng, log := rand.New(rand.NewPCG(uint64(n), 2)), new(strings.Builder)
		count := func() (n int) {
			for _, d := range gpus {
				n += d.Stats().OOMs
			}
			return n
		}
		next := func() { // one failure at a time, because two would split the batch
			for _, d := range gpus {
				d.Empty()
				if err := d.FailAlloc(0); err != nil {
					t.Error(err)
				}
			}
			// maxRequests is the largest number of requests that a step makes to the driver of
			// device i. It is greater for the first device, which also makes the optimizer's step.
			i, maxRequests := rng.IntN(n), 14
			if i == 0 {
				maxRequests = 40
			}
			if err := gpus[i].FailAlloc(1 + rng.IntN(maxRequests)); err != nil {
				t.Error(err)
			}
		}
		c := train.Config{Model: m, Optimizer: opt, Train: l, Generator: g, Steps: steps, Accumulate: 2, ClipNorm: 0.5, Log: log, ReadEvery: 4,
			OnStep: func(s *train.State) error {
				for i, d := range gpus {
					switch now := d.Stats().Allocated; {
					// The first step that is not skipped allocates the optimizer's state.
					case s.Step <= 10:
						held[i] = max(held[i], now)
					case now > held[i]:
						t.Errorf("step %d: %d bytes are in use on %s, at the beginning it were %d", s.Step, now, d.Name(), held[i])
						return train.ErrStop
					}
				}
				if failures > 0 && count() >= failures {
					return train.ErrStop
				}
				if failures > 0 {
					next()
				}
				return nil
			}}
		if half {
			c.Autocast, c.Scaler = dtype.F16, amp.NewGradScaler(amp.InitScale(1<<20), amp.GrowthInterval(3), amp.WarnAfter(1000, nil))
		}
		var list dist.DeviceList
		switch n {
		case 2:
			list = dist.On(gpus[0], gpus[1])
		case 3:
			list = dist.On(gpus[0], gpus[1], gpus[2])
		}
		c.Devices = list
		r, err := train.Fit(t.Context(), c)
		if err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		for _, d := range gpus {
			if err := d.FailAlloc(0); err != nil {
				t.Fatal(err)
			}
			if failures > 0 && d.Stats().OOMs == 0 {
				t.Errorf("%s never failed", d.Name())
			}
		}
		if strings.Contains(log.String(), "going on in parts") {
			t.Errorf("a failure with enough memory is to split nothing:\n%s", log.String())
		}
		t.Logf("%d failures in %d steps on %d devices", count(), r.Step, n)
		return stateBits(m, opt, l, g), r.Step
	}
	for _, n := range []int{2, 3} {
		for _, half := range []bool{false, true} {
			began := time.Now()
			got, steps := run(n, failures/4, 100*failures, half)
			if want, _ := run(n, 0, steps, half); got != want {
				a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
				for i := range a {
					if a[i] != b[i] {
						t.Fatalf("after %d steps:\n%.80s…\nwithout:\n%.80s…", steps, a[i], b[i])
					}
				}
			}
			t.Log(time.Since(began))
		}
	}
}
