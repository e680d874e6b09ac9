package train_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// calling returns c with a Forward that counts its calls on all devices.
func calling(c train.Config, calls *atomic.Int64) train.Config {
	counted := func(m any) train.Computation {
		return train.Computation{Forward: func(x *tensor.Tensor) *tensor.Tensor {
			calls.Add(1)
			return m.(nn.Module).Forward(x)
		}}
	}
	c.Forward = counted(c.Model).Forward
	c.Replica = func(m any, _ device.Device) train.Computation { return counted(m) }
	return c
}

// dropping returns a model with batch normalisation and dropout.
func dropping() *nn.Sequential {
	m := normalised(dtype.F32)
	m.Layers = append(m.Layers[:5:5], nn.NewDropout(0.4), m.Layers[5])
	return m
}

// On several devices, captured steps are bitwise equal to eager steps. There are batches of two
// shapes, and one of them gives a rank fewer samples. In some cases a callback makes changes
// between steps. Forward runs on each rank only in eager steps and in captures.
func TestFitCapturesTogether(t *testing.T) {
	for name, change := range map[string]func(c *train.Config){
		"plain":   func(*train.Config) {},
		"clipped": func(c *train.Config) { c.ClipNorm, c.ClipValue = 0.5, 0.1 },
		"mixed":   func(c *train.Config) { c.Autocast = dtype.BF16 },
		"AdamW": func(c *train.Config) {
			c.Optimizer = optim.NewAdamW(nn.Parameters(c.Model), optim.AdamConfig{LR: 0.01})
		},
		"scaled": func(c *train.Config) {
			c.Scaler = amp.NewGradScaler(amp.InitScale(8), amp.GrowthInterval(5))
		},
		"own loss": func(c *train.Config) {
			c.Loss = func(x, y *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(x, y, nn.Sum) }
			c.Optimizer.SetLR(0.01)
		},
		"evaluated": func(c *train.Config) { c.Valid, c.EvalEvery = c.Train, 7 },
		"frozen": func(c *train.Config) {
			p := nn.Parameters(c.Model)[0]
			c.OnStep = func(st *train.State) error {
				p.SetRequiresGrad(st.Step < 10 || st.Step > 20)
				return nil
			}
		},
		"dropout changes": func(c *train.Config) {
			d := c.Model.(*nn.Sequential).Layers[5].(*nn.Dropout)
			c.OnStep = func(st *train.State) error {
				d.P = 0.1 * float64(st.Step/12)
				return nil
			}
		},
		"a parameter changes": func(c *train.Config) {
			p := nn.Parameters(c.Model)[1]
			c.OnStep = func(st *train.State) error {
				if st.Step == 17 {
					p.Detach().Zero()
				}
				return nil
			}
		},
	} {
		for kind, n := range map[string]int{"cpu": 2, "cuda": 3} {
			// Emulated GPUs are slow, so they run only some cases.
			if kind == "cuda" && name != "scaled" && (testing.Short() || name != "frozen" && name != "evaluated") {
				continue
			}
			t.Run(kind+" "+name, func(t *testing.T) {
				run := func(how train.Capturing) ([]float64, int) {
					var calls atomic.Int64
					c := deviceConfig(t, several(t, kind, n), dropping(), wide(t, 40, dtype.F32), 16)
					c.Capture, c.Steps = how, 36
					change(&c)
					got, losses := fitted(t, calling(c, &calls))
					seed, offset := c.Generator.State()
					return append(append(got, losses...), float64(seed), float64(offset)), int(calls.Load())
				}
				want, all := run(train.CaptureNever)
				got, calls := run(train.CaptureAlways)
				if !slices.Equal(want, got) {
					t.Errorf("a captured training differs by %g", farthest(got, want))
				}
				if name == "plain" && (all != 36*n || calls != 8*n) || calls >= all {
					t.Errorf("Forward was called %d times, and %d times without captures", calls, all)
				}
			})
		}
	}
}

