package train_test

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

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

// A failure on one rank, other than lack of memory, ends the training immediately. The error names
// the rank and its device.
func TestTogetherFails(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fail func(x *tensor.Tensor)
		want string
	}{
		"a panic of the program": {func(*tensor.Tensor) { panic(broken) }, "broken"},
		"a shape":                {func(x *tensor.Tensor) { x.Reshape(7) }, "reshape"},
		"the end of a goroutine": {func(*tensor.Tensor) { runtime.Goexit() }, "Goexit"},
	} {
		for _, kind := range []string{"cpu", "cuda"} {
			list := several(t, kind, 3)
			cfg := deviceConfig(t, list, perceptron(dtype.F32), wide(t, 33, dtype.F32), 10)
			cfg.Forward, cfg.Checkpoints, cfg.Every = cfg.Model.(*nn.Sequential).Forward, t.TempDir(), 2
			calls := 0
			cfg.Replica = func(m any, dev device.Device) train.Computation {
				return train.Computation{Forward: func(x *tensor.Tensor) *tensor.Tensor {
					if dev == list[2] {
						if calls++; calls == 4 {
							c.fail(x)
						}
					}
					return m.(*nn.Sequential).Forward(x)
				}}
			}
			began := time.Now()
			r, err := train.Fit(t.Context(), cfg)
			var of *dist.RankError
			if !errors.As(err, &of) || of.Rank != 2 || of.Device != kind+":2" || !strings.Contains(err.Error(), c.want) || r == nil || r.Reason != train.Failed || r.Step != 3 {
				t.Errorf("%s, %s: %+v, %v", name, kind, r, err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s, %s: that took %v", name, kind, took)
			}
		}
	}
}

// If the first rank fails, the error is the same as for a failure on a single device.
func TestTogetherFailsFirst(t *testing.T) {
	cfg := deviceConfig(t, several(t, "cpu", 2), perceptron(dtype.F32), wide(t, 33, dtype.F32), 10)
	cfg.OnStep = func(s *train.State) error {
		if s.Step == 3 {
			tensor.Ones(2, 3).MatMul(tensor.Ones(2, 3))
		}
		return nil
	}
	var misuse *tensor.Error
	if _, err := train.Fit(t.Context(), cfg); !errors.As(err, &misuse) || misuse.Op != "matmul" {
		t.Errorf("%v", err)
	}
	cfg = deviceConfig(t, several(t, "cpu", 2), perceptron(dtype.F32), wide(t, 33, dtype.F32), 10)
	cfg.OnStep = func(*train.State) error {
		nn.Parameters(cfg.Model)[1].Detach().Select(0, 2).Fill(math.NaN())
		return nil
	}
	cfg.ReadEvery = 1
	var diverged *train.DivergedError
	if r, err := train.Fit(t.Context(), cfg); !errors.As(err, &diverged) || r.Reason != train.Failed {
		t.Errorf("%+v, %v", r, err)
	}
}

// If memory is short on one device, all devices compute in parts of equal size. The training is
// bitwise equal to one that computes in such parts from the start. If not even one sample fits, the
// error names the device.
func TestTogetherSplitsAlike(t *testing.T) {
	run := func(limit, micro int) (string, string, error) {
		gpus, err := cuda.Emulate("emulate:2,mem=8MiB,segment=16KiB")
		if err != nil {
			t.Fatal(err)
		}
		if limit > 0 {
			gpus[1].SetMemoryLimit(limit)
		}
		m, log := convNet(gpus[0]), new(strings.Builder)
		c := train.Config{Model: m, Optimizer: optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: 0.003}), Steps: 6, MicroBatch: micro, Log: log,
			Train: loader(t, pictures(t, 28), data.Config{Batch: 14, Shuffle: true, Seed: 1}), Devices: dist.On(gpus[0], gpus[1]), Generator: tensor.NewGenerator(1)}
		_, err = train.Fit(t.Context(), c)
		return stateOf(c), log.String(), err
	}
	got, log, err := run(512<<10, 0)
	if err != nil || strings.Count(log, "out of memory") != 1 {
		t.Fatalf("%v\n%s", err, log)
	}
	var refused, parts int
	for _, line := range strings.Split(log, "\n") {
		_, _ = fmt.Sscanf(line, "out of memory with %d samples at once: going on in parts of %d", &refused, &parts)
	}
	want, _, err := run(0, parts)
	if err != nil || parts == 0 || parts > 4 || got != want {
		t.Errorf("in parts of %d, %v: other bits than from the beginning\n%s", parts, err, log)
	}
	var short *train.MemoryError
	if _, _, err := run(60<<10, 0); !errors.As(err, &short) || short.Shortage.Device != "cuda:1" || !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("%v", err)
	}
}

