package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

func emulate(t testing.TB, spec string) *cuda.Device {
	t.Helper()
	d, err := cuda.Emulate("emulate," + spec)
	if err != nil {
		t.Fatal(err)
	}
	return d[0]
}

const side = 4

// convNet returns a model that computes little but needs much memory for gradients: 16 KiB for each
// sample in each layer.
func convNet(dev device.Device) *nn.Sequential {
	m := nn.NewSequential(
		nn.NewConv2d(1, 4, 3, nn.Padding(1)), nn.NewUpsample(tensor.InterpolateOptions{Scale: []float64{8}}),
		nn.ReLU{}, nn.ReLU{}, nn.ReLU{}, nn.ReLU{}, nn.ReLU{}, nn.ReLU{},
		nn.NewMaxPool2d(8), nn.Flatten{}, nn.NewLinear(4*side*side, 4))
	return nn.To(seeded(m), dev)
}

// seeded sets a model's parameters to the same values in every call.
func seeded[M any](m M) M {
	tensor.Do(func(s *tensor.Scope) {
		for i, p := range nn.Parameters(m) {
			p.In(s).Copy(s.Randn(p.Shape().Slice()...).MulScalar(0.1 + 0.02*float64(i)))
		}
	}, tensor.NoGrad(), tensor.Seed(3))
	return m
}

// pictures returns a dataset of n images with labels.
func pictures(t testing.TB, n int) *data.TensorDataset {
	t.Helper()
	var x, y *tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		x, y = s.Randn(n, 1, side, side), s.RandInt(0, 4, n)
		s.Close(x, y)
	}, tensor.Seed(7))
	d, err := data.NewTensorDataset(x, y)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func loader(t testing.TB, d data.Dataset, c data.Config) *data.Loader {
	t.Helper()
	l, err := data.NewLoader(d, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func numbers(m any) (out []float64) {
	for _, p := range nn.Parameters(m) {
		out = append(out, p.Detach().Floats()...)
	}
	return out
}

func farthest(a, b []float64) (d float64) {
	for i := range a {
		d = max(d, math.Abs(a[i]-b[i]))
	}
	return d
}

// A network can be trained in the user's own loop and in Fit, even if a batch needs three times the
// memory of the device. The final parameters are the same as on a large device. The device has 512
// KiB. With FLAMBEAU_SOAK=1 it has 6 MiB, and a batch needs 18 MiB.
func TestTrainsWhatDoesNotFit(t *testing.T) {
	batch, limit, need := 14, 512<<10, 1536<<10
	if os.Getenv("FLAMBEAU_SOAK") == "1" {
		batch, limit, need = 166, 6<<20, 18<<20
	}
	small := func() *cuda.Device {
		d := emulate(t, fmt.Sprintf("mem=%dKiB,segment=16KiB", max(limit>>10, 1<<10)))
		d.SetMemoryLimit(limit)
		return d
	}
	steps := 20
	if testing.Short() { // a short run, for the race detector
		steps = 4
	}
	set := pictures(t, 2*batch)
	config := data.Config{Batch: batch, Shuffle: true, Seed: 1}
	adam := func(m any) optim.Optimizer { return optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: 0.003}) }
	fit := func(dev *cuda.Device) (*nn.Sequential, *train.Result, string) {
		m, log := convNet(dev), new(strings.Builder)
		r, err := train.Fit(context.Background(), train.Config{Model: m, Optimizer: adam(m), Train: loader(t, set, config), Steps: steps, Log: log, ReadEvery: 4})
		if err != nil {
			t.Fatal(err)
		}
		return m, r, log.String()
	}
	large := emulate(t, "mem=64MiB,segment=64KiB")
	want, wanted, log := fit(large)
	if peak := large.Stats().AllocatedPeak; peak < need || strings.Contains(log, "out of memory") {
		t.Fatalf("the batch is to need %d bytes, it needs %d:\n%s", need, peak, log)
	}

	m, r, log := fit(small())
	if d := farthest(numbers(m), numbers(want)); d > 1e-5 || r.Step != steps || math.Abs(r.Loss-wanted.Loss) > 1e-5 {
		t.Errorf("Fit: parameters differ by %g after %d steps, losses are %v and %v", d, r.Step, r.Loss, wanted.Loss)
	}
	if n := strings.Count(log, "out of memory"); n != 1 {
		t.Errorf("Fit tells of %d splits, want 1:\n%s", n, log)
	}

	dev := small()
	m = convNet(dev)
	var lines []string
	a, err := train.NewAdapt(train.AdaptConfig{Model: m, Log: func(s string) { lines = append(lines, s) }})
	if err != nil {
		t.Fatal(err)
	}
	opt, l, loss := adam(m), loader(t, set, config), 0.0
	for opt.Steps() < steps {
		for b, err := range l.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			v, err := a.Step(opt, b, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
				return nn.CrossEntropy(m.Forward(part.X), part.Y)
			})
			if err != nil {
				t.Fatal(err)
			}
			loss = v.Item()
		}
	}
	if d := farthest(numbers(m), numbers(want)); d > 1e-5 || math.Abs(loss-wanted.Loss) > 1e-5 {
		t.Errorf("Adapt: parameters differ by %g, losses are %v and %v", d, loss, wanted.Loss)
	}
	st := a.Stats()
	if st.Most == 0 || st.Most > batch/2 || st.Failures == 0 || st.Failures > 8 {
		t.Errorf("Adapt counts %+v", st)
	}
	if len(lines) != 1 && !(len(lines) == 2 && strings.Contains(lines[1], "fit again")) {
		t.Errorf("Adapt says %q", lines)
	}
	a.Close()
	held := 0
	for _, p := range nn.Parameters(m) {
		held += 3 * (p.Size()*4 + 511) / 512 * 512
	}
	if left := dev.Stats().Allocated; left > held+4096 {
		t.Errorf("%d bytes are in use at the end, parameters and state are %d", left, held)
	}
}

