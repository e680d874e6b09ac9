package models_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A curveCase is a training that runs on the CPU and on a GPU with the same batches.
type curveCase struct {
	name  string
	steps int
	make  func(in nn.Option) (model any, vocab int, loss func(x, y *tt) *tt)
	batch [2]int // number of rows, and number of tokens in a row
}

// curveCases returns models with dropout, and with heads of 32 and 64 features, for which there are
// attention kernels. If long is true, they have two blocks each and more training steps.
func curveCases(long bool) []curveCase {
	steps, layers := 4, 1
	if long {
		steps, layers = 20, 2
	}
	gpt := func(in nn.Option) (any, int, func(x, y *tt) *tt) {
		c := models.GPTConfig{Vocab: 65, Context: 32, Layers: layers, Heads: 2, Width: 64, Dropout: 0.1}
		m := models.NewGPT(c, in)
		return m, c.Vocab, m.Loss
	}
	bert := func(in nn.Option) (any, int, func(x, y *tt) *tt) {
		c := models.BERTConfig{Vocab: 48, Context: 32, Layers: layers, Heads: 1, Width: 64, Hidden: 128, Dropout: 0.1}
		m := models.NewMaskedLM(c, in)
		return m, c.Vocab, func(x, y *tt) *tt { return m.Loss(x, y, models.BERTInput{}) }
	}
	return []curveCase{{"gpt", steps, gpt, [2]int{2, 32}}, {"bert", steps, bert, [2]int{2, 32}}}
}

// tokens returns the tokens x of a step, and the tokens y that follow them. Each token determines
// the next one, so a model can learn it.
func (c curveCase) tokens(step, vocab int) (x, y []int64) {
	at := 7 * step % vocab
	for range c.batch[0] * c.batch[1] {
		x = append(x, int64(at))
		at = (at + 1 + at%3) % vocab
		y = append(y, int64(at))
	}
	return x, y
}

// A curve is the result of a training: the losses, and the weights before and after the training.
type curve struct {
	losses        []float64
	before, after [][]float32
}

func (c curveCase) train(dev device.Device, low dtype.Type, each func(step int, loss func() float64)) (r curve) {
	weights := func(model any) (list [][]float32) {
		for _, p := range nn.Parameters(model) {
			list = append(list, tensor.Data[float32](p))
		}
		return list
	}
	tensor.Do(func(s *tensor.Scope) {
		model, vocab, loss := c.make(nn.In(s))
		r.before = weights(model)
		nn.To(model, dev)
		opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 3e-3})
		for k := range c.steps {
			x, y := c.tokens(k, vocab)
			s.Do(func(t *tensor.Scope) {
				l := loss(t.From(x, c.batch[:]...), t.From(y, c.batch[:]...))
				l.Backward()
				opt.Step()
				opt.ZeroGrad()
				each(k, func() float64 {
					r.losses = append(r.losses, l.Item())
					return r.losses[k]
				})
			}, tensor.On(dev), tensor.Autocast(low), tensor.Seed(uint64(k)))
		}
		r.after = weights(model)
	}, tensor.Seed(3))
	return r
}

// relativeDistance returns the distance between the final weights of trainings a and b, divided by
// the distance between a's initial and final weights.
func relativeDistance(a, b curve) float64 {
	var off, way float64
	for i, list := range a.after {
		for j, v := range list {
			d, w := float64(v-b.after[i][j]), float64(v-a.before[i][j])
			off, way = off+d*d, way+w*w
		}
	}
	return math.Sqrt(off / way)
}

// A curveTrace records the kernels and the copies of a training on a GPU.
type curveTrace struct {
	*launchList
	copies []device.CopyEvent
}

func (c *curveTrace) Copy(e device.CopyEvent) {
	if e.Device.Info().Kind == "cuda" {
		c.copies = append(c.copies, e)
	}
}

// check fails the test if a step copies more than it must. A step copies to the GPU the inputs
// and targets of a batch, AdamW's scalars, and the driver's tables of tensors. One table is for
// the tensors that AdamW updates, and one is for the tensors that autocast converts together.
func (c *curveTrace) check(t *testing.T, name string, batch, most int) {
	t.Helper()
	batches, scalars, tables := 0, 0, 0
	for _, e := range c.copies {
		switch {
		case e.Kind == device.HostToDevice && e.Own:
			tables++
		case e.Kind == device.HostToDevice && e.Bytes == batch:
			batches++
		case e.Kind == device.HostToDevice && e.Bytes <= 64:
			scalars++
		default:
			t.Errorf("%s: a %v of %d bytes for %s", name, e.Kind, e.Bytes, e.Op)
		}
	}
	if batches != 2 || scalars > 1 || tables > most {
		t.Errorf("%s: %d copies of the batch, %d of scalars and %d of tables", name, batches, scalars, tables)
	}
}

