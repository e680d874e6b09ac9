package train_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// fragile is a dataset whose samples may fail to load.
type fragile struct {
	data.Dataset
	at func() error
}

func (f fragile) Get(i int) (data.Sample, error) {
	if err := f.at(); err != nil {
		return data.Sample{}, err
	}
	return f.Dataset.Get(i)
}

// An interruption, an error or a panic may end a training anywhere: in a sample, a loss, an
// evaluation or a callback. The training reports the cause and releases its directory. After a
// resume, its result is bitwise equal to that of an uninterrupted training.
func TestBrokenOffAnywhere(t *testing.T) {
	cpu := devices(t)[0]
	seeds := 2
	if os.Getenv("FLAMBEAU_SOAK") == "1" {
		seeds = 100
	}
	mine := errors.New("mine")
	for seed := range uint64(seeds) {
		accumulate, evaluations := int(seed%3+1), int(seed%4)
		// The training calls the function point at each sample, loss, step, evaluation and epoch.
		begin := func(point func() error) train.Config {
			c := setup(t, cpu)
			training, held := problem(t)
			c.Train = loader(t, fragile{training, point}, data.Config{Batch: 8, Shuffle: true, Seed: 3, Workers: 2})
			c.Valid = loader(t, fragile{held, point}, data.Config{Batch: 8})
			c.Accumulate, c.EvalEvery, c.Epochs, c.ReadEvery = accumulate, evaluations, 3, 5
			c.Loss = func(y, target *tensor.Tensor) *tensor.Tensor {
				if err := point(); err != nil {
					panic(tensor.NewError("loss", err, "it has failed", y))
				}
				return nn.CrossEntropy(y, target)
			}
			c.OnStep = func(*train.State) error { return point() }
			c.OnEvaluation = func(*train.State) error { return point() }
			c.OnEpoch = func(*train.State) error { return point() }
			return c
		}
		whole := begin(func() error { return nil })
		result := fit(t, whole)
		numbers := func(r *train.Result) string {
			return fmt.Sprint(r.Metrics, r.Best, r.BestStep, r.Loss, r.Samples, r.Step, r.Epoch, r.Reason)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		dir, how, lives := t.TempDir(), "", 0
		var r *train.Result
		var c train.Config
		for ; lives < 200; lives++ {
			ctx, cancel := context.WithCancel(t.Context())
			var n atomic.Int64
			at, kind := int64(1+rng.IntN(120)), rng.IntN(4)
			c = begin(func() error {
				if n.Add(1) != at {
					return nil
				}
				switch kind {
				case 0:
					cancel()
					return nil
				case 1:
					return mine
				case 2:
					panic("oops")
				}
				panic(tensor.NewError("test", tensor.ErrValue, "misuse"))
			})
			c.Checkpoints, c.Resume, c.Every = dir, true, 1+rng.IntN(3)
			var err error
			var panicked any
			func() {
				defer func() { panicked = recover() }()
				r, err = train.Fit(ctx, c)
			}()
			cancel()
			how += fmt.Sprintf("\nkind %d at %d: %v %v", kind, at, err, panicked)
			if err == nil && panicked == nil {
				break
			}
			var s *data.SampleError
			var misuse *tensor.Error
			ok := false
			switch kind {
			case 0:
				ok = errors.Is(err, context.Canceled) && r.Reason == train.Interrupted
			case 1:
				ok = errors.Is(err, mine)
			case 2:
				ok = panicked == "oops" || errors.As(err, &s) && strings.Contains(err.Error(), "oops")
			case 3:
				ok = errors.As(err, &misuse) || errors.As(err, &s)
			}
			if !ok || panicked != nil && kind != 2 {
				t.Fatalf("seed %d%s", seed, how)
			}
		}
		if got, want := numbers(r), numbers(result); weights(t, c) != weights(t, whole) || got != want {
			t.Errorf("seed %d: other bits than in one piece: %s, not %s; %d lives%s", seed, got, want, lives, how)
		}
		if lives < 2 {
			t.Errorf("seed %d: %d lives", seed, lives)
		}
	}
}

// The losses do not depend on how often the host reads them, or on the number of batches in a step.
func TestLossesHoweverRead(t *testing.T) {
	losses := func(every, accumulate int) (out []float64) {
		c := setup(t, devices(t)[0])
		c.Epochs, c.Valid, c.Metrics, c.ReadEvery, c.Accumulate = 2, nil, nil, every, accumulate
		c.OnLoss = func(step int, loss float64) {
			if out = append(out, loss); len(out) != step {
				t.Errorf("step %d is told as the loss number %d", step, len(out))
			}
		}
		fit(t, c)
		return out
	}
	for accumulate := 1; accumulate <= 5; accumulate++ { // an epoch has nine batches
		want := losses(0, accumulate)
		if len(want) != 2*((9+accumulate-1)/accumulate) {
			t.Errorf("%d losses", len(want))
		}
		for every := 1; every <= 9; every += 1 + every/5 {
			if got := losses(every, accumulate); !slices.Equal(got, want) {
				t.Errorf("%d batches a step, %d losses at once: %v, not %v", accumulate, every, got, want)
			}
		}
	}
}

// An interruption in the evaluation after the last step interrupts the training. A resume repeats
// the evaluation.
func TestInterruptedAtTheEnd(t *testing.T) {
	cpu := devices(t)[0]
	whole := setup(t, cpu)
	want := fit(t, whole)
	dir := t.TempDir()
	for i, when := range []int{want.Step - 1, want.Step, 0} {
		ctx, cancel := context.WithCancel(t.Context())
		c := setup(t, cpu)
		c.Checkpoints, c.Resume = dir, true
		c.OnStep = func(s *train.State) error {
			if s.Step == when {
				cancel()
			}
			return nil
		}
		r, err := train.Fit(ctx, c)
		cancel()
		if i < 2 && (!errors.Is(err, context.Canceled) || r.Reason != train.Interrupted || r.Step != when) {
			t.Errorf("interrupted after step %d of %d: %+v, %v", when, want.Step, r, err)
		}
		if i == 2 && (err != nil || r.Reason != train.Finished || fmt.Sprint(r.Metrics, r.Best, r.BestStep) != fmt.Sprint(want.Metrics, want.Best, want.BestStep) || weights(t, c) != weights(t, whole)) {
			t.Errorf("%+v, %v, not %+v", r, err, want)
		}
	}
}
