package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// Adapt never tries parts larger than Most, even after many good steps, or when batches are smaller
// than Most.
func TestMostIsALimit(t *testing.T) {
	m := nn.NewLinear(2, 1)
	var log []string
	a, err := train.NewAdapt(train.AdaptConfig{Model: m, Most: 2, Probe: 1, Reduction: train.ReductionMean, Log: func(l string) { log = append(log, l) }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for i := range 200 {
		n := []int{8, 1, 5}[i%3]
		index, x := make([]int, n), tensor.Ones(n, 2)
		if _, err := a.Backward(&data.Batch{X: x, Index: index}, func(_ *tensor.Scope, b *data.Batch) *tensor.Tensor {
			if b.X.Dim(0) > 2 {
				t.Fatalf("step %d: %d samples at once", i, b.X.Dim(0))
			}
			return m.Forward(b.X).Mean()
		}); err != nil {
			t.Fatal(err)
		}
	}
	if st := a.Stats(); st.Most != 2 || st.Probes != 0 || log != nil {
		t.Errorf("%+v, it says %q", st, log)
	}
}

// Even if Adapt computes parts from the start, it recognises a loss that is a sum. If a batch
// cannot be divided, the log says so.
func TestMostFindsTheReductionOut(t *testing.T) {
	m := nn.NewSequential(nn.NewLinear(2, 1), nn.NewDropout(0.5))
	var log []string
	a, err := train.NewAdapt(train.AdaptConfig{Model: m, Most: 2, Log: func(l string) { log = append(log, l) }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	nn.Eval(m)
	x := tensor.From([][]float32{{1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}})
	loss, err := a.Backward(&data.Batch{X: x.Clone()}, func(_ *tensor.Scope, b *data.Batch) *tensor.Tensor { return m.Forward(b.X).Sum() })
	if err != nil {
		t.Fatal(err)
	}
	want := m.Forward(x).Sum().Item()
	if got := nn.Parameters(m)[0].Grad().Floats(); fmt.Sprint(got) != "[25 30]" || math.Abs(loss.Item()-want) > 1e-4 {
		t.Errorf("the gradient of a sum is %v, the loss %v, want %v", got, loss.Item(), want)
	}
	for _, l := range m.Layers {
		if d, ok := l.(*nn.Dropout); ok && d.Training() {
			t.Error("the model is in training mode again")
		}
	}
	if log != nil {
		t.Errorf("it says %q", log)
	}
	for range 2 {
		if _, err := a.Backward(&data.Batch{X: tensor.Ones(3, 2), Y: tensor.Ones(7), Index: []int{1, 2, 3}}, func(_ *tensor.Scope, b *data.Batch) *tensor.Tensor {
			return m.Forward(b.X).Sum()
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(log) != 1 || !strings.Contains(log[0], "more than 2 samples are computed at once: the batch cannot be split") {
		t.Errorf("it says %q", log)
	}
}

// A panic of the loss function passes through, whatever its value is, unless it is an out-of-memory
// error. The gradients of earlier batches are restored.
func TestOtherFailuresGoOn(t *testing.T) {
	m := nn.NewLinear(2, 1)
	a, err := train.NewAdapt(train.AdaptConfig{Model: m, Most: 1, Reduction: train.ReductionMean})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	batch := func() *data.Batch { return &data.Batch{X: tensor.Ones(2, 2)} }
	if _, err := a.Backward(batch(), func(_ *tensor.Scope, b *data.Batch) *tensor.Tensor { return m.Forward(b.X).Mean() }); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(m.Weight.Grad().Floats(), m.Bias.Grad().Floats())
	mine := errors.New("mine")
	for name, fail := range map[string]func(b *data.Batch) *tensor.Tensor{
		"an error": func(*data.Batch) *tensor.Tensor { panic(mine) },
		"a text":   func(*data.Batch) *tensor.Tensor { panic("oops") },
		"misuse":   func(b *data.Batch) *tensor.Tensor { return m.Forward(b.X.Reshape(2, 1)) },
		"no loss":  func(*data.Batch) *tensor.Tensor { return nil },
		"a vector": func(b *data.Batch) *tensor.Tensor { return m.Forward(b.X).Expand(2, 1) },
		"no graph": func(b *data.Batch) *tensor.Tensor { return b.X.Mean() },
	} {
		calls := 0
		var got any
		func() {
			defer func() { got = recover() }()
			_, err := a.Backward(batch(), func(_ *tensor.Scope, b *data.Batch) *tensor.Tensor {
				if calls++; calls == 2 { // the first part has already added its gradients
					return fail(b)
				}
				return m.Forward(b.X).Mean()
			})
			t.Errorf("%s: no panic, error %v", name, err)
		}()
		if got == nil || calls != 2 {
			t.Errorf("%s: %v after %d calls", name, got, calls)
		}
		if after := fmt.Sprint(m.Weight.Grad().Floats(), m.Bias.Grad().Floats()); after != before {
			t.Errorf("%s: the gradients are %s, they were %s", name, after, before)
		}
	}
	for _, b := range []*data.Batch{nil, batch()} {
		if err := tensor.Try(func() { a.Backward(b, nil) }); !errors.Is(err, tensor.ErrValue) {
			t.Errorf("no batch, and no function: %v", err)
		}
	}
	if st := a.Stats(); st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

// A training on a device that is too small combines many features: batches that a loader copies
// ahead, float16 with a scaler whose first steps overflow, parts, clipping and accumulation. It is
// interrupted, and its result is bitwise equal to that of an uninterrupted training.
func TestFitOnATinyDeviceGoesOn(t *testing.T) {
	set := pictures(t, 40)
	run := func(dir string, resume bool, steps int) (string, string) {
		dev := emulate(t, "mem=1MiB,segment=16KiB")
		dev.SetMemoryLimit(512 << 10)
		m := convNet(dev)
		l := loader(t, set, data.Config{Batch: 20, Shuffle: true, Seed: 2, Device: dev, Prefetch: 3})
		opt, g, log := optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: 0.01}), tensor.NewGenerator(4), new(strings.Builder)
		scaler := amp.NewGradScaler(amp.InitScale(1<<21), amp.GrowthInterval(3), amp.WarnAfter(1000, nil))
		if _, err := train.Fit(context.Background(), train.Config{Model: m, Optimizer: opt, Train: l, Generator: g, Steps: steps, Accumulate: 2, ClipNorm: 0.5,
			Checkpoints: dir, Every: 1, Resume: resume, Autocast: dtype.F16, Scaler: scaler, Log: log}); err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if steps > 4 && (opt.Steps() == 0 || opt.Steps() == steps) {
			t.Errorf("%d of %d steps are made, some are to overflow", opt.Steps(), steps)
		}
		return stateBits(m, opt, l, g) + fmt.Sprint(scaler.Value(), scaler.GrowthTracker()), log.String()
	}
	if testing.Short() { // no interruption, for the race detector
		run(t.TempDir(), false, 4)
		return
	}
	want, log := run(t.TempDir(), false, 6)
	if !strings.Contains(log, "going on in parts") {
		t.Errorf("the batches fit:\n%s", log)
	}
	dir := t.TempDir()
	run(dir, false, 4)
	got, log := run(dir, true, 6)
	if got != want {
		a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Errorf("with an interruption:\n%.300s\nwithout:\n%.300s\n%s", a[i], b[i], log)
				break
			}
		}
	}
}
