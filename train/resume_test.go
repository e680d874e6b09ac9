package train_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/filelock"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// The mean loss that is logged for an epoch covers exactly the epoch, even after a resume.
func TestEpochLossAfterResume(t *testing.T) {
	cpu := devices(t)[0]
	last := func(dir string, epochs int) string {
		c, log := setup(t, cpu), &strings.Builder{}
		c.Epochs, c.Checkpoints, c.Resume, c.Log, c.Valid = epochs, dir, true, log, nil
		fit(t, c)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		return lines[len(lines)-1]
	}
	whole, dir := last(t.TempDir(), 2), t.TempDir()
	last(dir, 1)
	if text := last(dir, 2); text != whole || !strings.HasPrefix(text, "epoch 2: loss ") {
		t.Errorf("%q, without a resume %q", text, whole)
	}
}

// Resuming without the schedule of the training is an error. If a finished training is resumed, the
// log says that it is finished.
func TestResumeWithoutTheSchedule(t *testing.T) {
	cpu, dir := devices(t)[0], t.TempDir()
	begin := func() (train.Config, *strings.Builder) {
		c, log := setup(t, cpu), &strings.Builder{}
		c.Epochs, c.Checkpoints, c.Resume, c.Log = 1, dir, true, log
		return c, log
	}
	c, _ := begin()
	fit(t, c)
	c, _ = begin()
	c.Schedule = nil
	var e *checkpoint.Error
	if _, err := train.Fit(t.Context(), c); !errors.As(err, &e) || e.Part != "schedule" || e.Path == "" {
		t.Errorf("%v", err)
	}
	c, log := begin()
	if r := fit(t, c); r.Fresh != 0 || !strings.Contains(log.String(), "no steps are left") {
		t.Errorf("%+v\n%s", r, log)
	}
}

// Settings may differ after a resume. One line of the log lists those that affect the weights, and
// those that the checkpoint replaces. Other settings are not logged.
func TestResumeWithOtherSettings(t *testing.T) {
	cpu := devices(t)[0]
	whole := setup(t, cpu)
	whole.Steps = 13
	fit(t, whole)
	want := weights(t, whole)
	begin := func(dir string, first, then func(*train.Config)) (train.Config, *train.Result, string) {
		c := setup(t, cpu)
		c.Steps, c.Checkpoints = 13, dir
		first(&c)
		c.OnStep = func(st *train.State) error {
			if st.Step == 6 {
				return errBreak
			}
			return nil
		}
		c.Every = 5
		if _, err := train.Fit(t.Context(), c); !errors.Is(err, errBreak) {
			t.Fatal(err)
		}
		log := &strings.Builder{}
		c = setup(t, cpu)
		c.Steps, c.Checkpoints, c.Resume, c.Log = 13, dir, true, log
		then(&c)
		return c, fit(t, c), log.String()
	}
	nothing := func(*train.Config) {}
	for name, then := range map[string]func(*train.Config){
		"nothing": nothing,
		"how it is done": func(c *train.Config) {
			c.Checkpointing, c.Every, c.Keep, c.ReadEvery, c.TensorBoard, c.EvalEvery, c.KeepBest = true, 2, 1, 3, t.TempDir(), 2, true
			training, _ := problem(t)
			c.Train = loader(t, training, data.Config{Batch: 8, Shuffle: true, Seed: 3, Workers: 4})
		},
	} {
		c, r, log := begin(t.TempDir(), nothing, then)
		if weights(t, c) != want || len(r.Changed) != 0 || strings.Contains(log, "settings") {
			t.Errorf("%s: other bits than without an interruption, or %q\n%s", name, r.Changed, log)
		}
	}
	scaled := func(c *train.Config) { c.Autocast, c.Scaler = dtype.F16, amp.NewGradScaler() }
	for want, change := range map[string][2]func(*train.Config){
		"Accumulate was 1 and is 2":                       {nothing, func(c *train.Config) { c.Accumulate = 2 }},
		"ClipNorm was 1.5 and is 0":                       {func(c *train.Config) { c.ClipNorm = 1.5 }, nothing},
		"ClipValue was 0 and is 0.1":                      {nothing, func(c *train.Config) { c.ClipValue = 0.1 }},
		"TF32 was false and is true":                      {nothing, func(c *train.Config) { c.TF32 = true }},
		"TF32 was true and is false":                      {func(c *train.Config) { c.TF32 = true }, nothing},
		"MicroBatch was 0 and is 4":                       {nothing, func(c *train.Config) { c.MicroBatch = 4 }},
		"Autocast was full and is float16; Scaler was fa": {nothing, scaled},
		"Autocast was float16 and is full; Scaler was tr": {scaled, nothing},
		"Epochs was 4 and is 3, to which the schedule":    {nothing, func(c *train.Config) { c.Epochs = 3 }},
		`there was a part "mean"`:                         {func(c *train.Config) { c.Parts = checkpoint.Parts{"mean": tensor.NewGenerator(1)} }, nothing},
		"those of the checkpoint: weight_decay 0.01 and not 0.5; OnStep": {nothing, func(c *train.Config) {
			c.Optimizer = optim.NewAdamW(nn.Parameters(c.Model), optim.AdamConfig{LR: 0.5, WeightDecay: 0.5})
			c.Schedule.(*halving).opt = c.Optimizer
		}},
	} {
		_, r, log := begin(t.TempDir(), change[0], change[1])
		if !strings.Contains(log, want) || strings.Count(log, "settings") != 1 || len(r.Changed) == 0 && !strings.Contains(want, "checkpoint") {
			t.Errorf("%s: %q\n%s", want, r.Changed, log)
		}
	}
}

