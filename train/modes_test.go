package train_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// typed is a model that records the types of its outputs.
type typed struct {
	*nn.Sequential
	seen map[dtype.Type]bool
	tf32 bool // whether TF32 is allowed
}

func (m *typed) Forward(x *tensor.Tensor) *tensor.Tensor {
	y := m.Sequential.Forward(x)
	m.seen[y.Type()], m.tf32 = true, y.Scope().TF32()
	return y
}

// Mixed precision computes in 16 bits in training and evaluation, and keeps parameters in 32 bits.
// The loss falls about as much as in float32. Recomputing activations does not change the results.
func TestFitAutocastAndCheckpointing(t *testing.T) {
	training, held := problem(t)
	run := func(c train.Config) (numbers []float64, seen map[dtype.Type]bool) {
		m := &typed{seeded(nn.NewSequential(nn.NewLinear(features, 16), nn.Tanh{}, nn.NewDropout(0.2), nn.NewLinear(16, 16), nn.Tanh{}, nn.NewLinear(16, classes))), map[dtype.Type]bool{}, false}
		c.Model, c.Optimizer = m, optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
		c.Train, c.Valid = loader(t, training, data.Config{Batch: 16, Shuffle: true, Seed: 4}), loader(t, held, data.Config{Batch: 20})
		c.Steps, c.Generator = 12, tensor.NewGenerator(3)
		r, err := train.Fit(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		if m.tf32 != c.TF32 {
			t.Errorf("tf32 is permitted: %v, want %v", m.tf32, c.TF32)
		}
		if p := nn.Parameters(m)[0]; p.Type() != dtype.F32 {
			t.Errorf("parameters are %v", p.Type())
		}
		for _, p := range nn.Parameters(m) {
			numbers = append(numbers, p.Detach().Floats()...)
		}
		return append(numbers, r.Loss, r.Metrics["loss"]), m.seen
	}
	plain, seen := run(train.Config{})
	if len(seen) != 1 || !seen[dtype.F32] {
		t.Errorf("without, outputs are %v", seen)
	}
	if again, _ := run(train.Config{TF32: true}); !slices.Equal(again, plain) {
		t.Error("on the processor tf32 changes numbers")
	}
	half, seen := run(train.Config{Autocast: dtype.BF16})
	if len(seen) != 1 || !seen[dtype.BF16] {
		t.Errorf("with Autocast outputs are %v", seen)
	}
	if d := farthest(plain, half); d == 0 || d > 0.05 {
		t.Errorf("numbers differ by %g", d)
	}
	for name, c := range map[string]train.Config{"float32": {Checkpointing: true}, "bfloat16": {Checkpointing: true, Autocast: dtype.BF16}} {
		want := plain
		if c.Autocast != dtype.Invalid {
			want = half
		}
		if again, _ := run(c); !slices.Equal(again, want) {
			t.Errorf("%s: checkpointing changes numbers by %g", name, farthest(again, want))
		}
	}
	for want, c := range map[string]train.Config{
		"train: Autocast: float32 is no type":           {Autocast: dtype.F32},
		"train: Checkpointing: no part of a *nn.Linear": {Checkpointing: true},
		"train: MicroBatch: -1 is negative":             {MicroBatch: -1},
	} {
		m := nn.NewLinear(features, classes)
		c.Model, c.Optimizer, c.Steps = m, optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1}), 1
		c.Train = loader(t, training, data.Config{Batch: 16})
		var e *train.Error
		if _, err := train.Fit(context.Background(), c); !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, the error is %v", want, err)
		}
	}
}

// A training splits its batches, is interrupted and resumes. Its result is bitwise equal to that of
// an uninterrupted training, because the checkpoint contains the size of the parts.
func TestResumeKeepsTheSplit(t *testing.T) {
	set := pictures(t, 22)
	run := func(dev *cuda.Device, dir string, resume bool, steps int) (string, string) {
		m, log := convNet(dev), new(strings.Builder)
		l, opt := loader(t, set, data.Config{Batch: 11, Shuffle: true, Seed: 1}), optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
		g := tensor.NewGenerator(1)
		if _, err := train.Fit(context.Background(), train.Config{Model: m, Optimizer: opt, Train: l, Generator: g, Steps: steps, Checkpoints: dir, Resume: resume, Log: log}); err != nil {
			t.Fatal(err)
		}
		return stateBits(m, opt, l, g), log.String()
	}
	short := func() *cuda.Device {
		d := emulate(t, "mem=1MiB,segment=16KiB")
		d.SetMemoryLimit(512 << 10)
		return d
	}
	want, log := run(short(), t.TempDir(), false, 4)
	if strings.Count(log, "out of memory") != 1 {
		t.Fatalf("the batch is to be split:\n%s", log)
	}
	dir := t.TempDir()
	run(short(), dir, false, 2)
	got, log := run(short(), dir, true, 4)
	if got != want {
		t.Errorf("other bits than without an interruption")
	}
	if strings.Contains(log, "out of memory") {
		t.Errorf("the split was found again:\n%s", log)
	}
}
