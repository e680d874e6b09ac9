package dist_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

func mlp() nn.Module {
	return nn.NewSequential(nn.NewLinear(6, 16), &nn.Tanh{}, nn.NewLinear(16, 8), &nn.GELU{}, nn.NewLinear(8, 3))
}

func convs() nn.Module {
	return nn.NewSequential(nn.NewConv2d(2, 4, 3), nn.NewBatchNorm2d(4), &nn.ReLU{}, nn.NewFlatten(1, -1), nn.NewLinear(4*2*2, 3))
}

// chars is a small transformer over characters. Its last layer shares the weight of its embedding.
type chars struct {
	nn.Base
	Embed   *nn.Embedding
	Encoder *nn.TransformerEncoder
	Out     *nn.Linear
}

func newChars() *chars {
	o := nn.TransformerOptions{FeedForward: 16, BatchFirst: true}
	return &chars{Embed: nn.NewEmbedding(11, 8), Encoder: nn.NewTransformerEncoder(8, 2, 2, o), Out: nn.NewLinear(8, 11)}
}

func (m *chars) Forward(x *tt) (y *tt) {
	defer m.Enter(&x, &y)()
	return m.Out.Forward(m.Encoder.ForwardMasked(m.Embed.Forward(x), nn.Masks{Causal: true}))
}

// sample is a model to test, with a function that makes inputs for n samples.
type sample struct {
	name  string
	model func() nn.Module
	input func(s *tensor.Scope, n int) *tt
}

var samples = []sample{
	{"mlp", mlp, func(s *tensor.Scope, n int) *tt { return s.Randn(n, 6) }},
	{"convs", convs, func(s *tensor.Scope, n int) *tt { return s.Randn(n, 2, 4, 4) }},
	{"chars", func() nn.Module { return newChars() }, func(s *tensor.Scope, n int) *tt { return s.RandInt(0, 11, n, 5) }},
}

// byParts is the reference for a DataParallel: it computes on one device what the model on several
// devices must compute. It divides x into the same parts. The first part goes through m itself, and
// each other part through a copy of m.
func byParts(m nn.Module, x *tt, devices int) (y *tt) {
	n := x.Dim(0)
	size := (n + devices - 1) / devices
	var parts []*tt
	for at := 0; at < n; at += size {
		use := m
		if at > 0 { // use a copy that shares the parameters of m but has its own buffers
			with := map[string]*tt{}
			for _, b := range nn.NamedBuffers(m) {
				with[b.Name] = b.Tensor.Clone()
			}
			use = nn.Replace(m, with)
		}
		parts = append(parts, use.Forward(x.Narrow(0, at, min(size, n-at))))
	}
	return tensor.Cat(0, parts...)
}

// TestDataParallelEqualsOneDevice compares several devices with one device. It compares results,
// gradients, and the weights after some steps, for even and uneven parts. The models run on the CPU
// and on GPUs. The tolerance is 1e-9 in float64, and larger in float32.
func TestDataParallelEqualsOneDevice(t *testing.T) {
	g := gpus(t, ":4,mem=64MiB")
	for _, c := range []struct {
		devices   []device.Device
		t         dtype.Type
		tolerance float64
		batch     int
	}{
		{[]device.Device{host(t), g[0], g[1]}, dtype.F64, 1e-9, 7},
		{g[:2], dtype.F32, 1e-4, 4},
		// five samples on four devices: only three devices get a part
		{g, dtype.F32, 1e-4, 5},
		{[]device.Device{g[1], host(t)}, dtype.F32, 1e-4, 3}, // parts of 2 samples and 1 sample
	} {
		for _, m := range samples {
			t.Run(fmt.Sprint(m.name, " ", c.t, " ", len(c.devices), " ", c.batch), func(t *testing.T) {
				model := nn.Cast(m.model(), c.t)
				one := nn.Clone(model)
				// The reference runs on the same device, so only the order of additions differs.
				dp := dist.DataParallel(nn.To(model, c.devices[0]), c.devices)
				nn.To(one, c.devices[0])
				opts := [2]*optim.SGD{}
				for i, m := range []any{dp, one} {
					opts[i] = optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.05, Momentum: 0.9})
				}
				steps := 20
				if m.name == "chars" && c.t == dtype.F32 || testing.Short() {
					steps = 3 // an emulated GPU is slow
				}
				for step := range steps {
					tensor.Do(func(s *tensor.Scope) {
						x := m.input(s, c.batch)
						if x.Type().IsFloat() {
							x = x.Cast(c.t)
						}
						y := [2]*tt{dp.Forward(x), byParts(one, x.To(c.devices[0]), len(c.devices))}
						checkNear(t, "result", y[0], y[1], c.tolerance)
						if y[0].Device() != c.devices[0] || y[0].Scope() != s {
							t.Errorf("the result is on %s in %v", y[0].Device().Name(), y[0].Scope())
						}
						for i, opt := range opts {
							opt.ZeroGrad()
							y[i].Square().Mean().Backward()
							if i == 1 && step < 2 {
								for k, p := range nn.NamedParameters(dp) {
									checkNear(t, "gradient of "+p.Name, p.Tensor.Grad(), nn.Parameters(one)[k].Grad(), c.tolerance)
								}
							}
							opt.Step()
						}
					}, tensor.Seed(uint64(step)))
				}
				for k, p := range nn.Named(dp) {
					checkNear(t, p.Name, p.Tensor, nn.Named(one)[k].Tensor, c.tolerance)
				}
			})
		}
	}
}

