package amp_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A task is a model with its data.
type task struct {
	name  string
	model any
	scope *tensor.Scope // scope of the model
	loss  func(s *tensor.Scope, step int) *tensor.Tensor
	lr    float64
}

// cnnTask returns a task that classifies digits.
func cnnTask(t *testing.T, dev device.Device) task {
	set, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	home := tensor.NewScope(tensor.Seed(3))
	t.Cleanup(func() { home.Close() })
	in := nn.In(home)
	samples := 32
	if dev.Info().Emulated {
		samples = 8
	}
	m := nn.To(nn.NewSequential(
		nn.NewConv2d(1, 8, 3, nn.Padding(1), in), nn.NewBatchNorm2d(8, in), nn.ReLU{}, nn.NewMaxPool2d(2),
		nn.NewConv2d(8, 16, 3, nn.Padding(1), in), nn.NewBatchNorm2d(16, in), nn.ReLU{},
		nn.Flatten{}, nn.NewLinear(16*16, digits.Classes, in)), dev)
	return task{"a convolutional network", m, home, func(s *tensor.Scope, step int) *tensor.Tensor {
		index := make([]int, samples)
		for k := range index {
			index[k] = (samples*step + k) % set.Len()
		}
		x, y, err := set.GetBatch(index)
		if err != nil {
			t.Fatal(err)
		}
		return nn.CrossEntropy(m.Forward(s.From(x).Reshape(-1, 1, 8, 8)), s.From(y))
	}, 2e-3}
}

// gptTask returns a task that predicts the next tokens of a text.
func gptTask(t *testing.T, dev device.Device) task {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. how vexingly quick daft zebras jump! ", 12)
	const vocabulary = 128
	context, rows := 32, 8
	if dev.Info().Emulated {
		context, rows = 16, 2
	}
	home := tensor.NewScope(tensor.Seed(3))
	t.Cleanup(func() { home.Close() })
	gpt := models.NewGPT(models.GPTConfig{Vocab: vocabulary, Context: context, Layers: 2, Heads: 2, Width: 32}, nn.In(home))
	nn.To(gpt, dev)
	return task{"a GPT of letters", gpt, home, func(s *tensor.Scope, step int) *tensor.Tensor {
		var ids, next []int64
		for r := range rows {
			at := (97*(rows*step+r) + 13) % (len(text) - context - 1)
			for k := range context {
				ids, next = append(ids, int64(text[at+k])), append(next, int64(text[at+k+1]))
			}
		}
		m := s.On(dev)
		return gpt.Loss(m.From(ids).Reshape(rows, context), m.From(next).Reshape(rows, context))
	}, 3e-3}
}

// train makes n training steps and returns their losses.
func (k *task) train(dev device.Device, n int, low dtype.Type) []float64 {
	opt := optim.NewAdamW(nn.Parameters(k.model), optim.AdamConfig{LR: k.lr})
	scaler := amp.NewGradScaler(amp.Enabled(low == dtype.F16))
	losses := make([]float64, n)
	for i := range n {
		k.scope.Do(func(s *tensor.Scope) {
			loss := k.loss(s, i)
			scaler.Scale(loss).Backward()
			scaler.Unscale(opt)
			optim.ClipGradNorm(opt.Params(), 1)
			scaler.Step(opt)
			scaler.Update()
			opt.ZeroGrad()
			losses[i] = loss.Item()
		}, tensor.On(dev), tensor.Autocast(low))
	}
	return losses
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// Training in bfloat16 and float16 reaches the loss of float32. The mean loss over the last
// quarter of the steps is at most 1 % greater. On the emulated GPU the losses of the first
// three steps agree within the error of the element type.
func TestTraining(t *testing.T) {
	list := devices(t)
	steps := 60
	switch {
	case os.Getenv("FLAMBEAU_SOAK") != "":
		steps = 1500
	// CI runs the race detector with -short. It does not need this long test, because other tests
	// cover more code.
	case testing.Short():
		t.Log("not in short mode: the loss needs its steps")
		return
	}
	for _, make := range []func(*testing.T, device.Device) task{cnnTask, gptTask} {
		for _, dev := range list[:2] {
			n := steps
			if dev != list[0] {
				n = 3
			}
			plain := make(t, dev)
			want := plain.train(dev, n, dtype.Invalid)
			for _, low := range []dtype.Type{dtype.BF16, dtype.F16} {
				k := make(t, dev)
				got := k.train(dev, n, low)
				what := fmt.Sprintf("%s in %v on %s", k.name, low, dev.Name())
				if dev != list[0] {
					tol := map[dtype.Type]float64{dtype.BF16: 0x1p-8, dtype.F16: 0x1p-11}[low] * 4
					for i := range n {
						if math.Abs(got[i]-want[i]) > tol*math.Abs(want[i]) {
							t.Errorf("%s: the loss of step %d is %v, in float32 %v", what, i, got[i], want[i])
						}
					}
					continue
				}
				a, b := mean(got[3*n/4:]), mean(want[3*n/4:])
				t.Logf("%s: the loss went from %.4f to %.4f, in float32 to %.4f: %.2f %%", what, got[0], a, b, 100*(a-b)/b)
				if a > 1.01*b || !(a < 0.8*got[0]) {
					t.Errorf("%s: the loss went from %v to %v, in float32 to %v", what, got[0], a, b)
				}
			}
		}
	}
}
