package train_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// A float16 training is interrupted, and resumes with its scale. Its result is bitwise equal to
// that of an uninterrupted training. Clipping uses unscaled gradients, so a limit above all
// gradients changes nothing.
func TestScalerInCheckpoints(t *testing.T) {
	training, _ := problem(t)
	run := func(dir string, resume bool, steps int, clip float64) string {
		m := seeded(nn.NewSequential(nn.NewLinear(features, 16), nn.Tanh{}, nn.NewLinear(16, classes)))
		l, opt := loader(t, training, data.Config{Batch: 16, Shuffle: true, Seed: 4}), optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
		g, scaler := tensor.NewGenerator(1), amp.NewGradScaler(amp.InitScale(1<<20), amp.GrowthInterval(2))
		c := train.Config{Model: m, Optimizer: opt, Train: l, Generator: g, Steps: steps, Checkpoints: dir, Resume: resume, Autocast: dtype.F16, Scaler: scaler, ClipNorm: clip}
		if _, err := train.Fit(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		if opt.Steps() == 0 || opt.Steps() == steps {
			t.Errorf("%d of %d steps are made, some are to overflow", opt.Steps(), steps)
		}
		return stateBits(m, opt, l, g) + fmt.Sprint(scaler.Value(), scaler.GrowthTracker())
	}
	want := run(t.TempDir(), false, 12, 0)
	dir := t.TempDir()
	run(dir, false, 7, 0)
	if run(dir, true, 12, 0) != want {
		t.Error("other bits than without an interruption")
	}
	if run(t.TempDir(), false, 12, 1000) != want {
		t.Error("a limit that no norm reaches changes bits: it is held against scaled gradients")
	}
}