// Evaluations are distributed too. Their values, the best value and the early stop equal those of
// one device. If a device's part of a batch does not fit, the first device evaluates the batch
// alone, with the same result.
func TestTogetherStopsEarly(t *testing.T) {
	for _, sum := range []bool{false, true} {
		for _, kind := range []string{"cpu", "cuda"} {
			run := func(n int, fail bool) []float64 {
				list := several(t, kind, n)
				c := deviceConfig(t, list, perceptron(dtype.F64), wide(t, 33, dtype.F64), 10)
				c.Valid, c.Patience, c.EvalEvery, c.Steps = loader(t, wide(t, 13, dtype.F64), data.Config{Batch: 6}), 2, 1, 50
				c.Metrics = []train.Metric{train.NewAccuracy(), train.NewConfusion(4)}
				c.MinDelta = 100
				c.Loss = func(x, y *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(x, y) }
				if sum {
					c.Loss = func(x, y *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(x, y, nn.Sum) }
					c.Optimizer.SetLR(0.01)
				}
				var all []float64
				c.OnStep = func(*train.State) error {
					if fail {
						list[1].Empty()
						return list[1].(*cuda.Device).FailAlloc(1)
					}
					return nil
				}
				c.OnEvaluation = func(s *train.State) error {
					all = append(all, s.Metrics["loss"], s.Metrics["accuracy"])
					return nil
				}
				r, err := train.Fit(t.Context(), c)
				if err != nil || r.Reason != train.StoppedEarly || r.Step != 3 || r.BestStep != 1 || len(all) != 6 {
					t.Errorf("%d× %s: %+v, %v", n, kind, r, err)
				}
				if fail && list[1].Stats().OOMs < 3 {
					t.Errorf("%s never failed", list[1].Name())
				}
				return all
			}
			want := run(1, false)
			if d := farthest(run(3, false), want); !(d <= 1e-9) {
				t.Errorf("%s: evaluations are %g from those of one device: %v", kind, d, want)
			}
			if kind == "cuda" {
				if d := farthest(run(3, true), want); !(d <= 1e-9) {
					t.Errorf("%s: after a failure evaluations are %g from those of one device", kind, d)
				}
			}
		}
	}
}

// Callbacks may change the model between steps: weights, the layers' modes, and which parameters
// require gradients. Every device gets these changes.
func TestTogetherFollowsCallbacks(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		run := func(n int) []float64 {
			m := nn.NewSequential(nn.Flatten{}, nn.NewLinear(36, 24, nn.Typed(dtype.F64)), nn.NewDropout(0.5), nn.Tanh{}, nn.NewLinear(24, 4, nn.Typed(dtype.F64)))
			c := deviceConfig(t, several(t, kind, n), m, wide(t, 33, dtype.F64), 10)
			nn.Freeze(m.Layers[1])
			c.Steps = 9
			nn.Eval(m.Layers[2])
			c.OnStep = func(s *train.State) error {
				nn.Eval(m.Layers[2])
				tensor.Do(func(c *tensor.Scope) {
					nn.Parameters(m)[s.Step%4].In(c).Detach().MulScalarInPlace(0.9)
				}, tensor.NoGrad())
				if s.Step == 4 {
					for _, p := range nn.Parameters(m.Layers[1]) {
						p.SetRequiresGrad(true)
					}
				}
				return nil
			}
			c.Train = dropless{c.Train, m}
			got, _ := fitted(t, c)
			return got
		}
		if d := farthest(run(3), run(1)); !(d <= 1e-9) {
			t.Errorf("%s: %g from one device", kind, d)
		}
	}
}

// dropless is a loader that puts a layer into evaluation mode before its first batch.
type dropless struct {
	train.Loader
	m *nn.Sequential
}

func (d dropless) Batches() iter.Seq2[*data.Batch, error] {
	nn.Eval(d.m.Layers[2])
	return d.Loader.Batches()
}

