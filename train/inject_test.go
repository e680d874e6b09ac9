package train_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// stateBits returns all bits of the state of a model, an optimizer, a loader and a generator, as a
// string.
func stateBits(m any, opt optim.Optimizer, l *data.Loader, g *tensor.Generator) string {
	var b strings.Builder
	for _, p := range nn.Named(m) {
		fmt.Fprintf(&b, "%s %x\n", p.Name, p.Tensor.Detach().Bytes())
	}
	state := opt.StateDict()["state"].(map[int64]any)
	for i := range int64(len(opt.Params())) {
		for _, k := range []string{"step", "exp_avg", "exp_avg_sq"} {
			fmt.Fprintf(&b, "%s of %d %x\n", k, i, state[i].(map[string]any)[k].(*tensor.Tensor).Bytes())
		}
	}
	seed, offset := g.State()
	fmt.Fprintf(&b, "generator %d %d\nloader %v\n", seed, offset, l.StateDict())
	return b.String()
}

// The allocations of a training fail at random points in forward, backward, clipping and the
// optimizer's step. The training still makes every step, and its state is bitwise equal to that of
// a training without failures. After a step it holds no more memory than a training without
// failures.
func TestFailuresLoseNothing(t *testing.T) {
	failures := 50
	switch {
	case os.Getenv("FLAMBEAU_SOAK") == "1":
		failures = 1000
	case testing.Short(): // a short run, for the race detector
		failures = 20
	}
	set := pictures(t, 40)
	// fit trains until the given number of allocations have failed, each at a random point of a
	// step. If failures is 0, it trains for the given number of steps.
	fit := func(dev *cuda.Device, half bool, failures, steps int) (string, int, string) {
		m := nn.To(seeded(nn.NewSequential(nn.Flatten{}, nn.NewLinear(side*side, 24), nn.NewBatchNorm1d(24), nn.ReLU{}, nn.NewDropout(0.3),
			nn.NewLinear(24, 4))), device.Device(dev))
		opt := optim.NewAdamGroups(optim.With[optim.AdamConfig]{Params: nn.Parameters(m)[:3], Config: optim.AdamConfig{LR: 0.01}},
			optim.With[optim.AdamConfig]{Params: nn.Parameters(m)[3:], Config: optim.AdamConfig{LR: 0.02}})
		l, g, log := loader(t, set, data.Config{Batch: 7, Shuffle: true, Seed: 2}), tensor.NewGenerator(9), new(strings.Builder)
		rng, held, warm := rand.New(rand.NewPCG(1, 2)), 0, 1
		// The scaler allocates its tensors in several of the first steps. The optimizer allocates
		// its state in the first step that is not skipped.
		if half {
			warm = 10
		}
		// A step makes about 24 requests to the driver. If a step makes fewer requests than the
		// random number, none of its requests fails.
		next := func() {
			dev.Empty()
			if failures > 0 {
				if err := dev.FailAlloc(1 + rng.IntN(24)); err != nil {
					t.Error(err)
				}
			}
		}
		next()
		c := train.Config{Model: m, Optimizer: opt, Train: l, Generator: g, Steps: steps, Accumulate: 2, ClipNorm: 0.5, Log: log, ReadEvery: 4,
			// A failure would stop capturing; TestFailuresInCaptures tests this case.
			Capture: train.CaptureNever,
			OnStep: func(s *train.State) error {
				switch now := dev.Stats().Allocated; {
				case s.Step <= warm:
					held = max(held, now)
				case now > held:
					t.Errorf("step %d: %d bytes are in use, at the beginning it were %d", s.Step, now, held)
					return train.ErrStop
				}
				if failures > 0 && dev.Stats().OOMs >= failures {
					return train.ErrStop
				}
				next()
				return nil
			}}
		if half {
			c.Autocast, c.Scaler = dtype.F16, amp.NewGradScaler(amp.InitScale(1<<20), amp.GrowthInterval(3), amp.WarnAfter(1000, nil))
		}
		r, err := train.Fit(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := dev.FailAlloc(0); err != nil {
			t.Fatal(err)
		}
		all := stateBits(m, opt, l, g)
		if half {
			sd := c.Scaler.StateDict()
			all += fmt.Sprintf("scaler %v %v after %d\n", sd["scale"], sd["_growth_tracker"], opt.Steps())
			if n := c.Scaler.Skipped(); failures > 0 && (opt.Steps() == r.Step || opt.Steps() == 0) {
				t.Errorf("%d of %d steps are made, %d left out at the end: some are to overflow", opt.Steps(), r.Step, n)
			}
		}
		return all, r.Step, log.String()
	}
	for _, half := range []bool{false, true} {
		compareWithFailures(t, half, failures, fit)
	}
}

func compareWithFailures(t *testing.T, half bool, failures int, fit func(dev *cuda.Device, half bool, failures, steps int) (string, int, string)) {
	t.Helper()
	const spec = "mem=8MiB,segment=1KiB"
	if half {
		failures = failures * 2 / 5
	}
	dev := emulate(t, spec)
	got, steps, log := fit(dev, half, failures, 10*failures)
	if n := dev.Stats().OOMs; n < failures || steps == 10*failures {
		t.Fatalf("%d failures in %d steps", n, steps)
	}
	if strings.Contains(log, "going on in parts") {
		t.Errorf("a failure with enough memory is to split nothing:\n%s", log)
	}
	want, _, _ := fit(emulate(t, spec), half, 0, steps)
	if got != want {
		a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("after %d steps with %d failures:\n%s\nwithout:\n%s", steps, failures, a[i], b[i])
			}
		}
	}
	t.Logf("%d failures in %d steps", dev.Stats().OOMs, steps)
}

// An allocation fails while a step of two batches is captured, or in its first replays. The step
// then runs eagerly, and the training is bitwise equal to one without failures.
func TestFailuresInCaptures(t *testing.T) {
	set, ended := pictures(t, 28), 0
	run := func(how train.Capturing, failing int) string {
		dev := emulate(t, "mem=8MiB,segment=1KiB")
		m := nn.To(seeded(nn.NewSequential(nn.Flatten{}, nn.NewLinear(side*side, 8), nn.NewBatchNorm1d(8), nn.NewDropout(0.3), nn.NewLinear(8, 4))), device.Device(dev))
		opt := optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
		l, g, log := loader(t, set, data.Config{Batch: 7, Shuffle: true, Seed: 2}), tensor.NewGenerator(9), new(strings.Builder)
		c := train.Config{Model: m, Optimizer: opt, Train: l, Generator: g, Steps: 7, Accumulate: 2, Log: log, Capture: how,
			OnStep: func(s *train.State) error {
				if s.Step == 3 && failing > 0 {
					dev.Empty()
					return dev.FailAlloc(failing)
				}
				return nil
			}}
		if _, err := train.Fit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), "steps run eagerly") {
			ended++
		}
		return stateBits(m, opt, l, g)
	}
	want := run(train.CaptureNever, 0)
	for failing := range 40 {
		if run(train.CaptureOwn, failing) != want {
			t.Errorf("allocation %d after the third step fails: other bits", failing)
		}
	}
	if ended < 5 {
		t.Errorf("%d failures ended the captures", ended)
	}
}
