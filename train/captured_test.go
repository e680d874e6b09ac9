package train_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// countingForward returns c with a Forward that counts its calls.
func countingForward(c train.Config, calls *int) train.Config {
	m := c.Model.(nn.Module)
	c.Forward = func(x *tensor.Tensor) *tensor.Tensor {
		*calls++
		return m.Forward(x)
	}
	return c
}

// TestFitCaptures: captured steps have the bits of eager steps. That holds for batches of two
// shapes, random numbers, schedules, clipping, mixed precision, a scaler, and for parameters that a
// callback freezes. Forward runs only in eager steps and in captures.
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
					fit(t, c)
					return weights(t, c), calls
				}
				want, all := run(train.CaptureNever)
				got, calls := run(train.CaptureAlways)
				if want != got {
					t.Error("the bits of a captured training are others")
				}
				// 36 steps; each of the two shapes runs three times, and is captured once
				once := kind != "frozen" && kind != "dropout changes"
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

// TestFitSaysWhyNot: the log says once why steps are not captured. Steps whose code is this
// library's own are captured without a word.
func TestFitSaysWhyNot(t *testing.T) {
	cpu, _ := device.Open("cpu")
	for want, change := range map[string]func(c *train.Config){
		"": func(*train.Config) {},
		// all layers of the model are captured, but not this function
		"Forward is the program's own code": func(c *train.Config) { *c = countingForward(*c, new(int)) },
		"Loss is the program's own code": func(c *train.Config) {
			c.Loss = func(y, target *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(y, target) }
		},
		"a hook of the model is": func(c *train.Config) {
			c.Model.(*nn.Sequential).RegisterForwardHook(func(_, y *tensor.Tensor) *tensor.Tensor { return y })
		},
		"the model (train_test.outer) is": func(c *train.Config) { c.Model = &outer{Inner: c.Model.(*nn.Sequential)} },
		"accumulates":                     func(c *train.Config) { c.Accumulate = 2 },
		"Compute": func(c *train.Config) {
			m := c.Model.(nn.Module)
			c.Compute = func(s *tensor.Scope, b *data.Batch) (y, target, loss *tensor.Tensor) {
				y = m.Forward(b.X)
				return y, b.Y, nn.CrossEntropy(y, b.Y)
			}
		},
		// the error of the capture names the op
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

// outer is a layer of a program's own.
type outer struct {
	nn.Base
	Inner *nn.Sequential
}

func (m *outer) Forward(x *tensor.Tensor) *tensor.Tensor { return m.Inner.Forward(x) }