// TestDataParallelEqualsWholeBatch tests models that treat each sample independently, such as a
// batch norm in evaluation mode. Their gradients must equal those of the whole batch on one device.
func TestDataParallelEqualsWholeBatch(t *testing.T) {
	devices := append([]device.Device{host(t)}, gpus(t, ":2,mem=64MiB")...)
	for _, m := range samples {
		model := nn.Cast(m.model(), dtype.F64)
		if m.name == "convs" {
			nn.Eval(model)
		}
		one := nn.Clone(model)
		dp := dist.DataParallel(model, devices)
		tensor.Do(func(s *tensor.Scope) {
			x := m.input(s, 7)
			if x.Type().IsFloat() {
				x = x.Double()
			}
			y, want := dp.Forward(x), one.Forward(x)
			checkNear(t, m.name, y, want, 1e-9)
			y.Square().Mean().Backward()
			want.Square().Mean().Backward()
			for k, p := range nn.NamedParameters(dp) {
				checkNear(t, m.name+" "+p.Name, p.Tensor.Grad(), nn.Parameters(one)[k].Grad(), 1e-9)
			}
		})
	}
}

// TestDataParallelHasTheSameBits runs the same training twice. Both runs must give the same bits,
// although their goroutines run in different orders.
func TestDataParallelHasTheSameBits(t *testing.T) {
	devices := append([]device.Device{host(t)}, gpus(t, ":3,mem=64MiB")...)
	var first []byte
	for range 4 {
		tensor.Do(func(s *tensor.Scope) {
			m := nn.NewSequential(nn.NewLinear(6, 16, nn.In(s)), nn.NewDropout(0.5), nn.NewLinear(16, 3, nn.In(s)))
			dp := dist.DataParallel(m, devices)
			var bits []byte
			for range 3 {
				y := dp.Forward(s.Randn(9, 6))
				bits = append(bits, y.Bytes()...)
				y.Square().Mean().Backward()
			}
			for _, p := range nn.Parameters(m) {
				bits = append(bits, p.Grad().Bytes()...)
			}
			if first == nil {
				first = bits
			}
			if !bytes.Equal(first, bits) {
				t.Error("not the same bits")
			}
		}, tensor.Seed(4))
	}
}

// TestDataParallelBuffers checks the buffers after a call. Running statistics must be those of the
// first device's part, and each batch must be counted once.
func TestDataParallelBuffers(t *testing.T) {
	g := gpus(t, ":2,mem=64MiB")
	norm := nn.NewBatchNorm1d(3)
	alone := nn.NewBatchNorm1d(3)
	for _, n := range []*nn.BatchNorm1d{norm, alone} {
		n.Momentum = 1
		nn.To(n, g[0])
	}
	dp := dist.DataParallel(norm, g)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(6, 3)
		dp.Forward(x)
		alone.Forward(x.Narrow(0, 0, 3).To(g[0]))
		checkNear(t, "mean", norm.RunningMean, alone.RunningMean, 0)
		checkNear(t, "variance", norm.RunningVar, alone.RunningVar, 0)
		if n := norm.NumBatchesTracked.Item(); n != 1 {
			t.Errorf("%v batches are counted", n)
		}
		nn.Eval(dp)
		before := norm.RunningMean.Floats()
		if dp.Forward(x); !slices.Equal(before, norm.RunningMean.Floats()) || norm.NumBatchesTracked.Item() != 1 {
			t.Error("evaluation changed the buffers")
		}
	})
}

// TestDataParallelAlone calls a Parallel with a batch of one sample, and a Parallel that has a
// single device. In both cases the model itself must be called and not a copy.
func TestDataParallelAlone(t *testing.T) {
	g := gpus(t, ":2,mem=64MiB")
	m := nn.To(mlp(), g[0])
	one := nn.To(nn.Clone(m), g[0])
	tensor.Do(func(s *tensor.Scope) {
		for _, c := range []struct {
			devices []device.Device
			n       int
		}{{g, 1}, {g[:1], 5}, {g, 0}} {
			x := s.Randn(c.n, 6)
			y, want := dist.DataParallel(m, c.devices).Forward(x), one.Forward(x.To(g[0]))
			checkNear(t, "result", y, want, 0)
			y.Sum().Backward()
			want.Sum().Backward()
			for k, p := range nn.NamedParameters(m) {
				checkNear(t, p.Name, p.Tensor.Grad(), nn.Parameters(one)[k].Grad(), 0)
			}
		}
	})
	if g[1].Stats().Allocations != 0 {
		t.Error("the second device was used")
	}
}