// Training on the emulated GPU gives the same losses and final weights as on the CPU, within a
// tolerance, with the same random numbers for dropout. In bfloat16, matrix products and attention
// use the tensor cores. With FLAMBEAU_SOAK=1 the models have more blocks and train for more steps.
func TestTrainingOnGPUEqualsCPU(t *testing.T) {
	long := os.Getenv("FLAMBEAU_SOAK") == "1"
	gpus, err := cuda.Emulate("emulate,mem=256MiB")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range curveCases(long) {
		for _, low := range []dtype.Type{dtype.Invalid, dtype.BF16} {
			name := c.name + ", " + modeName(low)
			want := c.train(cpu, low, func(_ int, loss func() float64) { loss() })
			got, trace := c.traced(t, name, gpus[0], low)
			worst, off := 0.0, relativeDistance(want, got)
			for k, w := range want.losses {
				worst = max(worst, math.Abs(got.losses[k]-w)/w)
			}
			first, last := want.losses[0], want.losses[c.steps-1]
			t.Logf("%s: %d losses, %.4f to %.4f, off by at most %.3g; the weights by %.3g of their way", name, c.steps, first, last, worst, off)
			lossBound, weightBound := 1e-4, 1e-3
			if low == dtype.BF16 {
				lossBound, weightBound = 0.003, 0.1
			}
			if !(worst <= lossBound) || !(off <= weightBound) {
				t.Errorf("%s: the losses are off by %.3g, the weights by %.3g of their way", name, worst, off)
			}
			if !(last < first) {
				t.Errorf("%s: the loss goes from %v to %v", name, first, last)
			}
			trace.onTensorCores(t, name, low)
		}
	}
}

// traced trains on a GPU, and checks the copies of every step except the first.
func (c curveCase) traced(t *testing.T, name string, gpu device.Device, low dtype.Type) (curve, *curveTrace) {
	t.Helper()
	trace := &curveTrace{launchList: &launchList{nodes: map[uint64]string{}}}
	if !device.SetTracer(trace) {
		t.Fatal("there is a tracer")
	}
	defer device.SetTracer(nil)
	r := c.train(gpu, low, func(k int, loss func() float64) {
		if k > 0 { // the first step also copies the model to the GPU
			tables := 1
			if low != dtype.Invalid {
				tables = 2
			}
			trace.check(t, fmt.Sprintf("%s, step %d", name, k), c.batch[0]*c.batch[1]*8, tables)
		}
		trace.copies = nil
		loss()
		if n := len(trace.copies); n != 1 || trace.copies[0].Kind != device.DeviceToHost || trace.copies[0].Bytes != 4 {
			t.Errorf("%s, step %d: %d copies to read a loss: %+v", name, k, n, trace.copies)
		}
		trace.copies = nil
	})
	return r, trace
}

// onTensorCores checks the kernels of a training. An attention kernel must itself apply dropout to
// the attention weights. In 16 bits, the kernel of its gradient must do so too, and every matrix
// product must use the tensor cores.
func (c *curveTrace) onTensorCores(t *testing.T, name string, low dtype.Type) {
	t.Helper()
	forward, backward, loose := 0, 0, 0
	for _, n := range c.list {
		switch {
		case strings.HasPrefix(n.kernel, "attention_grad_") && strings.Contains(n.kernel, "_drop_"):
			backward++
		case strings.HasPrefix(n.kernel, "attention_") && strings.Contains(n.kernel, "_drop_"):
			forward++
		case n.first && n.event.Class == device.ByProducts &&
			!slices.ContainsFunc(n.event.Launches, func(l device.LaunchEvent) bool { return l.Tensor > 0 }):
			loose++
		}
	}
	if forward == 0 || low != dtype.Invalid && (backward == 0 || loose > 0) {
		t.Errorf("%s: attention by %d kernels, its gradient by %d, and %d products not on the tensor cores", name, forward, backward, loose)
	}
}
