package train_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// split computes the gradients of a batch in parts of at most limit samples, where 0 means the
// whole batch. It returns the gradients and the log.
func split(t *testing.T, m any, limit int, x, y *tensor.Tensor, g *tensor.Generator) (grads []float64, said string) {
	t.Helper()
	var log []string
	a, err := train.NewAdapt(train.AdaptConfig{Model: m, Most: limit, Reduction: train.ReductionMean, Generator: g, Log: func(s string) { log = append(log, s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Backward(&data.Batch{X: x.Clone(), Y: y.Clone()}, func(_ *tensor.Scope, b *data.Batch) *tensor.Tensor {
		out := m.(nn.Module).Forward(b.X)
		return out.Reshape(out.Dim(0), -1).Narrow(1, 0, 2).Sub(b.Y).Square().Mean()
	}); err != nil {
		t.Fatal(err)
	}
	for _, p := range nn.Parameters(m) {
		if g := p.Grad(); g != nil {
			grads = append(grads, g.Floats()...)
			p.ZeroGrad()
		}
	}
	return grads, strings.Join(log, "\n")
}

// For layers that treat samples separately, parts give the same update as the batch, and Adapt logs
// nothing. For other layers and for random numbers, the log says what changes.
func TestWhatASplitChanges(t *testing.T) {
	type layers = []nn.Module
	frozen := nn.NewBatchNorm2d(2)
	frozen.RunningMean.Fill(0.3)
	for want, list := range map[string]layers{
		"": {nn.NewConv2d(1, 2, 3), nn.NewGroupNorm(1, 2), &nn.GELU{}, nn.NewInstanceNorm2d(2), nn.Eval(frozen), &nn.Flatten{}, nn.NewLayerNorm([]int{18}), nn.NewDropout(0),
			nn.NewLinear(18, 2)},
		"BatchNorm2d normalises over each part; BatchNorm2d updates its running statistics once for each part": {nn.NewConv2d(1, 2, 3), nn.NewBatchNorm2d(2)},
		"BatchNorm2d normalises over each part":                            {nn.NewConv2d(1, 2, 3), nn.Eval(nn.NewBatchNorm2d(2, nn.NoStats()))},
		"InstanceNorm2d updates its running statistics once for each part": {nn.NewConv2d(1, 2, 3), nn.NewInstanceNorm2d(2, nn.Stats())},
		"Dropout may draw other numbers":                                   {nn.NewConv2d(1, 2, 3), nn.NewDropout(0.5), nn.NewDropout(0.5)},
		"what is random may draw other numbers":                            {nn.NewConv2d(1, 2, 3), noise{}, &nn.GELU{}, noise{}},
	} {
		m := seeded(nn.NewSequential(list...))
		var x, y *tensor.Tensor
		tensor.Do(func(s *tensor.Scope) { x, y = s.Randn(7, 1, 5, 5), s.Randn(7, 2); s.Close(x, y) }, tensor.Seed(1))
		whole, said := split(t, m, 0, x, y, tensor.NewGenerator(3))
		if said != "" {
			t.Errorf("nothing is split: %s", said)
		}
		parts, said := split(t, m, 3, x, y, tensor.NewGenerator(3))
		if text := strings.TrimPrefix(said, "the split changes what is computed: "); text != want {
			t.Errorf("it says %q, not %q", text, want)
		}
		// Instance normalisation also gives the same update from parts.
		same := want == "" || strings.HasPrefix(want, "InstanceNorm")
		if d := farthest(whole, parts); (d < 1e-6) != same {
			t.Errorf("%q: gradients differ by %g", want, d)
		}
	}
	var x, y *tensor.Tensor
	g := models.NewGPT(models.GPTConfig{Vocab: 5, Context: 4, Layers: 1, Heads: 1, Width: 4, Dropout: 0.5})
	x, y = tensor.Root().RandInt(0, 5, 4, 4), tensor.Root().Randn(4, 2)
	if _, said := split(t, g, 2, x, y, tensor.NewGenerator(3)); !strings.HasSuffix(said, "what is random may draw other numbers") {
		t.Errorf("a GPT: %q", said)
	}
}

// noise is a layer that adds random numbers to its input.
type noise struct{ nn.Base }

func (noise) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Add(x.RandnLike()) }

// The running statistics are updated once for each part of a split batch, in order.
func TestRunningStatisticsOfParts(t *testing.T) {
	x := tensor.Root().Arange(21).Float().Reshape(7, 3).Sin()
	state := func(m any) string {
		var b bytes.Buffer
		for _, p := range nn.NamedBuffers(m) {
			fmt.Fprintln(&b, p.Name, p.Tensor.Floats())
		}
		return b.String()
	}
	m := nn.NewSequential(nn.NewBatchNorm1d(3))
	split(t, m, 3, x, tensor.Zeros(7, 2), tensor.NewGenerator(3))
	want := nn.NewSequential(nn.NewBatchNorm1d(3))
	for _, cut := range [][2]int{{0, 2}, {2, 2}, {4, 3}} {
		want.Forward(x.Narrow(0, cut[0], cut[1]))
	}
	if got, want := state(m), state(want); got != want || !strings.Contains(want, "num_batches_tracked [3]") {
		t.Errorf("%s\n%s", got, want)
	}
}

// The default loss is the mean over targets that are not ignored. A batch computed in parts has the
// same loss, even if all targets of a part are ignored.
func TestSplitWithIgnoredTargets(t *testing.T) {
	for _, dev := range devices(t) {
		training, held := problem(t)
		tensor.Do(func(s *tensor.Scope) {
			training.Y.In(s).Narrow(0, 3, 20).Fill(nn.IgnoreIndex)
			held.Y.In(s).Narrow(0, 5, 3).Fill(nn.IgnoreIndex)
		}, tensor.NoGrad())
		run := func(parts int) ([]float64, *train.Result) {
			c := setup(t, dev)
			m := nn.To(seeded(nn.NewSequential(nn.NewLinear(features, classes))), dev)
			c.Model, c.Optimizer, c.Schedule = m, optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1}), nil
			c.Train, c.Steps, c.MicroBatch = loader(t, training, data.Config{Batch: 40}), 3, parts
			r := fit(t, c)
			return numbers(m), r
		}
		whole, a := run(0)
		parts, b := run(7)
		if d := farthest(whole, parts); !(d < 1e-6) || math.Abs(a.Loss-b.Loss) > 1e-6 || math.Abs(a.Metrics["loss"]-b.Metrics["loss"]) > 1e-6 {
			t.Errorf("%s: parameters differ by %g, the loss is %v and %v, that of the evaluation %v and %v", dev.Name(), d, a.Loss, b.Loss, a.Metrics["loss"], b.Metrics["loss"])
		}
	}
}
