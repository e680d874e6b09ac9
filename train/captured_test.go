package train_test

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// countingForward returns c with a Forward that counts its calls in calls.
func countingForward(c train.Config, calls *int) train.Config {
	m := c.Model.(nn.Module)
	c.Forward = func(x *tensor.Tensor) *tensor.Tensor {
		*calls++
		return m.Forward(x)
	}
	return c
}

// Captured steps are bitwise equal to eager steps. The cases are batches of two shapes, random
// numbers, schedules, clipping, mixed precision, a scaler, and parameters that a callback freezes.
// Forward runs only in eager steps and in captures.
func TestFitCaptures(t *testing.T) {
	devices := map[string]func() device.Device{
		"cpu": func() device.Device { d, _ := device.Open("cpu"); return d },
		"gpu": func() device.Device {
			list, err := cuda.Emulate("emulate,mem=64MiB")
			if err != nil {
				t.Fatal(err)
			}
			return list[0]
		},
	}
	for name, open := range devices {
		for kind, change := range map[string]func(c *train.Config){
			"plain":   func(*train.Config) {},
			"clipped": func(c *train.Config) { c.ClipNorm, c.ClipValue = 0.5, 0.1 },
			"mixed":   func(c *train.Config) { c.Autocast = dtype.BF16 },
			"scaled": func(c *train.Config) {
				c.Scaler = amp.NewGradScaler(amp.InitScale(8), amp.GrowthInterval(5))
			},
			"accumulated":       func(c *train.Config) { c.Accumulate, c.ClipNorm = 2, 0.5 },
			"accumulated mixed": func(c *train.Config) { c.Accumulate, c.Autocast, c.ReadEvery = 4, dtype.BF16, 3 },
			"computed": func(c *train.Config) {
				forward := c.Forward
				c.Forward = nil
				c.Compute = func(_ *tensor.Scope, b *data.Batch) (y, target, loss *tensor.Tensor) {
					y = forward(b.X).DivScalar(float64(len(b.Index)))
					return y, b.Y, nn.CrossEntropy(y, b.Y)
				}
			},
			"frozen": func(c *train.Config) {
				p := nn.Parameters(c.Model)[0]
				c.OnStep = func(st *train.State) error {
					p.SetRequiresGrad(st.Step < 10 || st.Step > 20)
					return nil
				}
			},
			"dropout changes": func(c *train.Config) {
				m := c.Model.(*nn.Sequential)
				i := slices.IndexFunc(m.Layers, func(l nn.Module) bool { _, ok := l.(*nn.Dropout); return ok })
				c.OnStep = func(st *train.State) error {
					m.Layers[i].(*nn.Dropout).P = 0.1 * float64(st.Step/10)
					return nil
				}
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				run := func(how train.Capturing) (bits string, calls int) {
					c := countingForward(setup(t, open()), &calls)
					c.Valid, c.Capture = nil, how
					change(&c)
					losses := ""
					c.OnLoss = func(step int, loss float64) { losses += fmt.Sprintln(step, loss) }
					fit(t, c)
					return weights(t, c) + losses, calls
				}
				want, all := run(train.CaptureNever)
				got, calls := run(train.CaptureAlways)
				if want != got {
					t.Error("the bits of a captured training are others")
				}
				// There are 36 steps. Each of the two shapes runs eagerly three times, and is
				// captured once.
				once := kind != "frozen" && kind != "dropout changes" && !strings.HasPrefix(kind, "accumulated")
				if once && (all != 36 || calls != 8) {
					t.Errorf("Forward was called %d times, and %d times without captures", calls, all)
				}
				if !once && calls >= all {
					t.Errorf("Forward was called %d times of %d", calls, all)
				}
			})
		}
	}
}

