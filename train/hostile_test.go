package train_test

import (
	"errors"
	"fmt"
	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim/sched"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// loaderFunc is a loader for tests, made from a function.
type loaderFunc func(yield func(*data.Batch, error) bool)

func (f loaderFunc) Len() int                               { return -1 }
func (f loaderFunc) Batches() iter.Seq2[*data.Batch, error] { return iter.Seq2[*data.Batch, error](f) }

// If a training can learn nothing or measure nothing, the error names the setting at fault.
func TestNothingToLearnFrom(t *testing.T) {
	none := loaderFunc(func(func(*data.Batch, error) bool) {})
	training, _ := problem(t)
	few := loader(t, data.Subset{Of: training, Index: []int{1, 2}}, data.Config{Batch: 3, DropLast: true})
	for name, c := range map[string]struct {
		change func(c *train.Config)
		want   string
	}{
		"no batches":             {func(c *train.Config) { c.Train = none }, "Train: the loader gave no batches in an epoch"},
		"less than a batch":      {func(c *train.Config) { c.Train = few }, "smaller than a batch that DropLast leaves out"},
		"nothing to evaluate on": {func(c *train.Config) { c.Valid, c.Patience = none, 2 }, "Valid: the loader gave no batches"},
		"no parameters": {func(c *train.Config) {
			c.Model, c.Forward = &nn.ReLU{}, nil
		}, ""},
		"a rate that grows beyond all bounds": {func(c *train.Config) { c.Schedule = &growing{opt: c.Optimizer} }, "Schedule: after step 4 it has set a learning rate of +Inf in group 0"},
	} {
		cfg := setup(t, devices(t)[0])
		c.change(&cfg)
		r, err := train.Fit(t.Context(), cfg)
		var e *train.Error
		var misuse *tensor.Error
		switch {
		case c.want == "" && !errors.As(err, &misuse), c.want != "" && (!errors.As(err, &e) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	cfg := setup(t, devices(t)[0])
	var e *train.Error
	if _, err := train.Evaluate(t.Context(), cfg, none); !errors.As(err, &e) {
		t.Errorf("Evaluate: %v", err)
	}
}

// growing is a schedule that raises the learning rate to infinity.
type growing struct{ opt optim.Optimizer }

func (g *growing) Step() {
	if g.opt.SetLR(g.opt.LR() / 1e3); g.opt.Steps() == 4 {
		g.opt.SetLR(math.Inf(1))
	}
}
func (g *growing) StateDict() map[string]any          { return map[string]any{} }
func (g *growing) LoadStateDict(map[string]any) error { return nil }

// A step with a finite loss may make parameters infinite or NaN. Fit detects this before it saves a
// checkpoint, so every checkpoint is good.
func TestRuinedParametersAreNotKept(t *testing.T) {
	for _, dev := range devices(t) {
		c := setup(t, dev)
		c.Checkpoints, c.Every, c.ReadEvery = t.TempDir(), 1, 100
		c.OnStep = func(s *train.State) error {
			if s.Step == 6 {
				nn.Parameters(c.Model)[1].Detach().Select(0, 2).Fill(math.NaN())
			}
			return nil
		}
		r, err := train.Fit(t.Context(), c)
		var d *train.DivergedError
		if !errors.As(err, &d) || d.Step != 6 || d.Param != "0.bias" || !strings.Contains(err.Error(), "0.bias") || r.Reason != train.Failed {
			t.Errorf("%+v, %v", r, err)
		}
		if l, err := checkpoint.Load(c.Checkpoints); err != nil || l.Info.Step != 5 {
			t.Errorf("%+v, %v", l, err)
		}
	}
}

// Batch normalisation cannot learn from a part with one sample. So parts have at least two samples,
// and if two do not fit, the result is an out-of-memory error.
func TestSplitLeavesBatchNormPairs(t *testing.T) {
	gradients := func(most, n, fits int) (string, []string, train.AdaptStats, error) {
		m := seeded(nn.NewSequential(nn.NewLinear(3, 4), nn.NewBatchNorm1d(4), nn.NewLinear(4, 2)))
		var lines []string
		a, err := train.NewAdapt(train.AdaptConfig{Model: m, Most: most, Reduction: train.ReductionMean, Log: func(s string) { lines = append(lines, s) }})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		x := tensor.Root().Arange(3*n).Float().Reshape(n, 3).Sin()
		limit := &short{at: fits}
		_, err = a.Backward(&data.Batch{X: x}, func(_ *tensor.Scope, b *data.Batch) *tensor.Tensor {
			limit.check(b.X.Dim(0))
			return m.Forward(b.X).Square().Mean()
		})
		var b strings.Builder
		for _, p := range nn.Named(m) {
			fmt.Fprintf(&b, "%s %x", p.Name, p.Tensor.Detach().Bytes())
			if g := p.Tensor.Grad(); g != nil {
				fmt.Fprintf(&b, " %x", g.Bytes())
			}
		}
		return b.String(), lines, a.Stats(), err
	}
	for _, n := range []int{2, 3, 5, 8} {
		want, _, _, err := gradients(2, n, 100)
		if err != nil {
			t.Fatalf("%d samples, two at once: %v", n, err)
		}
		got, lines, st, err := gradients(1, n, 100)
		if err != nil || got != want && n%2 == 0 {
			t.Errorf("%d samples, one at once: %v", n, err)
		}
		if text := strings.Join(lines, "\n"); !strings.Contains(text, "batch normalisation does not learn from a single one") || st.Failures != 0 {
			t.Errorf("%d samples: %+v, %s", n, st, text)
		}
		if _, _, _, err = gradients(0, n, 4); err != nil {
			t.Errorf("%d samples where three fit: %v", n, err)
		}
	}
	var m *train.MemoryError
	if _, _, _, err := gradients(0, 5, 2); !errors.As(err, &m) || !strings.Contains(err.Error(), "does not learn from a single one") {
		t.Errorf("where one fits: %v", err)
	}
}

// Allocations fail at random, even in evaluations, metrics, averages and checkpoints. All features
// of a training are in use. The results of the training, and of a resume of it, are bitwise equal
// to those without failures.
func TestFailuresEverywhere(t *testing.T) {
	steps, rounds := 16, 1
	switch {
	case os.Getenv("FLAMBEAU_SOAK") == "1":
		steps, rounds = 24, 20
	case testing.Short():
		steps = 8 // fewer steps, for the race detector
	}
	set, held := pictures(t, 33), pictures(t, 11)
	run := func(dir string, seed uint64, resume bool, steps int) (string, int) {
		dev := emulate(t, "mem=8MiB,segment=1KiB")
		m := nn.To(seeded(nn.NewSequential(nn.Flatten{}, nn.NewLinear(side*side, 12), nn.NewBatchNorm1d(12), nn.ReLU{}, nn.NewDropout(0.3), nn.NewLinear(12, 4))), device.Device(dev))
		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
		l, g := loader(t, set, data.Config{Batch: 7, Shuffle: true, Seed: 2, Device: dev, Prefetch: 2}), tensor.NewGenerator(9)
		mean := optim.NewEMA(m, 0.9)
		rng := rand.New(rand.NewPCG(seed, 2))
		next := func() {
			dev.Empty()
			if seed > 0 {
				if err := dev.FailAlloc(1 + rng.IntN(20)); err != nil {
					t.Error(err)
				}
			}
		}
		next()
		var scores []string
		c := train.Config{Model: m, Optimizer: opt, Train: l, Generator: g, Steps: steps, Accumulate: 2, ClipNorm: 0.5, ReadEvery: 4,
			Schedule: sched.NewCosineAnnealing(opt, 30, 1e-4), Valid: loader(t, held, data.Config{Batch: 4, Device: dev}), EvalEvery: 1,
			Metrics: []train.Metric{train.NewAccuracy(), train.NewF1(4, train.Macro)}, Checkpoints: dir, Every: 1, Resume: resume, Parts: checkpoint.Parts{"mean": mean},
			Autocast: dtype.F16, Scaler: amp.NewGradScaler(amp.InitScale(1<<20), amp.GrowthInterval(3), amp.WarnAfter(1000, nil)),
			OnEvaluation: func(s *train.State) error {
				scores = append(scores, fmt.Sprint(s.Step, s.Metrics["loss"], s.Metrics["accuracy"], s.Metrics["f1"]))
				return nil
			},
			OnStep: func(*train.State) error {
				mean.Update()
				next()
				return nil
			}}
		if _, err := train.Fit(t.Context(), c); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := dev.FailAlloc(0); err != nil {
			t.Fatal(err)
		}
		text := stateBits(m, opt, l, g) + fmt.Sprintln(c.Scaler.Value(), c.Scaler.GrowthTracker(), opt.LR())
		averages := mean.Averages()
		for _, name := range slices.Sorted(maps.Keys(averages)) {
			text += fmt.Sprintf("mean %s %x\n", name, averages[name].Bytes())
		}
		return text + scores[len(scores)-1], dev.Stats().OOMs
	}
	want, _ := run(t.TempDir(), 0, false, steps)
	for seed := range uint64(rounds) {
		dir := t.TempDir()
		_, a := run(dir, seed+1, false, steps/2)
		got, b := run(dir, seed+1, true, steps)
		if a+b < steps/4 {
			t.Errorf("%d failures in %d steps", a+b, steps)
		}
		if got != want {
			x, y := strings.Split(got, "\n"), strings.Split(want, "\n")
			for i := range x {
				if x[i] != y[i] {
					t.Fatalf("seed %d, with %d failures:\n%.300s\nwithout:\n%.300s", seed+1, a+b, x[i], y[i])
				}
			}
		}
		t.Logf("%d failures in %d steps", a+b, steps)
	}
}

// If a checkpoint does not fit into the device's memory, a resume returns an error. The error names
// the part of the checkpoint that did not fit.
func TestResumeThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	begin := func(mem string) train.Config {
		dev := emulate(t, mem)
		m := nn.To(seeded(nn.NewSequential(nn.Flatten{}, nn.NewLinear(side*side, 64), nn.NewLinear(64, 4))), device.Device(dev))
		return train.Config{Model: m, Optimizer: optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: 0.01}), Train: loader(t, pictures(t, 8), data.Config{Batch: 4}), Steps: 1, Checkpoints: dir, Resume: true}
	}
	fit(t, begin("mem=8MiB,segment=1KiB"))
	c := begin("mem=8MiB,segment=1KiB")
	gpu := nn.Parameters(c.Model)[0].Device().(*cuda.Device)
	gpu.Empty()
	gpu.SetMemoryLimit(gpu.Stats().Reserved)
	r, err := train.Fit(t.Context(), c)
	var e *checkpoint.Error
	if r != nil || !errors.As(err, &e) || e.Part == "" || !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("%+v, %v", r, err)
	}
	gpu.SetMemoryLimit(0)
	// the failed resume has released the lock of the directory
	if r, err := train.Fit(t.Context(), c); err != nil || r.Fresh != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
