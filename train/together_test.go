package train_test

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// several returns n devices of the given kind: ranks of the CPU, or emulated GPUs.
func several(t testing.TB, kind string, n int) []device.Device {
	t.Helper()
	if kind == "cuda" {
		gpus, err := cuda.Emulate(fmt.Sprintf("emulate:%d,mem=16MiB,segment=16KiB", n))
		if err != nil {
			t.Fatal(err)
		}
		var list []device.Device
		for _, d := range gpus {
			list = append(list, d)
		}
		return list
	}
	list, err := dist.Devices(slices.Repeat([]string{"cpu"}, n)...).List()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// wide returns a dataset of n images of 6×6 pixels, with labels. The pixels have the element type
// typ.
func wide(t testing.TB, n int, typ dtype.Type) *data.TensorDataset {
	t.Helper()
	var x, y *tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		x, y = s.Randn(n, 1, 6, 6).Cast(typ), s.RandInt(0, 4, n)
		s.Close(x, y)
	}, tensor.Seed(17))
	d, err := data.NewTensorDataset(x, y)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func perceptron(typ dtype.Type) *nn.Sequential {
	return nn.NewSequential(nn.Flatten{}, nn.NewLinear(36, 24, nn.Typed(typ)), nn.Tanh{}, nn.NewLinear(24, 17, nn.Typed(typ)), nn.ReLU{},
		nn.NewLinear(17, 4, nn.Typed(typ)))
}

func normalised(typ dtype.Type) *nn.Sequential {
	return nn.NewSequential(nn.NewConv2d(1, 3, 3, nn.Typed(typ)), nn.NewBatchNorm2d(3, nn.Typed(typ)), nn.ReLU{}, nn.NewMaxPool2d(2), nn.Flatten{},
		nn.NewLinear(12, 4, nn.Typed(typ)))
}

// deviceConfig returns the configuration of a training of model m on the given devices. The
// training has 20 steps, each with a batch of the given size.
func deviceConfig(t testing.TB, list []device.Device, m *nn.Sequential, set data.Dataset, batch int) train.Config {
	t.Helper()
	nn.To(seeded(m), list[0])
	c := train.Config{Model: m, Optimizer: optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9}), Steps: 20, Generator: tensor.NewGenerator(5),
		Train: loader(t, set, data.Config{Batch: batch, Shuffle: true, Seed: 3}), ReadEvery: 7}
	if len(list) > 1 {
		c.Devices = dist.On(list...)
	}
	return c
}

// fitted runs a training. It returns the parameters and buffers, and the losses.
func fitted(t testing.TB, c train.Config) (weights, losses []float64) {
	t.Helper()
	c.OnLoss = func(_ int, loss float64) { losses = append(losses, loss) }
	if r, err := train.Fit(t.Context(), c); err != nil || r.Reason != train.Finished {
		t.Fatalf("%+v, %v", r, err)
	}
	return numbers(c.Model), losses
}

// closeTo returns the tolerance when results of several devices are compared with those of one.
func closeTo(typ dtype.Type) float64 {
	if typ == dtype.F64 {
		return 1e-9
	}
	return 1e-4
}

// A training on several devices gives the same weights and losses as on one device, except for
// rounding. The cases include uneven batches, batches too small for all devices, and several
// batches in a step.
func TestTogetherIsAsAlone(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		for _, typ := range []dtype.Type{dtype.F64, dtype.F32} {
			for name, change := range map[string]func(c *train.Config){
				"plain":       func(*train.Config) {},
				"accumulated": func(c *train.Config) { c.Accumulate, c.ClipNorm = 3, 0.7 },
				"in parts":    func(c *train.Config) { c.MicroBatch = 2 },
				"own loss": func(c *train.Config) {
					c.Loss = func(x, y *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(x, y, nn.Sum) }
					c.Optimizer.SetLR(0.01)
				},
				"computed again": func(c *train.Config) { c.Checkpointing = true },
			} {
				// The race detector gets fewer cases.
				if testing.Short() && (kind == "cuda" && name != "plain" || typ == dtype.F64) {
					continue
				}
				if name != "plain" && (typ == dtype.F32) != (kind == "cuda") || kind == "cuda" && name == "own loss" {
					continue
				}
				// The batches have 10 samples, and the last batch has 3.
				want, lost := fitted(t, func() train.Config {
					c := deviceConfig(t, several(t, kind, 1), perceptron(typ), wide(t, 33, typ), 10)
					change(&c)
					return c
				}())
				for _, n := range []int{2, 4} {
					c := deviceConfig(t, several(t, kind, n), perceptron(typ), wide(t, 33, typ), 10)
					change(&c)
					got, losses := fitted(t, c)
					if d := farthest(got, want); !(d <= closeTo(typ)) || len(got) != len(want) {
						t.Errorf("%s, %d× %s, %v: weights are %g from those of one device", name, n, kind, typ, d)
					}
					if d := farthest(losses, lost); !(d <= closeTo(typ)) || len(losses) != 20 {
						t.Errorf("%s, %d× %s, %v: %d losses, %g from those of one device", name, n, kind, typ, len(losses), d)
					}
				}
			}
		}
	}
}