// Steps are captured again after a callback has changed the model or the optimizer. The results are
// bitwise equal to those of eager steps.
func TestFitCapturesAnew(t *testing.T) {
	cpu, _ := device.Open("cpu")
	for name, change := range map[string]func(c *train.Config) (then func() error){
		"a buffer": func(c *train.Config) func() error {
			n := c.Model.(*nn.Sequential).Layers[1].(*nn.BatchNorm1d)
			return func() error { n.RunningMean = tensor.Root().Ones(8); return nil }
		},
		"a number of an embedded struct": func(c *train.Config) func() error {
			n := c.Model.(*nn.Sequential).Layers[1].(*nn.BatchNorm1d)
			return func() error { n.Momentum = 0.5; return nil }
		},
		"a group": func(c *train.Config) func() error {
			p := nn.Parameters(c.Model)
			opt := optim.NewSGD(p[:2], optim.SGDConfig{LR: 0.02})
			c.Optimizer = opt
			return func() error { opt.AddGroup(p[2:], optim.SGDConfig{LR: 0.02}); return nil }
		},
		"an option": func(c *train.Config) func() error {
			c.Optimizer = optim.NewSGD(nn.Parameters(c.Model), optim.SGDConfig{LR: 0.02})
			return func() error { return c.Optimizer.Groups()[0].SetOption("momentum", 0.9) }
		},
		"the state": func(c *train.Config) func() error {
			return func() error { return c.Optimizer.LoadStateDict(c.Optimizer.StateDict()) }
		},
		"a gradient": func(c *train.Config) func() error {
			p := nn.Parameters(c.Model)[0]
			return func() error { p.SetGrad(tensor.Root().Ones(p.Shape().Slice()...)); return nil }
		},
	} {
		run := func(how train.Capturing) string {
			c := setup(t, cpu)
			c.Valid, c.Capture = nil, how
			then := change(&c)
			c.Schedule = &halving{opt: c.Optimizer, interval: 10}
			c.OnStep = func(st *train.State) error {
				if st.Step != 15 {
					return nil
				}
				return then()
			}
			fit(t, c)
			return weights(t, c)
		}
		if run(train.CaptureNever) != run(train.CaptureOwn) {
			t.Errorf("%s: the bits of a captured training are others", name)
		}
	}
}

// Steps of Adafactor are captured too, although its programs have no scalars.
func TestFitCapturesAdafactor(t *testing.T) {
	cpu, _ := device.Open("cpu")
	run := func(how train.Capturing) string {
		c := setup(t, cpu)
		c.Capture = how
		c.Optimizer = optim.NewAdafactor(nn.Parameters(c.Model), optim.AdafactorConfig{LR: 0.01})
		c.Schedule = &halving{opt: c.Optimizer, interval: 10}
		fit(t, c)
		return weights(t, c)
	}
	if run(train.CaptureNever) != run(train.CaptureOwn) {
		t.Error("the bits of a captured training are others")
	}
}

// Steps of 16 shapes are captured once each. Batches of further shapes run eagerly.
func TestFitCapturesSomeShapes(t *testing.T) {
	cpu, _ := device.Open("cpu")
	calls := 0
	c := countingForward(setup(t, cpu), &calls)
	c.Valid, c.Capture, c.Epochs = nil, train.CaptureAlways, 6
	c.Train = widening{20}
	fit(t, c)
	if want := 20*3 + 16 + 4*3; calls != want {
		t.Errorf("Forward was called %d times, want %d", calls, want)
	}
}

// widening is a loader whose batches have 2, 3, … samples.
type widening struct{ n int }

func (g widening) Len() int { return g.n }

