package train_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

func emulatedGPU(t *testing.T) *cuda.Device {
	t.Helper()
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	return gpus[0]
}

// A step loads no kernels if it was rehearsed.
func TestRehearse(t *testing.T) {
	for name, low := range map[string]dtype.Type{"float32": dtype.Invalid, "bfloat16": dtype.BF16} {
		gpu := emulatedGPU(t)
		var losses []float64
		var made uint64 // number of kernels loaded when the model was made
		step := func(s *tensor.Scope) {
			m := models.NewGPT(models.GPTConfig{Vocab: 64, Context: 16, Layers: 2, Heads: 2, Width: 32, Dropout: 0.1}, nn.In(s))
			// In the rehearsal no kernel fills the weights, because its device has no memory. So
			// making the model may load one more kernel in the real step.
			made = gpu.Counters().Kernels
			opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4})
			s.Do(func(s *tensor.Scope) {
				x := s.Typed(dtype.I64).Zeros(2, 16)
				loss := m.Loss(x, x)
				loss.Backward()
				if !s.Device().Info().Meta {
					losses = append(losses, loss.Item())
				}
			}, tensor.Autocast(low))
			optim.ClipGradNorm(opt.Params(), 1).Free()
			opt.Step()
		}
		last, most := 0, 0
		if err := train.Rehearse(t.Context(), gpu, step, func(done, all int) {
			if done != last+1 || most != 0 && all != most {
				t.Errorf("%s: %d of %d kernels after %d of %d", name, done, all, last, most)
			}
			last, most = done, all
		}); err != nil {
			t.Fatal(err)
		}
		loaded := gpu.Counters()
		if last != most || loaded.Kernels != uint64(most) || most < 20 || loaded.Launches != 0 || len(losses) != 0 {
			t.Errorf("%s: %d of %d kernels: %+v, losses %v", name, last, most, loaded, losses)
		}
		tensor.Do(step, tensor.On(gpu), tensor.Seed(0))
		if after := gpu.Counters(); after.Kernels != made || made > loaded.Kernels+1 || after.Launches == 0 || len(losses) != 1 {
			t.Errorf("%s: the step has loaded %d kernels more: %+v", name, after.Kernels-made, after)
		}
	}
}

func TestRehearseErrors(t *testing.T) {
	gpu := emulatedGPU(t)
	err := train.Rehearse(t.Context(), gpu, func(s *tensor.Scope) { s.Ones(3).Sum().Item() }, nil)
	var e *tensor.Error
	if !errors.Is(err, device.ErrNoValues) || !errors.As(err, &e) || !strings.Contains(e.Site, "rehearse_test.go:") {
		t.Errorf("a step that reads a value: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := train.Rehearse(ctx, gpu, func(s *tensor.Scope) { s.Ones(3).Sum() }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted one: %v", err)
	}
	if n := gpu.Counters().Kernels; n != 0 {
		t.Errorf("%d kernels are loaded", n)
	}
	x := tensor.Root().On(gpu).Ones(5)
	if err := train.Rehearse(t.Context(), gpu, func(s *tensor.Scope) { s.From(x.To(s.Device())).Exp() }, nil); err != nil {
		t.Errorf("with a tensor of the device: %v", err)
	}
	if x.Sum().Item() != 5 {
		t.Errorf("the tensor is %v", x)
	}
	other, err := emulatedGPU(t).Rehearsal()
	if err != nil {
		t.Fatal(err)
	}
	var refused *device.OperandError
	if err := gpu.Load(t.Context(), other, nil); !errors.As(err, &refused) {
		t.Errorf("another device's rehearsal: %v", err)
	}
	cpu := devices(t)[0]
	if err := train.Rehearse(t.Context(), cpu, func(*tensor.Scope) { t.Error("a step is rehearsed for the processor") }, nil); err != nil {
		t.Error(err)
	}
}

// watched is a model that records how many kernels a GPU has loaded by the first batch.
type watched struct {
	nn.Base
	Inner nn.Module
	seen  *[]uint64
	gpu   *cuda.Device
}

func (w *watched) Forward(x *tensor.Tensor) *tensor.Tensor {
	if x.Device() == w.gpu && w.Training() {
		*w.seen = append(*w.seen, w.gpu.Counters().Kernels)
	}
	return w.Inner.Forward(x)
}

