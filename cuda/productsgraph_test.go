//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// learner is a perceptron that trains in bfloat16. It stores the losses of its steps.
type learner struct {
	dev    *Device
	m      *nn.Sequential
	opt    optim.Optimizer
	x, y   *tensor.Tensor
	loss   *tensor.Tensor
	losses []float32
}

func newLearner(dev *Device) *learner {
	l := &learner{dev: dev, m: nn.NewSequential(nn.NewLinear(16, 40), nn.GELU{}, nn.NewLinear(40, 8))}
	tensor.Do(func(s *tensor.Scope) {
		for _, w := range nn.Parameters(l.m) {
			w.In(s).NormalInPlace(0, 0.3)
		}
	}, tensor.WithGenerator(tensor.NewGenerator(3)), tensor.NoGrad())
	nn.To(l.m, dev)
	l.opt = optim.NewAdamW(nn.Parameters(l.m), optim.AdamConfig{LR: 0.01})
	x, y := make([]float32, 32*16), make([]int64, 32)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)))
	}
	for i := range y {
		y[i] = int64(i % 8)
	}
	tensor.Do(func(s *tensor.Scope) {
		l.x, l.y = tensor.Root().On(dev).Zeros(32, 16), tensor.Root().On(dev).Typed(dtype.I64).Zeros(32)
		l.x.In(s).Copy(s.From(x, 32, 16))
		l.y.In(s).Copy(s.From(y))
	}, tensor.NoGrad())
	l.loss = tensor.Root().On(dev).Zeros()
	return l
}

func (l *learner) step(s *tensor.Scope) {
	loss := nn.CrossEntropy(l.m.Forward(l.x.In(s)), l.y.In(s))
	loss.Backward()
	l.opt.Step()
	l.opt.ZeroGrad()
	s.Do(func(c *tensor.Scope) { l.loss.In(c).Copy(loss.Detach()) }, tensor.NoGrad())
}

const learnSteps = 5

func (l *learner) eager() []float32 {
	for range learnSteps {
		tensor.Do(l.step, tensor.On(l.dev), tensor.Autocast(dtype.BF16))
		l.losses = append(l.losses, float32(l.loss.Item()))
	}
	return l.losses
}

func (l *learner) captured(t *testing.T) []float32 {
	g, err := tensor.Capture(l.dev, l.step, tensor.Autocast(dtype.BF16))
	must(t, err)
	for range learnSteps {
		must(t, g.Replay())
		l.losses = append(l.losses, float32(l.loss.Item()))
	}
	must(t, g.Close())
	return l.losses
}

// TestProductsTrain trains a model with cublasLt's products and with the package's own kernels. The
// losses must be close. A captured step must compute the same bits as an eager step, and also use
// the library.
func TestProductsTrain(t *testing.T) {
	own := newLearner(emulated(t, "emulate,mem=16MiB")).eager()
	r := newProducts(t, "emulate,mem=16MiB")
	eager := newLearner(r.devs[0]).eager()
	asked, runs := r.counts()
	if asked < 4*learnSteps || runs != asked {
		t.Fatalf("%d steps asked the library for %d products, of which %d have run", learnSteps, asked, runs)
	}
	captured := newLearner(r.devs[0]).captured(t)
	again, replayed := r.counts()
	if n := again - asked; n*learnSteps != asked || replayed-runs != asked {
		t.Errorf("capturing asked for %d products and replays ran %d of them; %d eager steps %d", n, replayed-runs, learnSteps, asked)
	}
	for i := range own {
		if math.Float32bits(eager[i]) != math.Float32bits(captured[i]) {
			t.Errorf("step %d: the loss is %v, captured %v", i, eager[i], captured[i])
		}
		if math.Abs(float64(eager[i]-own[i])) > 0.02*float64(own[i]) {
			t.Errorf("step %d: the loss is %v, with own kernels %v", i, eager[i], own[i])
		}
	}
	if own[learnSteps-1] >= own[0] {
		t.Errorf("nothing was learnt: %v", own)
	}
}

// square returns the product of an n×n matrix with itself, and a function that checks the result.
func (r *productRig) square(d *Device, n int) (o *device.MatMul, right func() bool) {
	x, at := r.factor(d, dtype.F32, shape.Of(1, n, n), "dense", 0, smallInts(1, 2, 3))
	out, _ := r.factor(d, dtype.F32, shape.Of(1, n, n), "dense", 0, smallInts(0, 0, 0))
	return &device.MatMul{Out: out, A: x, B: x}, func() bool {
		got := r.elements(d, out)
		for i := range n {
			for j := range n {
				want := 0.0
				for k := range n {
					want += at(0, i, k) * at(0, k, j)
				}
				if got(0, i, j) != want {
					return false
				}
			}
		}
		return true
	}
}

// TestProductsAcross records products on two devices. Each product must be captured while its
// device's context is current. The graph must also work after the cached plans are gone.
func TestProductsAcross(t *testing.T) {
	r := newProducts(t, "emulate:2,mem=16MiB")
	rec, err := r.devs[0].NewRecording(r.devs[1])
	must(t, err)
	var rights []func() bool
	for _, d := range r.devs {
		o, right := r.square(d, 40) // each of these products needs a workspace
		rights = append(rights, right)
		must(t, device.Run(d, rec.On(d), o))
		clear(d.products.plans)
	}
	if asked, _ := r.counts(); asked != 0 {
		t.Errorf("recording asked the library for %d products", asked)
	}
	must(t, rec.Stream().(*stream).WaitStream(rec.On(r.devs[1])))
	g, err := rec.Finish()
	must(t, err)
	for range 2 {
		must(t, g.Replay(func(int, []byte) {}))
	}
	for i, d := range r.devs {
		must(t, d.Synchronize())
		if !rights[i]() {
			t.Errorf("the product on %s is wrong", d.Name())
		}
	}
	if asked, runs := r.counts(); asked != 2 || runs != 4 {
		t.Errorf("%d products were captured, %d have run", asked, runs)
	}
	must(t, g.Close())
}

// TestProductsCaptureFails makes the library fail during a capture. Finish must return the
// library's error. The stream that was used for the capture must work as before.
func TestProductsCaptureFails(t *testing.T) {
	r := newProducts(t, "emulate,mem=16MiB")
	d := r.devs[0]
	rec, err := d.NewRecording()
	must(t, err)
	o, right := r.square(d, 8)
	must(t, device.Run(d, rec.Stream(), o))
	r.lib.Plant("cublasLtMatmul", 0, cublaslt.ErrExecutionFailed)
	_, err = rec.Finish()
	var f *device.Fault
	if !errors.As(err, &f) || f.Kernel != "cublasLt matmul" || !errors.Is(err, cublaslt.ErrExecutionFailed) {
		t.Fatalf("%v", err)
	}
	must(t, device.Run(d, nil, o))
	if !right() {
		t.Error("the product is wrong afterwards")
	}
	// The next streams that are reused include the stream of the capture.
	for range 3 {
		s, err := d.NewStream(0)
		must(t, err)
		must(t, device.Run(d, s, o))
		must(t, s.Synchronize())
	}
}