func (g widening) Batches() iter.Seq2[*data.Batch, error] {
	return func(yield func(*data.Batch, error) bool) {
		for i := range g.n {
			b := &data.Batch{X: tensor.Root().Ones(i+2, features), Y: tensor.Root().Typed(dtype.I64).Zeros(i + 2), Index: make([]int, i+2)}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Captured steps give up their memory if other steps need it. From then on all steps run eagerly,
// and no batch is split.
func TestFitSparesMemory(t *testing.T) {
	dev, err := device.Open("cpu:3")
	if err != nil {
		t.Fatal(err)
	}
	limit := dev.(interface{ SetMemoryLimit(bytes int) })
	defer limit.SetMemoryLimit(0)
	const n = 2048*3 + 1500
	run := func(how train.Capturing, mib int) (bits, log string) {
		limit.SetMemoryLimit(0)
		tensor.ManualSeed(11)
		ds, err := data.NewTensorDataset(tensor.Root().Randn(n, 64), tensor.Root().Typed(dtype.I64).Zeros(n))
		if err != nil {
			t.Fatal(err)
		}
		c := setup(t, dev)
		c.Model = nn.To(nn.NewSequential(nn.NewLinear(64, 256), nn.ReLU{}, nn.NewLinear(256, 256), nn.ReLU{}, nn.NewLinear(256, 4)), dev)
		c.Optimizer = optim.NewSGD(nn.Parameters(c.Model), optim.SGDConfig{LR: 0.01})
		c.Schedule = &halving{opt: c.Optimizer, interval: 10}
		if c.Train, err = data.NewLoader(ds, data.Config{Batch: 2048}); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		c.Valid, c.Epochs, c.Capture, c.Log = nil, 4, how, &b
		dev.Empty()
		limit.SetMemoryLimit(mib << 20)
		fit(t, c)
		return weights(t, c), b.String()
	}
	want, _ := run(train.CaptureNever, 100)
	short := 0
	for _, mib := range []int{14, 24} {
		got, log := run(train.CaptureOwn, mib)
		if want != got {
			t.Errorf("%d MiB: the bits of a captured training are others; the log says %q", mib, log)
		}
		if strings.Contains(log, "captured steps keep theirs") {
			short++
		}
	}
	if short == 0 {
		t.Error("memory was never short")
	}
}

// The log says once why steps are not captured. If steps are captured, it says nothing.
func TestFitSaysWhyNot(t *testing.T) {
	cpu, _ := device.Open("cpu")
	for want, change := range map[string]func(c *train.Config){
		"": func(*train.Config) {},
		// All layers could be captured, but not the function Forward.
		"Forward is the program's own code": func(c *train.Config) { *c = countingForward(*c, new(int)) },
		"Loss is the program's own code": func(c *train.Config) {
			c.Loss = func(y, target *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(y, target) }
		},
		"a hook of the model is": func(c *train.Config) {
			c.Model.(*nn.Sequential).RegisterForwardHook(func(_, y *tensor.Tensor) *tensor.Tensor { return y })
		},
		"the model (train_test.outer) is": func(c *train.Config) { c.Model = &outer{Inner: c.Model.(*nn.Sequential)} },
		"(nn.Lambda) is the program's own code": func(c *train.Config) {
			c.Model.(*nn.Sequential).Layers[2] = nn.NewLambda(func(x *tensor.Tensor) *tensor.Tensor { return x.Relu() })
		},
		"the optimizer (*train_test.slower) is": func(c *train.Config) { c.Optimizer = &slower{Optimizer: c.Optimizer} },
		"Compute is the program's own code": func(c *train.Config) {
			m := c.Model.(nn.Module)
			c.Compute = func(s *tensor.Scope, b *data.Batch) (y, target, loss *tensor.Tensor) {
				y = m.Forward(b.X)
				return y, b.Y, nn.CrossEntropy(y, b.Y)
			}
		},
		// The error of the capture names the op "item".
		"item": func(c *train.Config) {
			m := c.Model.(nn.Module)
			c.Capture = train.CaptureAlways
			c.Forward = func(x *tensor.Tensor) *tensor.Tensor {
				y := m.Forward(x)
				y.Detach().Sum().Item()
				return y
			}
		},
	} {
		c := setup(t, cpu)
		plain := weights(t, c)
		c.Epochs = 2
		change(&c)
		var log bytes.Buffer
		c.Log = &log
		fit(t, c)
		lines := slices.DeleteFunc(strings.Split(log.String(), "\n"), func(l string) bool { return !strings.Contains(l, "steps run eagerly") })
		if want == "" && len(lines) != 0 || want != "" && (len(lines) != 1 || !strings.Contains(lines[0], want)) {
			t.Errorf("%q: the log says %q", want, lines)
		}
		if weights(t, c) == plain {
			t.Errorf("%q: nothing was trained", want)
		}
	}
}

// A Compute may read more of a batch than X and Y. If such a batch comes, also after captures,
// steps run eagerly, and the log says why.
func TestFitCapturesNoNested(t *testing.T) {
	cpu, _ := device.Open("cpu")
	for _, accumulate := range []int{1, 2} {
		run := func(how train.Capturing) (bits, log string) {
			c := setup(t, cpu)
			training, _ := problem(t)
			made := 0
			loader, err := data.NewLoader(training, data.Config{Batch: 8, Collate: func(s []data.Sample) (*data.Batch, error) {
				b, err := data.Collate(s)
				if made++; err == nil && made > 14 {
					b.Nested.X = map[string]any{"weight": b.X.Abs().Sum()}
				}
				return b, err
			}})
			if err != nil {
				t.Fatal(err)
			}
			m := c.Model.(nn.Module)
			c.Train, c.Valid, c.Capture, c.Accumulate = loader, nil, how, accumulate
			c.Compute = func(_ *tensor.Scope, b *data.Batch) (y, target, loss *tensor.Tensor) {
				y = m.Forward(b.X)
				loss = nn.CrossEntropy(y, b.Y)
				if w, ok := b.Nested.X.(map[string]any); ok {
					loss = loss.Mul(w["weight"].(*tensor.Tensor))
				}
				return y, b.Y, loss
			}
			var b bytes.Buffer
			c.Log = &b
			fit(t, c)
			return weights(t, c), b.String()
		}
		want, _ := run(train.CaptureNever)
		got, log := run(train.CaptureAlways)
		if got != want {
			t.Errorf("Accumulate %d: the bits are others", accumulate)
		}
		if strings.Count(log, "steps run eagerly") != 1 || !strings.Contains(log, "a batch has values besides X and Y") {
			t.Errorf("Accumulate %d: the log says %q", accumulate, log)
		}
	}
}

// slower is a program's own optimizer. It makes only every second step.
type slower struct {
	optim.Optimizer
	calls int
}

func (o *slower) Step() {
	if o.calls++; o.calls%2 == 0 {
		o.Optimizer.Step()
	}
}

// outer is a program's own layer.
type outer struct {
	nn.Base
	Inner *nn.Sequential
}

func (m *outer) Forward(x *tensor.Tensor) *tensor.Tensor { return m.Inner.Forward(x) }
