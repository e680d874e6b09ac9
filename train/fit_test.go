package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// halving is a schedule that halves the learning rate every few steps. The type measured halves the
// rate every few evaluations, and records the values of the evaluations.
type halving struct {
	opt      optim.Optimizer
	interval int
	steps    int64
}

type measured struct {
	halving
	seen []any
}

func (h *halving) Step() {
	if h.steps++; h.steps%int64(h.interval) == 0 {
		h.opt.SetLR(h.opt.LR() / 2)
	}
}

func (h *halving) StateDict() map[string]any { return map[string]any{"steps": h.steps} }

func (h *halving) LoadStateDict(sd map[string]any) error {
	h.steps = sd["steps"].(int64)
	return nil
}

func (m *measured) StepMetric(v float64) { m.seen = append(m.seen, v); m.Step() }

func (m *measured) StateDict() map[string]any {
	return map[string]any{"steps": m.steps, "seen": slices.Clone(m.seen)}
}

func (m *measured) LoadStateDict(sd map[string]any) error {
	m.steps, m.seen = sd["steps"].(int64), sd["seen"].([]any)
	return nil
}

const samples, features, classes = 90, 6, 3

// problem returns two datasets of points around three corners, one for training and one for
// evaluation.
func problem(t testing.TB) (training, held *data.TensorDataset) {
	t.Helper()
	var x, y *tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		labels := s.RandInt(0, classes, samples)
		x = s.Randn(samples, features).MulScalar(0.4).Add(s.Typed(0).Eye(features).IndexSelect(0, labels))
		y = labels
		s.Close(x, y)
	}, tensor.Seed(5))
	cut := func(from, n int) *data.TensorDataset {
		d, err := data.NewTensorDataset(x.Narrow(0, from, n), y.Narrow(0, from, n))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return cut(0, 70), cut(70, 20)
}

// setup returns the configuration of a new training with its own generator. Every call returns an
// equal configuration. The training has dropout, batch norm, AdamW, a schedule, and a shuffled
// loader whose last batch is smaller.
func setup(t testing.TB, dev device.Device) train.Config {
	t.Helper()
	training, held := problem(t)
	loader, err := data.NewLoader(training, data.Config{Batch: 8, Shuffle: true, Seed: 3, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	valid, err := data.NewLoader(held, data.Config{Batch: 8})
	if err != nil {
		t.Fatal(err)
	}
	var m *nn.Sequential
	g := tensor.NewGenerator(7)
	tensor.ManualSeed(11)
	m = nn.To(nn.NewSequential(nn.NewLinear(features, 8), nn.NewBatchNorm1d(8), nn.ReLU{}, nn.NewDropout(0.3), nn.NewLinear(8, classes)), dev)
	opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 0.02, WeightDecay: 0.01})
	return train.Config{Model: m, Optimizer: opt, Train: loader, Valid: valid, Metrics: []train.Metric{train.NewAccuracy()}, Generator: g,
		Schedule: &halving{opt: opt, interval: 10}, Epochs: 4}
}