// short simulates a device on which a large batch runs out of memory.
type short struct {
	at    int // smallest number of samples that does not fit into memory
	calls []int
}

// check panics like a device without enough memory if n samples do not fit.
func (s *short) check(n int) {
	s.calls = append(s.calls, n)
	if n >= s.at {
		panic(tensor.NewError("test", device.ErrOutOfMemory, fmt.Sprintf("no memory for %d samples", n)))
	}
}

// Adapt halves a batch until its parts fit, and keeps this size. Then it tries larger sizes, up to
// the one that did not fit. When memory is free again, it returns to whole batches.
func TestSplitGrowsAgain(t *testing.T) {
	m := nn.NewLinear(3, 2)
	var lines []string
	a, err := train.NewAdapt(train.AdaptConfig{Model: m, Probe: 2, Reduction: train.ReductionMean, Log: func(s string) { lines = append(lines, s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	limit := &short{at: 50}
	step := func(n int) []int {
		limit.calls = nil
		b := &data.Batch{X: tensor.Ones(n, 3), Index: make([]int, n)}
		if _, err := a.Backward(b, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
			limit.check(part.X.Dim(0))
			return m.Forward(part.X).Mean()
		}); err != nil {
			t.Fatal(err)
		}
		return limit.calls
	}
	// An error without numbers may be temporary, so Adapt repeats the first attempt once.
	if got := fmt.Sprint(step(100)); got != "[100 100 50 50 25 25 25 25]" {
		t.Errorf("the first batch: %s", got)
	}
	if got := fmt.Sprint(step(100), step(30), step(60), step(100)); got != "[25 25 25 25] [30] [30 30] [25 25 25 25]" {
		t.Errorf("then, with a probe of 30: %s", got)
	}
	if got := fmt.Sprint(step(100)); got != "[33 33 34]" {
		t.Errorf("a probe of 3 parts: %s", got)
	}
	for range 3 {
		// Parts of 34 samples fit, and parts of 50 do not. No number of parts gives a size in
		// between.
		if got := fmt.Sprint(step(100)); got != "[33 33 34]" {
			t.Errorf("after it: %s", got)
		}
	}
	limit.at = 1000
	whole := 0
	for i := range 80 {
		if len(step(100)) == 1 {
			whole = i
			break
		}
	}
	if whole == 0 || a.Stats().Most != 0 {
		t.Errorf("with memory again there are whole batches after %d steps, %+v", whole, a.Stats())
	}
	limit.at = 80
	if got := fmt.Sprint(step(100)); got != "[100 100 50 50]" {
		t.Errorf("memory has become short again: %s", got)
	}
	if text := strings.Join(lines, "\n"); strings.Count(text, "out of memory") != 2 || strings.Count(text, "fit again") < 2 {
		t.Errorf("what is told:\n%s", text)
	}
}

// A failed attempt with larger parts causes no further failures. Adapt then waits longer before it
// tries the same size again.
func TestProbesBackOff(t *testing.T) {
	m := nn.NewLinear(3, 2)
	a, err := train.NewAdapt(train.AdaptConfig{Model: m, Probe: 1, Reduction: train.ReductionMean})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	limit := &short{at: 8}
	for range 700 {
		b := &data.Batch{X: tensor.Ones(8, 3), Index: make([]int, 8)}
		if _, err := a.Backward(b, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
			limit.check(part.X.Dim(0))
			return m.Forward(part.X).Mean()
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Adapt tries larger parts after 64, 128, 256 and 512 steps without a failure. The test has too
	// few steps for the fourth attempt.
	if s := a.Stats(); s.Probes != 3 || s.Failures != 2+3 {
		t.Errorf("%+v", s)
	}
}

// The gradients of several batches of a step, and of parts, add up to the gradients of one large
// batch. Adapt recognises a loss that is a sum.
func TestPartsAddUp(t *testing.T) {
	reductions := map[string]func(x, y *tensor.Tensor) *tensor.Tensor{
		"mean": func(x, y *tensor.Tensor) *tensor.Tensor { return x.Sub(y).Square().Mean() },
		"sum":  func(x, y *tensor.Tensor) *tensor.Tensor { return x.Sub(y).Square().Sum() },
	}
	for name, f := range reductions {
		var got [2][]float64
		var losses [2]float64
		for i, at := range []int{1000, 5} {
			m := seeded(nn.NewLinear(3, 2))
			a, err := train.NewAdapt(train.AdaptConfig{Model: m})
			if err != nil {
				t.Fatal(err)
			}
			limit := &short{at: at}
			tensor.Do(func(s *tensor.Scope) {
				for range 3 {
					x, y := s.Randn(7, 3), s.Randn(7, 2)
					loss, err := a.Backward(&data.Batch{X: x, Y: y}, func(_ *tensor.Scope, b *data.Batch) *tensor.Tensor {
						limit.check(b.X.Dim(0))
						return f(m.Forward(b.X), b.Y)
					})
					if err != nil {
						t.Fatal(err)
					}
					losses[i] += loss.Item()
				}
			}, tensor.Seed(11))
			for _, p := range nn.Parameters(m) {
				got[i] = append(got[i], p.Grad().Floats()...)
			}
			a.Close()
		}
		if d := farthest(got[0], got[1]); d > 1e-5 || math.Abs(losses[0]-losses[1]) > 1e-5 {
			t.Errorf("%s: gradients differ by %g, losses are %v", name, d, losses)
		}
	}
}

// The log says once for each layer how splitting changes its results. It also says if a loss is
// neither a mean nor a sum.
func TestSplitTellsWhatItChanges(t *testing.T) {
	for want, c := range map[string]train.AdaptConfig{
		"BatchNorm1d normalises over each part; BatchNorm1d updates its running statistics once for each part; Dropout may draw other numbers": {
			Model: nn.NewSequential(nn.NewLinear(3, 4), nn.NewBatchNorm1d(4), nn.NewDropout(0.5), nn.NewDropout1d(0))},
		"the loss is neither the mean nor the sum of the losses of the samples": {Model: nn.NewLinear(3, 4)},
		"StochasticDepth may draw other numbers":                                {Model: nn.NewSequential(nn.NewLinear(3, 4), nn.NewStochasticDepth(0.5))},
		"":                                                                      {Model: nn.Eval(nn.NewSequential(nn.NewBatchNorm1d(3), nn.NewDropout(0.5), nn.NewLinear(3, 4)))},
	} {
		var lines []string
		c.Log = func(s string) { lines = append(lines, s) }
		a, err := train.NewAdapt(c)
		if err != nil {
			t.Fatal(err)
		}
		limit := &short{at: 5}
		for range 3 {
			// One case has a loss with a square root. The samples differ much, so the loss of a
			// batch cannot equal the mean of its samples' losses by chance.
			b := &data.Batch{X: tensor.Root().Arange(9).Float().MulScalar(100).Unsqueeze(1).Expand(9, 3).Contiguous()}
			if _, err := a.Backward(b, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
				limit.check(part.X.Dim(0))
				y := c.Model.(nn.Module).Forward(part.X)
				if strings.Contains(want, "neither") {
					return y.Square().Mean().Sqrt()
				}
				return y.Square().Mean()
			}); err != nil {
				t.Fatal(err)
			}
		}
		said := 0
		for _, l := range lines {
			if strings.Contains(l, "changes what is computed") {
				said++
				if want == "" || !strings.Contains(l, want) {
					t.Errorf("want %q, it says %q", want, l)
				}
			}
		}
		if (said == 1) != (want != "") {
			t.Errorf("%q is said %d times: %q", want, said, lines)
		}
		a.Close()
	}
}

// deepNet returns a model that needs more memory for one sample than the 1120 KiB of the device,
// unless it recomputes activations.
func deepNet(dev device.Device) *nn.Sequential {
	layers := []nn.Module{nn.NewConv2d(1, 4, 3, nn.Padding(1)), nn.NewUpsample(tensor.InterpolateOptions{Scale: []float64{16}})}
	for range 20 {
		layers = append(layers, nn.Tanh{})
	}
	return nn.To(seeded(nn.NewSequential(append(layers, nn.NewBatchNorm2d(4))...)), dev)
}

// If a single sample does not fit, checkpointing is switched on. If checkpointing is forbidden, the
// result is a typed error with numbers and advice, and nothing is changed.
func TestLastResorts(t *testing.T) {
	large := emulate(t, "mem=4MiB,segment=16KiB")
	run := func(dev *cuda.Device, keep bool) (*nn.Sequential, *train.Adapt, string, error) {
		m, log := deepNet(dev), new(strings.Builder)
		a, err := train.NewAdapt(train.AdaptConfig{Model: m, Keep: keep, Reduction: train.ReductionMean, Log: func(s string) { log.WriteString(s + "\n") }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Backward(&data.Batch{X: tensor.Ones(1, 1, side, side)}, func(s *tensor.Scope, b *data.Batch) *tensor.Tensor {
			return m.Forward(b.X).Square().Mean()
		})
		return m, a, log.String(), err
	}
	grads := func(m any) (out []float64) {
		for _, p := range nn.Parameters(m) {
			out = append(out, p.Grad().Floats()...)
		}
		return out
	}
	want, _, _, err := run(large, false)
	if err != nil {
		t.Fatal(err)
	}
	dev := emulate(t, "mem=2MiB,segment=16KiB")
	dev.SetMemoryLimit(1120 << 10)
	m, a, log, err := run(dev, false)
	if err != nil {
		t.Fatal(err)
	}
	if d := farthest(grads(m), grads(want)); d > 1e-6 {
		t.Errorf("gradients of a checkpointed sample differ by %g", d)
	}
	if s := a.Stats(); !s.Checkpointing || !strings.Contains(log, "(checkpointing)") {
		t.Errorf("%+v\n%s", s, log)
	}

	dev = emulate(t, "mem=2MiB,segment=16KiB")
	dev.SetMemoryLimit(1120 << 10)
	m, a, log, err = run(dev, true)
	var e *train.MemoryError
	if !errors.As(err, &e) || !errors.Is(err, device.ErrOutOfMemory) {
		t.Fatalf("the error is %v", err)
	}
	if e.Samples != 1 || e.Shortage.Asked == 0 || e.Needed <= 1120<<10 || len(e.Shortage.Owners) == 0 || e.Checkpointed {
		t.Errorf("the numbers are %+v", e)
	}
	for _, part := range []string{"train: out of memory on cuda:0 for the gradients of a single sample", "largest owners:", "what to try:", "nn.SetCheckpointing"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q is not in:\n%v", part, e)
		}
	}
	for _, p := range nn.Named(m) {
		if p.Tensor.Grad() != nil {
			t.Errorf("%s has a gradient", p.Name)
		}
		if p.Name == "22.num_batches_tracked" && p.Tensor.Item() != 0 {
			t.Errorf("a batch that failed was counted")
		}
	}
	if log != "" {
		t.Errorf("it says %q", log)
	}
	a.Close()
}

// For a batch without a dimension of samples, the error says that it cannot be split. In other
// batches, each part has the data of its samples.
func TestPartsOfABatch(t *testing.T) {
	m := nn.NewLinear(2, 1)
	a, err := train.NewAdapt(train.AdaptConfig{Model: m, Most: 2, Reduction: train.ReductionMean})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var seen []string
	inputs := map[string]any{"pair": []any{tensor.Ones(3, 2), tensor.From([]int64{7, 8, 9})}, "texts": []string{"a", "b", "c"}, "weight": tensor.Full(0.5),
		"boxes": []any{tensor.Ones(2, 4), tensor.Ones(1, 4), tensor.Ones(5, 4)}}
	if _, err := a.Backward(&data.Batch{Nested: data.Sample{X: inputs}, Index: []int{4, 5, 6}}, func(s *tensor.Scope, b *data.Batch) *tensor.Tensor {
		in := b.Nested.X.(map[string]any)
		pair := in["pair"].([]any)
		line := fmt.Sprint(b.Index, in["texts"], pair[1].(*tensor.Tensor).Floats(), in["weight"].(*tensor.Tensor).Item())
		for _, x := range in["boxes"].([]any) {
			line += fmt.Sprint(x.(*tensor.Tensor).Dim(0))
		}
		seen = append(seen, line)
		return m.Forward(pair[0].(*tensor.Tensor)).Mean()
	}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen, ", "); got != "[4] [a] [7] 0.52, [5 6] [b c] [8 9] 0.515" {
		t.Errorf("the parts are %s", got)
	}
	var e *train.MemoryError
	limit := &short{at: 1}
	_, err = a.Backward(&data.Batch{X: tensor.Ones(5, 2), Index: []int{1, 2}}, func(s *tensor.Scope, b *data.Batch) *tensor.Tensor {
		limit.check(5)
		return nil
	})
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "cannot be split into parts: it is of 2 samples, and one of its tensors has the shape [5, 2]") {
		t.Errorf("a batch that cannot be split: %v", err)
	}
}

// Invalid settings are errors. Panics of the loss pass through, and the earlier gradients are
// restored.
func TestAdaptMisuse(t *testing.T) {
	for want, c := range map[string]train.AdaptConfig{
		"train: Model: there is none": {}, "train: Most: -1": {Model: nn.NewLinear(1, 1), Most: -1}, "train: Reduction: 9": {Model: nn.NewLinear(1, 1), Reduction: 9},
		"train: Device: it is not given": {Model: nn.NewSequential(nn.ReLU{})},
	} {
		if _, err := train.NewAdapt(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, the error is %v", want, err)
		}
	}
	m := nn.NewLinear(2, 1)
	a, err := train.NewAdapt(train.AdaptConfig{Model: m})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	m.Weight.SetGrad(tensor.Full(3, 1, 2))
	if err := tensor.Try(func() {
		_, _ = a.Backward(&data.Batch{X: tensor.Ones(4, 2)}, func(s *tensor.Scope, b *data.Batch) *tensor.Tensor { return m.Forward(b.X) })
	}); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("a loss of four numbers: %v", err)
	}
	if g := m.Weight.Grad(); g == nil || g.Floats()[0] != 3 || m.Bias.Grad() != nil {
		t.Errorf("the gradient of before is %v", g)
	}
}
