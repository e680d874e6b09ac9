package optim_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// cnn returns the network of _golden/traincnn.py.
func cnn(ty dtype.Type) *nn.Sequential {
	return nn.NewSequential(
		nn.NewConv2d(1, 4, 3, nn.Padding(1), nn.Typed(ty)), nn.NewBatchNorm2d(4, nn.Typed(ty)), nn.ReLU{}, nn.NewMaxPool2d(2),
		nn.NewConv2d(4, 8, 3, nn.Padding(1), nn.Typed(ty)), nn.NewBatchNorm2d(8, nn.Typed(ty)), nn.ReLU{}, nn.NewMaxPool2d(2),
		nn.Flatten{}, nn.NewLinear(32, 5, nn.Typed(ty)))
}

// cnnBatch returns the batch of a step, computed by the formula of _golden/traincnn.py.
func cnnBatch(step int) (x []float32, y []int64) {
	for n := range 16 {
		k := (7*n + 3*step) % 5
		y = append(y, int64(k))
		for i := range 8 {
			for j := range 8 {
				x = append(x, float32((i*(k+1)+j*(k+3)+5*n+11*step)%17)/16-0.5)
			}
		}
	}
	return x, y
}

// A convolutional network with batch normalisation trains for 200 steps of SGD with momentum. Its
// losses, and its final running statistics, equal PyTorch's within 1e-3·max(1, loss) in float32 and
// 1e-8 in float64. The emulated GPU makes only the first steps.
func TestCNNCurveEqualsTorch(t *testing.T) {
	f, err := golden.Open("testdata/cnn.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dev   device.Device
		ty    dtype.Type
		steps int
		tol   float64
	}{{cpu, dtype.F32, 200, 1e-3}, {cpu, dtype.F64, 200, 1e-8}, {emulatedGPU(t, "mem=64MiB"), dtype.F32, 3, 1e-4}} {
		m := cnn(c.ty)
		sd := map[string]*tensor.Tensor{}
		for _, p := range nn.Named(m) {
			sd[p.Name] = recorded(t, f, "start/"+p.Name)
		}
		if err := nn.LoadStateDict(m, sd); err != nil {
			t.Fatal(err)
		}
		nn.To(m, c.dev)
		label := map[dtype.Type]string{dtype.F32: "losses_f32", dtype.F64: "losses_f64"}[c.ty]
		losses := recorded(t, f, label).Floats()
		opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.02, Momentum: 0.9, WeightDecay: 1e-3})
		worst := 0.0
		for step := range c.steps {
			x, y := cnnBatch(step)
			tensor.Do(func(s *tensor.Scope) {
				loss := nn.CrossEntropy(m.Forward(s.From(x, 16, 1, 8, 8).Cast(c.ty)), s.From(y))
				loss.Backward()
				opt.Step()
				opt.ZeroGrad()
				d := math.Abs(loss.Item() - losses[step])
				worst = max(worst, d)
				if d > c.tol*max(1, losses[step]) {
					t.Fatalf("%v on %s: the loss of step %d is %v, want %v", c.ty, c.dev.Name(), step, loss.Item(), losses[step])
				}
			}, tensor.On(c.dev))
		}
		if c.ty == dtype.F64 {
			for _, p := range nn.NamedBuffers(m) {
				if p.Name == "1.num_batches_tracked" || p.Name == "5.num_batches_tracked" {
					continue
				}
				want := recorded(t, f, "end/"+p.Name).Floats()
				for i, v := range p.Tensor.Floats() {
					if !near(v, want[i], 1e-7) {
						t.Fatalf("%s %d is %v, want %v", p.Name, i, v, want[i])
					}
				}
			}
		}
		t.Logf("%v on %s: largest difference %.3g, last loss %.4f", c.ty, c.dev.Name(), worst, losses[c.steps-1])
	}
}
