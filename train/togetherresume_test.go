package train_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// A training on four devices continues within an epoch on two devices, and then on one. Every
// sample is used once in each epoch, and the weights always equal those of one device.
func TestTogetherResumesWithOthers(t *testing.T) {
	want, _ := fitted(t, deviceConfig(t, several(t, "cpu", 1), perceptron(dtype.F64), wide(t, 33, dtype.F64), 10))
	dir := t.TempDir()
	var mu sync.Mutex
	var seen []int
	where := map[string]bool{}
	compute := func(m any, dev device.Device) func(*tensor.Scope, *data.Batch) (output, target, loss *tensor.Tensor) {
		return func(_ *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor) {
			if m.(*nn.Sequential).Training() {
				mu.Lock()
				seen = append(seen, b.Index...)
				where[dev.Name()] = true
				mu.Unlock()
			}
			return nil, nil, nn.CrossEntropy(m.(*nn.Sequential).Forward(b.X), b.Y)
		}
	}
	var c train.Config
	for i, part := range []struct{ devices, until int }{{4, 6}, {2, 13}, {1, 20}} {
		list := several(t, "cpu", part.devices)
		c = deviceConfig(t, list, perceptron(dtype.F64), wide(t, 33, dtype.F64), 10)
		c.Compute = compute(c.Model, list[0])
		c.Replica = func(m any, dev device.Device) train.Computation { return train.Computation{Compute: compute(m, dev)} }
		c.Checkpoints, c.Resume, c.Every = dir, i > 0, 2
		c.OnStep = func(s *train.State) error {
			if s.Step == part.until {
				return train.ErrStop
			}
			return nil
		}
		clear(where)
		r, err := train.Fit(t.Context(), c)
		if err != nil || r.Step != part.until || len(where) != part.devices || part.until < 20 && part.until%4 == 0 {
			t.Fatalf("%+v, %v, computed on %v", r, err, where)
		}
		if i > 0 && (len(r.Changed) != 1 || !strings.Contains(r.Changed[0], fmt.Sprintf("Devices was %d and is %d", part.devices*2, part.devices))) {
			t.Errorf("%q is told to be other", r.Changed)
		}
	}
	if d := farthest(numbers(c.Model), want); !(d <= 1e-9) {
		t.Errorf("weights are %g from those of one device", d)
	}
	// 20 steps are 5 epochs of 33 samples. Adapt also evaluates the first samples once, to
	// determine whether the loss is a mean. This is in evaluation mode, in which seen records no
	// samples.
	if len(seen) != 5*33 {
		t.Fatalf("%d samples were seen", len(seen))
	}
	for epoch := range 5 {
		list := slices.Clone(seen[epoch*33 : (epoch+1)*33])
		slices.Sort(list)
		for i, v := range list {
			if i != v {
				t.Fatalf("epoch %d: %v", epoch, list)
			}
		}
	}
}

// The result of a training that was interrupted and resumed on the same number of devices is
// bitwise equal to that of an uninterrupted training.
func TestTogetherResumesWithItsBits(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		begin := func(dir string, resume bool, until int) (train.Config, *train.Result, error) {
			m := nn.NewSequential(nn.Flatten{}, nn.NewLinear(36, 24), nn.NewBatchNorm1d(24), nn.NewDropout(0.3), nn.ReLU{}, nn.NewLinear(24, 4))
			c := deviceConfig(t, several(t, kind, 3), m, wide(t, 33, dtype.F32), 10)
			c.Checkpoints, c.Resume, c.Every, c.Accumulate, c.Steps = dir, resume, 3, 2, 12
			c.OnStep = func(s *train.State) error {
				if s.Step == until {
					return errBreak
				}
				return nil
			}
			r, err := train.Fit(t.Context(), c)
			return c, r, err
		}
		whole, _, err := begin(t.TempDir(), false, 0)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, r, err := begin(dir, false, 8); !errors.Is(err, errBreak) || r.Reason != train.Failed {
			t.Fatalf("%+v, %v", r, err)
		}
		c, r, err := begin(dir, true, 0)
		if err != nil || len(r.Changed) != 0 || !strings.Contains(r.Resumed, "step-") {
			t.Fatalf("%+v, %v", r, err)
		}
		if got, want := stateOf(c), stateOf(whole); got != want {
			t.Errorf("%s: other bits after a resume", kind)
		}
	}
}

// stateOf returns the bits of a model's tensors and of the generator's state, as a string.
func stateOf(c train.Config) string {
	var b strings.Builder
	for _, p := range nn.Named(c.Model) {
		fmt.Fprintf(&b, "%s %x\n", p.Name, p.Tensor.Detach().Bytes())
	}
	seed, offset := c.Generator.State()
	fmt.Fprintln(&b, seed, offset)
	return b.String()
}

// A cancelled context ends the training after a step, with a last checkpoint, whichever rank is
// busy. The weights after a resume equal those of an uninterrupted training.
func TestTogetherIsCancelled(t *testing.T) {
	want, _ := fitted(t, deviceConfig(t, several(t, "cpu", 2), perceptron(dtype.F64), wide(t, 33, dtype.F64), 10))
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("that is enough")
	c := deviceConfig(t, several(t, "cpu", 2), perceptron(dtype.F64), wide(t, 33, dtype.F64), 10)
	calls := 0
	c.Forward = c.Model.(*nn.Sequential).Forward
	c.Replica = func(m any, _ device.Device) train.Computation {
		return train.Computation{Forward: func(x *tensor.Tensor) *tensor.Tensor {
			if calls++; calls == 7 {
				cancel(why)
			}
			return m.(*nn.Sequential).Forward(x)
		}}
	}
	c.Checkpoints = dir
	r, err := train.Fit(ctx, c)
	if !errors.Is(err, why) || r.Reason != train.Interrupted || r.Step != 7 {
		t.Fatalf("%+v, %v", r, err)
	}
	if l, err := checkpoint.Load(dir); err != nil || l.Info.Step != 7 {
		t.Errorf("%+v, %v", l, err)
	}
	c = deviceConfig(t, several(t, "cpu", 2), perceptron(dtype.F64), wide(t, 33, dtype.F64), 10)
	c.Checkpoints, c.Resume = dir, true
	if got, _ := fitted(t, c); !slices.Equal(got, want) {
		t.Errorf("weights are %g from those of a training that was left alone", farthest(got, want))
	}
}