// If one rank cannot capture its step, no rank does. The log says why, and the training is bitwise
// equal to one with eager steps.
func TestFitCapturesOnAllOrNone(t *testing.T) {
	run := func(how train.Capturing, rank int) ([]float64, string) {
		list := several(t, "cpu", 3)
		c := deviceConfig(t, list, dropping(), wide(t, 40, dtype.F32), 8)
		reads := func(m any, d device.Device) train.Computation {
			return train.Computation{Forward: func(x *tensor.Tensor) *tensor.Tensor {
				if d == list[rank] {
					x.Sum().Item()
				}
				return m.(nn.Module).Forward(x)
			}}
		}
		var log bytes.Buffer
		c.Forward, c.Replica, c.Capture, c.Log = reads(c.Model, list[0]).Forward, reads, how, &log
		got, _ := fitted(t, c)
		return got, log.String()
	}
	// By default the program's own code is not captured. In this training Replica is such code.
	if _, log := run(train.CaptureOwn, 0); strings.Count(log, "Replica is the program's own code") != 1 {
		t.Error(log)
	}
	for rank := range 3 {
		want, _ := run(train.CaptureNever, rank)
		got, log := run(train.CaptureAlways, rank)
		if !slices.Equal(want, got) {
			t.Errorf("rank %d: a training without captures differs by %g", rank, farthest(got, want))
		}
		if why := fmt.Sprintf("rank %d", rank); strings.Count(log, "steps run eagerly") != 1 || !strings.Contains(log, why) || !strings.Contains(log, "item") {
			t.Errorf("the log does not say once that %s reads memory:\n%s", why, log)
		}
	}
}

// Steps of several batches run eagerly on several devices, and the log says so.
func TestFitAccumulatesTogether(t *testing.T) {
	c := deviceConfig(t, several(t, "cpu", 2), perceptron(dtype.F32), wide(t, 40, dtype.F32), 8)
	var log bytes.Buffer
	c.Accumulate, c.Log = 2, &log
	fitted(t, c)
	if strings.Count(log.String(), "steps run eagerly: a step accumulates gradients of several batches on several devices") != 1 {
		t.Error(log.String())
	}
}

// Memory runs out during a capture, or for a batch of another size after captures. The ranks then
// free the captured steps, and the training is bitwise equal to one with eager steps.
func TestFitSparesMemoryTogether(t *testing.T) {
	run := func(how train.Capturing, mib int) ([]float64, string) {
		list := several(t, "cpu", 2)
		limit := list[0].(interface{ SetMemoryLimit(bytes int) })
		limit.SetMemoryLimit(0)
		defer limit.SetMemoryLimit(0)
		m := nn.NewSequential(nn.Flatten{}, nn.NewLinear(36, 256), nn.ReLU{}, nn.NewLinear(256, 256), nn.ReLU{}, nn.NewLinear(256, 4))
		c := deviceConfig(t, list, m, wide(t, 2048*3+1500, dtype.F32), 2048)
		var log bytes.Buffer
		c.Capture, c.Steps, c.Log, c.Train = how, 10, &log, loader(t, wide(t, 2048*3+1500, dtype.F32), data.Config{Batch: 2048})
		list[0].Empty()
		limit.SetMemoryLimit(mib << 20)
		got, _ := fitted(t, c)
		return got, log.String()
	}
	want, _ := run(train.CaptureNever, 200)
	none, freed := 0, 0
	for _, mib := range []int{5, 8} {
		got, log := run(train.CaptureOwn, mib)
		if !slices.Equal(want, got) {
			t.Errorf("%d MiB: a captured training differs by %g; the log says\n%s", mib, farthest(got, want), log)
		}
		none += strings.Count(log, "nothing was captured")
		freed += strings.Count(log, "captured steps keep theirs")
	}
	if none == 0 || freed == 0 {
		t.Errorf("memory was short in %d captures and beside %d captured steps", none, freed)
	}
}