// Batch normalisation normalises over a device's part of a batch. The result equals that of a
// single device that computes the batch in parts. The running statistics are those of the first
// device.
func TestTogetherNormalises(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		for _, n := range []int{2, 4} {
			set := wide(t, 32, dtype.F64)
			one := deviceConfig(t, several(t, kind, 1), normalised(dtype.F64), set, 8)
			one.MicroBatch = 8 / n
			want, _ := fitted(t, one)
			var log strings.Builder
			c := deviceConfig(t, several(t, kind, n), normalised(dtype.F64), set, 8)
			c.Log = &log
			got, _ := fitted(t, c)
			if d := farthest(got, want); !(d <= 1e-9) {
				t.Errorf("%d× %s: %g from parts on one device", n, kind, d)
			}
			if tracked := nn.Buffers(c.Model)[2].Item(); tracked != 20 {
				t.Errorf("%d× %s: %v batches are in the running statistics", n, kind, tracked)
			}
			for _, want := range []string{fmt.Sprintf("training on %d devices (", n), kind + ":0, " + kind + ":1",
				"BatchNorm2d normalises over each part; BatchNorm2d updates its running statistics by the parts of the first device"} {
				if strings.Count(log.String(), want) != 1 {
					t.Errorf("%q is not told once:\n%s", want, log.String())
				}
			}
		}
	}
}

// With mixed precision, with or without a scaler, several devices compute the same as one device. A
// repeated run is bitwise equal, even with dropout.
func TestTogetherTwice(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		for _, half := range []dtype.Type{dtype.BF16, dtype.F16} {
			run := func(n int, drop, scale float64) []float64 {
				m := nn.NewSequential(nn.Flatten{}, nn.NewLinear(36, 24), nn.NewDropout(drop), nn.ReLU{}, nn.NewLinear(24, 4))
				c := deviceConfig(t, several(t, kind, n), m, wide(t, 33, dtype.F32), 10)
				c.Autocast, c.ClipNorm, c.Accumulate = half, 1, 2
				c.Scaler = amp.NewGradScaler(amp.InitScale(scale), amp.GrowthInterval(4), amp.WarnAfter(100, nil))
				c.Optimizer.SetLR(0.02)
				got, _ := fitted(t, c)
				return got
			}
			if d := farthest(run(2, 0, 256), run(1, 0, 256)); !(d <= 1e-2) {
				t.Errorf("2× %s in %v: %g from one device", kind, half, d)
			}
			a, b := run(2, 0.4, 1<<20), run(2, 0.4, 1<<20)
			if !slices.Equal(a, b) || math.IsNaN(a[0]) {
				t.Errorf("2× %s in %v: two runs differ by %g", kind, half, farthest(a, b))
			}
			if slices.Equal(a, run(3, 0.4, 1<<20)) {
				t.Errorf("2× %s in %v: dropout is that of three devices", kind, half)
			}
		}
	}
}

// Batches may be in the host's memory, page-locked or not, or on the first device.
func TestTogetherTakesBatchesFromAnywhere(t *testing.T) {
	set := wide(t, 33, dtype.F32)
	var want []float64
	for _, where := range []string{"host", "pinned", "first"} {
		list := several(t, "cuda", 3)
		c := deviceConfig(t, list, perceptron(dtype.F32), set, 10)
		conf := data.Config{Batch: 10, Shuffle: true, Seed: 3}
		switch where {
		case "pinned":
			c.Train = pinned{loader(t, set, conf), list[0].(device.PinnedAllocator)}
		case "first":
			conf.Device = list[0]
			c.Train = loader(t, set, conf)
		}
		got, _ := fitted(t, c)
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %g from batches of the host", where, farthest(got, want))
		}
	}
}

// pinned yields batches in page-locked memory of a GPU.
type pinned struct {
	train.Loader
	by device.PinnedAllocator
}

func (p pinned) Batches() iter.Seq2[*data.Batch, error] {
	return func(yield func(*data.Batch, error) bool) {
		for b, err := range p.Loader.Batches() {
			if err == nil {
				x := b.X
				b.X = x.PinMemory(p.by)
				x.Free()
			}
			if !yield(b, err) {
				return
			}
		}
	}
}