// With batch normalisation, a device gets at least two samples of a small last batch, or none.
func TestTogetherLeavesPairs(t *testing.T) {
	for _, left := range []int{2, 3, 5} {
		run := func(n int) *train.Result {
			m := nn.NewSequential(nn.Flatten{}, nn.NewLinear(36, 8), nn.NewBatchNorm1d(8), nn.ReLU{}, nn.NewLinear(8, 4))
			c := deviceConfig(t, several(t, "cpu", n), m, wide(t, 16+left, dtype.F32), 8)
			r, err := train.Fit(t.Context(), c)
			if err != nil {
				t.Fatalf("a last batch of %d on %d devices: %v", left, n, err)
			}
			return r
		}
		if r := run(4); r.Step != 20 || r.Samples != 6*(16+left)+2*8 {
			t.Errorf("%+v", r)
		}
	}
}

// A batch without a dimension of samples is computed on the first device, and the log says so.
func TestTogetherDealsWhatItCan(t *testing.T) {
	run := func(n int, log *strings.Builder) []float64 {
		c := deviceConfig(t, several(t, "cpu", n), nn.NewSequential(nn.NewLinear(3, 2, nn.Typed(dtype.F64))), wide(t, 33, dtype.F64), 10)
		c.Train = loaderFunc(func(yield func(*data.Batch, error) bool) {
			for i := range 4 {
				b := &data.Batch{X: tensor.Ones(7, 3).Double().MulScalar(float64(i)), Y: tensor.Ones(7, 2).Double(), Index: []int{i, i + 1}}
				if !yield(b, nil) {
					return
				}
			}
		})
		c.Loss = func(x, y *tensor.Tensor) *tensor.Tensor { return x.Sub(y).Square().Mean() }
		c.Log = log
		got, _ := fitted(t, c)
		return got
	}
	var log strings.Builder
	if a, b := run(2, &log), run(1, &strings.Builder{}); farthest(a, b) > 1e-9 || strings.Count(log.String(), "computed on cpu:0 alone: the batch cannot be split") != 1 {
		t.Errorf("%g from one device\n%s", farthest(a, b), log.String())
	}
}

// For settings that do not work with several devices, the error names the setting.
func TestTogetherRefuses(t *testing.T) {
	list := several(t, "cpu", 2)
	elsewhere := nn.NewLinear(2, 2)
	for want, change := range map[string]func(c *train.Config){
		"Replica: Forward or Compute is given": func(c *train.Config) { c.Forward = c.Model.(*nn.Sequential).Forward },
		"Optimizer: its parameter 6 is not": func(c *train.Config) {
			c.Optimizer = optim.NewSGD(append(nn.Parameters(c.Model), nn.To(elsewhere, list[0]).Weight), optim.SGDConfig{LR: 0.1})
		},
		"Devices: Device is cpu, and the first": func(c *train.Config) { c.Device = tensor.Root().Device() },
		"is on cpu:0; the model has to be on":   func(c *train.Config) { c.Devices = dist.On(list[1], list[0]) },
		"ranks 0 and 1 are both on cpu:0":       func(c *train.Config) { c.Devices = dist.On(list[0], list[0]) },
		`device "cuda:77" is not available`:     func(c *train.Config) { c.Devices = dist.Devices("cpu", "cuda:77") },
		"Model: it cannot be copied to cpu:1": func(c *train.Config) {
			c.Model = &hidden{Inner: c.Model.(*nn.Sequential), again: c.Model.(*nn.Sequential).Layers[1].(*nn.Linear)}
		},
	} {
		c := deviceConfig(t, list, perceptron(dtype.F32), wide(t, 33, dtype.F32), 10)
		change(&c)
		if _, err := train.Fit(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	// A list with one device has the same effect as the setting Device.
	c := deviceConfig(t, list[:1], perceptron(dtype.F32), wide(t, 33, dtype.F32), 10)
	want, _ := fitted(t, c)
	c = deviceConfig(t, list[:1], perceptron(dtype.F32), wide(t, 33, dtype.F32), 10)
	c.Devices = dist.On(list[0])
	if got, _ := fitted(t, c); !slices.Equal(got, want) {
		t.Error("a list of one device has other bits than the device")
	}
}

// hidden is a model that cannot be copied.
type hidden struct {
	Inner *nn.Sequential
	again *nn.Linear `nn:"-"`
}

func (h *hidden) Forward(x *tensor.Tensor) *tensor.Tensor { return h.Inner.Forward(x) }