// Fit loads the kernels before the first step. The training is bitwise equal to one without
// rehearsal.
func TestFitRehearses(t *testing.T) {
	bits := map[train.Rehearsing]string{}
	for _, how := range []train.Rehearsing{train.RehearseNever, train.RehearseAlways, train.RehearseOnGPU} {
		gpu, log, seen := emulatedGPU(t), &strings.Builder{}, []uint64{}
		c := setup(t, gpu)
		w := &watched{Inner: c.Model.(nn.Module), seen: &seen, gpu: gpu}
		c.Model, c.Valid, c.Metrics, c.Schedule, c.Device = w, nil, nil, nil, gpu
		c.Epochs, c.Steps, c.Rehearse, c.Log, c.ClipNorm = 0, 12, how, log, 1
		var first uint64
		c.OnStep = func(s *train.State) error {
			if s.Step == 1 {
				first = gpu.Counters().Kernels
			}
			return nil
		}
		fit(t, c)
		c.Schedule = &halving{}
		bits[how] = weights(t, c)
		before, during := seen[0], first-seen[0]
		t.Logf("%v: %d kernels before the first step, %d in it", how, before, during)
		if rehearsed := how == train.RehearseAlways; rehearsed && (before < 25 || during > 4) || !rehearsed && during < 20 {
			t.Errorf("%v: %d kernels before the first step, %d in it", how, before, during)
		}
		if strings.Contains(log.String(), "as they come") {
			t.Error(log.String())
		}
	}
	if bits[train.RehearseNever] != bits[train.RehearseAlways] || bits[train.RehearseNever] != bits[train.RehearseOnGPU] {
		t.Error("a rehearsal changes the bits of the training")
	}
}

// Each of several devices loads the kernels for its part of a batch.
func TestFitRehearsesTogether(t *testing.T) {
	bits := map[train.Rehearsing]string{}
	for _, how := range []train.Rehearsing{train.RehearseNever, train.RehearseAlways} {
		gpus, err := cuda.Emulate("emulate:2,mem=64MiB")
		if err != nil {
			t.Fatal(err)
		}
		c, log, seen := setup(t, gpus[0]), &strings.Builder{}, []uint64{}
		c.Model = &watched{Inner: c.Model.(nn.Module), seen: &seen, gpu: gpus[1]}
		c.Valid, c.Metrics, c.Schedule, c.Epochs, c.Steps, c.Rehearse, c.Log = nil, nil, nil, 0, 3, how, log
		c.Devices = dist.On(gpus[0], gpus[1])
		fit(t, c)
		c.Schedule = &halving{}
		bits[how] = weights(t, c)
		if rehearsed := how == train.RehearseAlways; rehearsed != (seen[0] > 25) || strings.Contains(log.String(), "as they come") {
			t.Errorf("%v: %d kernels before the first step, %s", how, seen[0], log)
		}
	}
	if bits[train.RehearseNever] != bits[train.RehearseAlways] {
		t.Error("a rehearsal changes the bits of the training")
	}
}

// If a training cannot be rehearsed, the log says so once, and the training goes on.
func TestFitGoesOnUnrehearsed(t *testing.T) {
	for want, change := range map[string]func(c *train.Config){
		"Replica does not say how": func(c *train.Config) {
			c.Loss = func(y, target *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(y, target) }
		},
		"the model has hooks": func(c *train.Config) {
			c.Model.(*nn.Sequential).RegisterForwardHook(func(x, y *tensor.Tensor) *tensor.Tensor {
				if x.Device().Info().Meta {
					t.Error("a rehearsal calls a hook")
				}
				return nil
			})
		},
		"would share the field kept": func(c *train.Config) {
			c.Model = &cachingLayer{Inner: c.Model.(nn.Module), kept: map[int]*tensor.Tensor{}}
		},
		"would share the field Rand": func(c *train.Config) {
			c.Model = &cachingLayer{Inner: c.Model.(nn.Module), Rand: rand.New(rand.NewPCG(1, 2))}
		},
		"there are no values": func(c *train.Config) {
			c.Model = nn.NewSequential(c.Model.(nn.Module), readingLayer{})
		},
		"the rehearsal has failed: out of order": func(c *train.Config) {
			c.Replica = func(any, device.Device) train.Computation { panic("out of order") }
		},
	} {
		log := &strings.Builder{}
		c := setup(t, emulatedGPU(t))
		c.Valid, c.Metrics, c.Schedule, c.Epochs, c.Steps, c.Rehearse, c.Log = nil, nil, nil, 0, 3, train.RehearseAlways, log
		change(&c)
		if r := fit(t, c); r.Step != 3 || strings.Count(log.String(), "are loaded as they come: ") != 1 || !strings.Contains(log.String(), want) {
			t.Errorf("%s: %d steps, %s", want, r.Step, log)
		}
	}
}

// cachingLayer is a layer with its own random numbers. It caches a constant for each width.
type cachingLayer struct {
	nn.Base
	Inner nn.Module
	Rand  *rand.Rand
	kept  map[int]*tensor.Tensor
}

func (k *cachingLayer) Forward(x *tensor.Tensor) *tensor.Tensor {
	if k.Rand != nil {
		return k.Inner.Forward(x.MulScalar(k.Rand.Float64()))
	}
	n := x.Dim(1)
	if k.kept[n] == nil {
		k.kept[n] = tensor.Root().On(x.Device()).Ones(n)
	}
	return k.Inner.Forward(x.Mul(k.kept[n]))
}

// readingLayer is a layer that reads values of its input and returns the input.
type readingLayer struct{ nn.Base }

func (readingLayer) Forward(x *tensor.Tensor) *tensor.Tensor { x.Detach().Sum().Item(); return x }