// If the schedule is of another type than the checkpoint's, or has other settings, the log says so.
// The training uses the settings in the checkpoint.
func TestResumeWithAnotherSchedule(t *testing.T) {
	cpu := devices(t)[0]
	step := func(n int) func(sched.Optimizer) *sched.LR {
		return func(o sched.Optimizer) *sched.LR { return sched.NewStep(o, n, 0.5) }
	}
	for _, c := range []struct {
		then    func(sched.Optimizer) *sched.LR
		changed string
		log     string
	}{
		{step(3), "[]", ""},
		{step(2), "[]", "the schedule is that of the checkpoint: StepLR(step_size 3, gamma 0.5) and not StepLR(step_size 2, gamma 0.5)\n"},
		{func(o sched.Optimizer) *sched.LR { return sched.NewExponential(o, 0.5) }, "[Schedule was StepLR and is ExponentialLR]", "Schedule was StepLR"},
	} {
		dir := t.TempDir()
		var log strings.Builder
		var r *train.Result
		for i, f := range []func(sched.Optimizer) *sched.LR{step(3), c.then} {
			cfg := setup(t, cpu)
			cfg.Checkpoints, cfg.Resume, cfg.Epochs = dir, true, 0
			cfg.Steps, cfg.Schedule = 4, f(cfg.Optimizer)
			if i == 1 {
				cfg.Log = &log
				cfg.OnStep = func(*train.State) error { return train.ErrStop }
			} else {
				cfg.OnStep = func(s *train.State) error {
					if s.Step == 2 {
						return train.ErrStop
					}
					return nil
				}
			}
			r = fit(t, cfg)
		}
		if fmt.Sprint(r.Changed) != c.changed || !strings.Contains(log.String(), c.log) || strings.Contains(log.String(), "the schedule is") != strings.HasPrefix(c.log, "the schedule is") {
			t.Errorf("%q\n%s", r.Changed, &log)
		}
	}
}

var errBreak = errors.New("broken off")

// Another batch size or dataset is detected even if the number of batches in an epoch is the same.
func TestResumeWithAnotherLoader(t *testing.T) {
	cpu := devices(t)[0]
	for part, batch := range map[string]int{"batch": 7, "samples": 8} {
		dir := t.TempDir()
		training, held := problem(t)
		c := setup(t, cpu)
		c.Train, c.Epochs, c.Checkpoints = loader(t, held, data.Config{Batch: 8}), 1, dir
		fit(t, c)
		c = setup(t, cpu)
		c.Train, c.Epochs, c.Checkpoints, c.Resume = loader(t, held, data.Config{Batch: batch}), 2, dir, true
		if part == "samples" {
			c.Train = loader(t, data.Subset{Of: training, Index: make([]int, 22)}, data.Config{Batch: 8})
		}
		var e *checkpoint.Error
		var s *data.StateError
		if _, err := train.Fit(t.Context(), c); !errors.As(err, &e) || e.Part != "loader" || !errors.As(err, &s) || s.Key != part {
			t.Errorf("%s: %v", part, err)
		}
	}
}

// If the directory of checkpoints cannot be locked, the log says so once.
func TestNoLocks(t *testing.T) {
	filelock.None.Store(true)
	defer filelock.None.Store(false)
	c, log, dir := setup(t, devices(t)[0]), &strings.Builder{}, t.TempDir()
	c.Epochs, c.Checkpoints, c.Every, c.Log = 2, dir, 1, log
	fit(t, c)
	if n := strings.Count(log.String(), "the file system of "+dir+" has no locks"); n != 1 {
		t.Errorf("%d times:\n%s", n, log)
	}
}