// weights returns the bits of a model's parameters and an optimizer's state, as a string.
func weights(t testing.TB, c train.Config) string {
	t.Helper()
	tree, err := checkpoint.Capture(checkpoint.Parts{"m": c.Model, "o": c.Optimizer, "g": c.Generator, "s": c.Schedule})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "w")
	if err := checkpoint.Write(path, tree, checkpoint.Info{}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func fit(t testing.TB, c train.Config) *train.Result {
	t.Helper()
	r, err := train.Fit(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Fit gives the same weights as a loop written by hand.
func TestFitIsThePlainLoop(t *testing.T) {
	for _, dev := range devices(t) {
		c := setup(t, dev)
		var got []float64
		c.OnLoss = func(step int, loss float64) {
			if got = append(got, loss); step != len(got) {
				t.Errorf("loss %d is told as that of step %d", len(got), step)
			}
		}
		r := fit(t, c)
		if r.Step != 36 || r.Epoch != 4 || r.Samples != 280 || r.Fresh != 280 || r.Reason != train.Finished || r.Metrics["accuracy"] < 0.7 ||
			r.Loss != got[35] || r.Best != r.Metrics["loss"] && r.BestStep == 36 || r.LR != c.Optimizer.LR() {
			t.Errorf("%+v", r)
		}
		p := setup(t, dev)
		var want []float64
		m := p.Model.(*nn.Sequential)
		for range 4 {
			for b, err := range p.Train.Batches() {
				if err != nil {
					t.Fatal(err)
				}
				tensor.Do(func(s *tensor.Scope) {
					loss := nn.CrossEntropy(m.Forward(s.From(b.X)), s.From(b.Y))
					loss.Backward()
					want = append(want, loss.Item())
				}, tensor.On(dev), tensor.WithGenerator(p.Generator))
				p.Optimizer.Step()
				p.Optimizer.ZeroGrad()
				p.Schedule.(*halving).Step()
			}
		}
		if !slices.Equal(got, want) || weights(t, c) != weights(t, p) {
			t.Errorf("%s: losses or weights differ", dev.Name())
		}
	}
}

// The batches of a step with Accumulate give the same step as one large batch, whatever their
// sizes.
func TestAccumulation(t *testing.T) {
	run := func(batch, accumulate int) ([]float32, *train.Result) {
		training, _ := problem(t)
		loader, err := data.NewLoader(training, data.Config{Batch: batch, Shuffle: true, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		tensor.ManualSeed(1)
		m := nn.NewSequential(nn.NewLinear(features, 8), nn.Tanh{}, nn.NewLinear(8, classes))
		opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.5})
		r := fit(t, train.Config{Model: m, Optimizer: opt, Train: loader, Epochs: 3, Accumulate: accumulate, ReadEvery: 2})
		return tensor.Data[float32](nn.Parameters(m)[0].Detach()), r
	}
	// With batches of 8 and 3 batches per step, the 70 samples make steps of 24 samples and a last
	// step of 22 = 8+8+6. With 16 and 2, they make steps of 32 samples and a last step of 6.
	for _, c := range [][2]int{{8, 3}, {16, 2}, {35, 2}} {
		large, a := run(c[0]*c[1], 1)
		small, b := run(c[0], c[1])
		if a.Step != b.Step || b.Samples != 210 || math.Abs(a.Loss-b.Loss) > 1e-5 {
			t.Errorf("%v: %+v\n%+v", c, a, b)
		}
		for i := range large {
			if math.Abs(float64(large[i]-small[i])) > 2e-6 {
				t.Fatalf("%v: weight %d is %v, in one batch %v", c, i, small[i], large[i])
			}
		}
	}
}

// A training is interrupted repeatedly, even within epochs and within accumulation. Its result is
// bitwise equal to that of an uninterrupted training.
func TestResumeGivesTheSameBits(t *testing.T) {
	for _, dev := range devices(t) {
		for name, change := range map[string]func(c *train.Config){
			"plain":      func(c *train.Config) {},
			"accumulate": func(c *train.Config) { c.Accumulate = 4 },
			"evaluations": func(c *train.Config) {
				c.EvalEvery, c.Schedule, c.Accumulate, c.Patience = 3, &measured{halving: halving{opt: c.Optimizer, interval: 2}}, 2, 3
			},
			"epochs": func(c *train.Config) {
				c.ScheduleOn, c.Schedule.(*halving).interval, c.Watch, c.Maximize = train.EachEpoch, 2, "accuracy", true
			},
		} {
			every := 5
			if dev.Info().Emulated { // the emulator is slow
				if every = 12; name == "plain" || name == "epochs" {
					continue
				}
			}
			whole := setup(t, dev)
			change(&whole)
			want := fit(t, whole)
			dir := t.TempDir()
			var c train.Config
			var r *train.Result
			var err error
			for stop := 1; stop < 100; stop += every {
				c = setup(t, dev)
				change(&c)
				c.Checkpoints, c.Resume, c.Every, c.KeepBest = dir, true, 1000, true
				ctx, cancel := context.WithCancel(context.Background())
				c.OnStep = func(s *train.State) error {
					if s.Step == stop {
						cancel()
					}
					return nil
				}
				if r, err = train.Fit(ctx, c); err == nil {
					break
				}
				if !errors.Is(err, context.Canceled) || r.Reason != train.Interrupted || r.Step != stop {
					t.Fatalf("%s, %s: %v, %+v", dev.Name(), name, err, r)
				}
			}
			if weights(t, c) != weights(t, whole) || r.Step != want.Step || r.Epoch != want.Epoch || r.Samples != want.Samples || r.Loss != want.Loss ||
				fmt.Sprint(r.Metrics) != fmt.Sprint(want.Metrics) || r.Best != want.Best || r.BestStep != want.BestStep || r.Reason != want.Reason {
				t.Errorf("%s, %s:\n%+v\n%+v", dev.Name(), name, r, want)
			}
			if r.Resumed == "" || r.Fresh == r.Samples {
				t.Errorf("%+v", r)
			}
			if r.BestPath != checkpoint.PathOf(dir, r.BestStep) {
				t.Errorf("%s, %s: the best checkpoint is %q, and the best step %d", dev.Name(), name, r.BestPath, r.BestStep)
			}
			// A further resume has nothing left to do.
			c = setup(t, dev)
			change(&c)
			c.Checkpoints, c.Resume, c.KeepBest = dir, true, true
			if r := fit(t, c); r.Fresh != 0 || r.Step != want.Step || weights(t, c) != weights(t, whole) {
				t.Errorf("%s, %s: %+v", dev.Name(), name, r)
			}
		}
	}
}

// LoadBest loads the best checkpoint into the trained model, and into another model of the same
// structure.
func TestLoadBest(t *testing.T) {
	c := setup(t, devices(t)[0])
	// With Maximize the checkpoint with the greatest loss is the best. It is from an early step.
	c.Checkpoints, c.KeepBest, c.Maximize, c.Keep = t.TempDir(), true, true, 1
	values := func(m any) (text string) {
		for _, p := range nn.Parameters(m) {
			text += fmt.Sprint(p.Floats())
		}
		return text
	}
	at := map[int]string{}
	c.OnEvaluation = func(s *train.State) error { at[s.Step] = values(c.Model); return nil }
	r := fit(t, c)
	last := values(c.Model)
	if r.BestStep == r.Step || at[r.BestStep] == last {
		t.Fatalf("the best step, %d, is the last", r.BestStep)
	}
	other := setup(t, devices(t)[0])
	for _, m := range []train.Config{c, other} {
		if err := r.LoadBest(m.Model); err != nil || values(m.Model) != at[r.BestStep] {
			t.Errorf("the weights are not those of step %d: %v", r.BestStep, err)
		}
	}
	var e *checkpoint.Error
	if err := r.LoadBest(nn.NewLinear(1, 1)); !errors.As(err, &e) || e.Part != "model" {
		t.Error(err)
	}
	plain := setup(t, devices(t)[0])
	var wrong *train.Error
	if err := fit(t, plain).LoadBest(plain.Model); !errors.As(err, &wrong) || wrong.Field != "KeepBest" {
		t.Error(err)
	}
}

// Gradients are limited to the configured bounds. With accumulation, the sum of the gradients over
// all batches of a step is limited.
func TestClipping(t *testing.T) {
	for _, dev := range devices(t) {
		for _, accumulate := range []int{1, 3} {
			c := setup(t, dev)
			c.Schedule, c.Accumulate, c.Steps = nil, accumulate, 1
			before := c.Model.(*nn.Sequential)
			c.Optimizer = optim.NewSGD(nn.Parameters(before), optim.SGDConfig{LR: 1})
			old := nn.Parameters(before)[0].Detach().Clone()
			c.ClipNorm, c.ClipValue = 1e-3, 1e-5
			fit(t, c)
			step := nn.Parameters(before)[0].Detach().Sub(old).Abs()
			if most := step.Amax().Item(); most < 0.9e-5 || most > 1.1e-5 {
				t.Errorf("%s, %d batches a step: a weight changed by %v", dev.Name(), accumulate, most)
			}
			c = setup(t, dev)
			c.Schedule, c.Accumulate, c.Steps, c.ClipNorm = nil, accumulate, 1, 1e-2
			c.Optimizer = optim.NewSGD(nn.Parameters(c.Model), optim.SGDConfig{LR: 1})
			was := map[string]*tensor.Tensor{}
			for name, p := range nn.StateDict(c.Model) {
				was[name] = p.Clone()
			}
			fit(t, c)
			sum := 0.0
			for _, p := range nn.Named(c.Model) {
				if !p.Buffer {
					sum += p.Tensor.Detach().Sub(was[p.Name]).Double().Square().Sum().Item()
				}
			}
			if norm := math.Sqrt(sum); math.Abs(norm-1e-2) > 1e-5 {
				t.Errorf("%s, %d batches a step: the step's norm is %v", dev.Name(), accumulate, norm)
			}
		}
	}
}

func TestEarlyStoppingAndCallbacks(t *testing.T) {
	cpu := devices(t)[0]
	c := setup(t, cpu)
	c.Epochs, c.Patience, c.MinDelta = 50, 2, 10 // no evaluation improves the loss by ten
	if r := fit(t, c); r.Reason != train.StoppedEarly || r.Epoch != 3 || r.BestStep != 9 {
		t.Errorf("%+v", r)
	}
	c = setup(t, cpu)
	var epochs, evaluations int
	c.OnEpoch = func(*train.State) error { epochs++; return nil }
	c.OnEvaluation = func(s *train.State) error {
		if evaluations++; len(s.Metrics) != 2 {
			t.Errorf("%v", s.Metrics)
		}
		return nil
	}
	c.OnStep = func(s *train.State) error {
		if s.Step == 20 {
			return fmt.Errorf("enough: %w", train.ErrStop)
		}
		return nil
	}
	if r := fit(t, c); r.Reason != train.StoppedByUs || r.Step != 20 || epochs != 2 || evaluations != 3 {
		t.Errorf("%+v %d %d", r, epochs, evaluations)
	}
	c = setup(t, cpu)
	broken := errors.New("broken")
	c.OnStep = func(*train.State) error { return broken }
	if r, err := train.Fit(context.Background(), c); !errors.Is(err, broken) || r.Reason != train.Failed || r.Step != 1 {
		t.Error(r, err)
	}
}

func TestDivergence(t *testing.T) {
	c := setup(t, devices(t)[0])
	c.Checkpoints = t.TempDir()
	c.Loss = func(y, target *tensor.Tensor) *tensor.Tensor {
		loss := nn.CrossEntropy(y, target)
		if c.Optimizer.Steps() >= 20 {
			loss = loss.DivScalar(0)
		}
		return loss
	}
	_, err := train.Fit(context.Background(), c)
	var d *train.DivergedError
	if !errors.As(err, &d) || d.Step != 21 || !math.IsInf(d.Loss, 1) {
		t.Fatal(err)
	}
	if l, err := checkpoint.Load(c.Checkpoints); err != nil || l.Info.Step != 18 {
		t.Fatalf("the last good one is that of the second epoch: %v, %v", l, err)
	}
	// The loss of the first step was computed before any update, so the error must not blame the
	// learning rate.
	c = setup(t, devices(t)[0])
	c.Loss = func(y, target *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(y, target).DivScalar(0) }
	r, err := train.Fit(context.Background(), c)
	if !errors.As(err, &d) || d.Step != 1 || strings.Contains(err.Error(), "learning rate") || !strings.Contains(err.Error(), "inputs") {
		t.Error(err)
	}
	if r == nil || fmt.Sprint(r.Reason) != "failed" {
		t.Errorf("%+v", r)
	}
}

// If no checkpoint can be written, the training goes on. It reports the failure immediately, and
// again at the end.
func TestCheckpointsThatCannotBeWritten(t *testing.T) {
	c := setup(t, devices(t)[0])
	dir := filepath.Join(t.TempDir(), "gone")
	var log bytes.Buffer
	c.Checkpoints, c.Every, c.Log = dir, 6, &log
	c.OnStep = func(s *train.State) error {
		switch s.Step {
		case 10:
			return os.RemoveAll(dir)
		case 25:
			return os.Mkdir(dir, 0o777)
		}
		return nil
	}
	r, err := train.Fit(context.Background(), c)
	var e *checkpoint.Error
	if r == nil || r.Step != 36 || r.Reason != train.Finished || !errors.As(err, &e) || !strings.Contains(err.Error(), checkpoint.PathOf(dir, 12)) {
		t.Fatal(r, err)
	}
	if !strings.Contains(log.String(), "the checkpoint of step 12 could not be written, the older ones are kept") {
		t.Error(log.String())
	}
	if l, err := checkpoint.Load(dir); err != nil || l.Info.Step != 36 {
		t.Error(l, err)
	}
}

func TestSettings(t *testing.T) {
	cpu := devices(t)[0]
	dir := t.TempDir()
	c := setup(t, cpu)
	c.Checkpoints, c.Steps = dir, 5
	fit(t, c)
	for want, change := range map[string]func(c *train.Config){
		"train: Model: there is none":            func(c *train.Config) { c.Model = nil },
		"train: Model: nn: the model is nil":     func(c *train.Config) { c.Model = (*nn.Linear)(nil) },
		"train: Optimizer: there is none":        func(c *train.Config) { c.Optimizer = nil },
		"train: Train: there is no loader":       func(c *train.Config) { c.Train = nil },
		"neither Epochs nor Steps":               func(c *train.Config) { c.Epochs = 0 },
		"train: Accumulate: -1 is negative":      func(c *train.Config) { c.Accumulate = -1 },
		"train: ClipNorm: gradients are limited": func(c *train.Config) { c.ClipNorm = math.NaN() },
		"train: Schedule: after step 3": func(c *train.Config) {
			c.Schedule = sched.NewOneCycle(c.Optimizer, sched.OneCycleConfig{MaxLR: []float64{1}, Steps: 2})
		},
		"has neither a method Step nor": func(c *train.Config) { c.Schedule = c.Train.(*data.Loader) },
		"has no method Forward":         func(c *train.Config) { c.Model = &struct{ L *nn.Linear }{nn.NewLinear(1, 1)} },
		"need something to evaluate on": func(c *train.Config) { c.Valid, c.Patience = nil, 1 },
		`"f1" is not among the metrics`: func(c *train.Config) { c.Watch = "f1" },
		"two have one name":             func(c *train.Config) { c.Metrics = append(c.Metrics, train.NewAccuracy()) },
		"Checkpoints does not say":      func(c *train.Config) { c.Resume = true },
		"of an earlier training; go on": func(c *train.Config) { c.Checkpoints = dir },
		`"model" is the name`:           func(c *train.Config) { c.Checkpoints, c.Parts = t.TempDir(), checkpoint.Parts{"model": 1} },
		"there are no evaluations":      func(c *train.Config) { c.Valid, c.ScheduleOn = nil, train.EachEvaluation },
		"checkpoint: " + checkpoint.PathOf(dir, 5): func(c *train.Config) {
			m := nn.NewLinear(2, 2)
			c.Checkpoints, c.Resume, c.Model, c.Optimizer = dir, true, m, optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 1})
		},
		"Optimizer: none of its parameters":        func(c *train.Config) { c.Model = nn.NewLinear(2, 2) },
		"train: Train: the loader gave no batches": func(c *train.Config) { c.Train = empty(t) },
		"the loss has to be one number":            func(c *train.Config) { c.Loss = func(y, _ *tensor.Tensor) *tensor.Tensor { return y } },
		"the batch has no X or no Y":               func(c *train.Config) { c.Train = named(t) },
		"data: sample":                             func(c *train.Config) { c.Train = broken(t) },
	} {
		c := setup(t, cpu)
		change(&c)
		if _, err := train.Fit(context.Background(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

type list struct {
	n   int
	get func(i int) (data.Sample, error)
}

func (l list) Len() int                       { return l.n }
func (l list) Get(i int) (data.Sample, error) { return l.get(i) }
func loaderOf(t *testing.T, l list) *data.Loader {
	t.Helper()
	d, err := data.NewLoader(l, data.Config{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func empty(t *testing.T) *data.Loader { return loaderOf(t, list{}) }

func named(t *testing.T) *data.Loader {
	return loaderOf(t, list{4, func(i int) (data.Sample, error) {
		return data.Sample{X: map[string]any{"a": float32(i)}, Y: int64(i)}, nil
	}})
}

func broken(t *testing.T) *data.Loader {
	return loaderOf(t, list{4, func(i int) (data.Sample, error) { return data.Sample{}, errors.New("unreadable") }})
}

func TestEventsAndMessages(t *testing.T) {
	c := setup(t, devices(t)[0])
	var log bytes.Buffer
	c.TensorBoard, c.Log = t.TempDir(), &log
	fit(t, c)
	files, err := os.ReadDir(c.TensorBoard)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(filepath.Join(c.TensorBoard, files[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	for tag, n := range map[string]int{"loss/train": 36, "lr": 36, "loss/valid": 4, "accuracy/valid": 4} {
		if got := bytes.Count(b, append([]byte{byte(len(tag))}, tag...)); got != n {
			t.Errorf("%d events of %s, want %d", got, tag, n)
		}
	}
	if got := strings.Count(log.String(), "validation loss"); got != 4 {
		t.Errorf("%s", log.String())
	}
}

func TestEvaluate(t *testing.T) {
	for _, dev := range devices(t) {
		c := setup(t, dev)
		m, err := train.Evaluate(context.Background(), c, c.Valid)
		if err != nil {
			t.Fatal(err)
		}
		_, held := problem(t)
		var loss, right float64
		tensor.Do(func(s *tensor.Scope) {
			y := nn.Eval(c.Model.(*nn.Sequential)).Forward(held.X.In(s).To(dev))
			loss, right = nn.CrossEntropy(y, held.Y.To(dev)).Item(), y.Argmax(-1).Eq(held.Y.To(dev)).Double().Mean().Item()
		})
		if math.Abs(m["loss"]-loss) > 1e-6 || math.Abs(m["accuracy"]-right) > 1e-12 {
			t.Errorf("%v, want %v %v", m, loss, right)
		}
		if seed, at := c.Generator.State(); seed != 7 || at != 0 {
			t.Error("an evaluation draws no random numbers")
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := train.Evaluate(ctx, c, c.Valid); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
