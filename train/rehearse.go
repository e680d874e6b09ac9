package train

import (
	"context"
	"fmt"
	"time"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Rehearsing selects on which devices [Fit] loads the kernels of a step before the first step.
// [Config].Rehearse describes it.
type Rehearsing uint8

// These are the values of Rehearsing.
const (
	// RehearseOnGPU loads kernels before the first step, on GPUs that are not emulated.
	RehearseOnGPU  Rehearsing = iota
	RehearseNever             // load each kernel when it is first launched
	RehearseAlways            // load kernels before the first step, on every GPU
)

// Rehearse loads the kernels of a step before the step is made. It loads several kernels at the
// same time, while the step itself would wait for the driver to compile one kernel after another.
// Rehearse calls step once, in a scope on a device without memory that uses the same kernels as dev
// ([device.Rehearser]). The scope has its own generator. The function step must make all tensors
// that it uses in this scope, including those of the model:
//
//	err := train.Rehearse(ctx, dev, func(s *tensor.Scope) {
//		m := models.NewGPT(config, nn.In(s))
//		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4})
//		x := s.Typed(dtype.I64).Zeros(batch, length)
//		m.Loss(x, x).Backward()
//		opt.Step()
//	}, nil)
//
// Rehearse calls progress, unless it is nil, with the number of kernels loaded so far and the
// total. For a device that compiles nothing, such as the CPU, Rehearse returns immediately. The
// error comes from the function step or from loading. After an error the real step still works, and
// loads its kernels when it launches them. A step that reads a value fails with a *[tensor.Error]
// that wraps [device.ErrNoValues]. [Fit] rehearses by itself.
func Rehearse(ctx context.Context, dev device.Device, step func(s *tensor.Scope), progress func(done, all int)) error {
	return rehearseIn(ctx, tensor.Root(), dev, step, progress)
}

// rehearseIn does the same as Rehearse. step runs in a child of the scope in.
func rehearseIn(ctx context.Context, in *tensor.Scope, dev device.Device, step func(s *tensor.Scope), progress func(done, all int)) error {
	r, ok := dev.(device.Rehearser)
	if !ok {
		return nil
	}
	stage, err := r.Rehearsal()
	if err != nil {
		return err
	}
	if err := tensor.Try(func() { in.Do(step, tensor.On(stage), tensor.Seed(0)) }); err != nil {
		return err
	}
	return r.Load(ctx, stage, progress)
}

// unrehearsed returns the reason why a step with a copy of the model would have side effects, or ""
// if it would have none.
func (t *trainer) unrehearsed() string {
	switch {
	case t.c.given && t.c.Replica == nil:
		return "Forward, Loss or Compute is given, and Replica does not say how to run a copy of the model"
	case nn.Hooked(t.c.Model):
		return "the model has hooks, which a rehearsal would call"
	case nn.Shares(t.c.Model) != "":
		return "a copy of the model would share the field " + nn.Shares(t.c.Model)
	case device.Tracing() != nil:
		return "a profiler is running, which would see a rehearsal"
	}
	return ""
}

// rehearse loads the kernels for batches of the shape of b, before the first step. If this fails,
// the training goes on, and Log says so.
func (t *trainer) rehearse(ctx context.Context, b *data.Batch, n int) {
	if t.rehearsed {
		return
	}
	t.rehearsed = true
	devices := t.c.devices
	if len(devices) == 0 {
		devices = []device.Device{t.c.Device}
	}
	for _, dev := range devices {
		if _, compiles := dev.(device.Rehearser); !compiles || t.c.Rehearse == RehearseNever || t.c.Rehearse == RehearseOnGPU && dev.Info().Emulated {
			continue
		}
		var err error
		why := t.unrehearsed()
		if why == "" {
			err = t.rehearseOn(ctx, dev, b, n, len(devices))
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			why = err.Error()
			fallthrough
		case why != "":
			t.print(fmt.Sprintf("kernels of %s are loaded as they come: %s", dev.Name(), why))
			return
		}
	}
}

// rehearseOn rehearses on one of the training's devices.
func (t *trainer) rehearseOn(ctx context.Context, dev device.Device, b *data.Batch, n, devices int) (err error) {
	defer func() {
		// The program's code has panicked. It will panic in the real step too, which then reports
		// the panic.
		if r := recover(); r != nil {
			err = fmt.Errorf("the rehearsal has failed: %v", r)
		}
	}()
	per := n
	if indivisible(b, n) == "" {
		per = ceil(n, devices)
		if most := t.adapt.plan.current(); most > 0 {
			per = min(per, most)
		}
	}
	began, all := time.Now(), 0
	bar := t.bar
	if bar != nil {
		bar = bar.part()
	}
	err = rehearseIn(ctx, scopeOf(b), dev, func(s *tensor.Scope) { t.stepOnCopy(s, b, per, n) }, func(done, total int) {
		if all = total; bar != nil {
			bar.Step(done, total, "kernels")
		}
	})
	if bar != nil {
		t.bar.width = max(t.bar.width, bar.width)
	}
	if took := time.Since(began); err == nil && all > 0 && took > time.Second {
		t.print(fmt.Sprintf("loaded %d kernels for %s in %.1f s", all, dev.Name(), took.Seconds()))
	}
	return err
}

// stepOnCopy makes a step with a copy of the model in scope s, which is on a device without memory.
// The step computes a part with partSize of the n samples of batch b.
func (t *trainer) stepOnCopy(s *tensor.Scope, b *data.Batch, partSize, n int) {
	copies := map[*tensor.Tensor]*tensor.Tensor{}
	c, err := t.replica(t.c.Model, s.Device(), func(x *tensor.Tensor) *tensor.Tensor {
		copies[x] = s.Typed(x.Type()).Empty(x.Shape().Slice()...)
		return copies[x]
	})
	if err != nil {
		panic(err)
	}
	c.Generator = s.Generator()
	passes := 1
	if partSize < n || c.Accumulate > 1 {
		passes = 2 // a second pass adds to the gradients of the first
	}
	// Autocast converts all parameters together, but only from the second pass on. The kernel for
	// this conversion is loaded only if there is a second pass.
	if c.Autocast != dtype.Invalid && passes == 1 {
		passes = 2
	}
	for pass := range passes {
		if pass > 0 && partSize == n && c.Accumulate <= 1 {
			for _, x := range copies {
				x.ZeroGrad()
			}
		}
		s.Do(func(s *tensor.Scope) {
			_, _, loss := c.computePart(s, part(s, b, 0, partSize, n), b, n)
			if loss == nil || loss.Size() != 1 {
				panic(tensor.NewError("train", tensor.ErrShape, "the loss has to be one number", loss))
			}
			if partSize < n {
				loss = loss.MulScalar(float64(partSize) / float64(n))
			}
			loss.Backward()
		}, c.modes()...)
	}
	var params []*tensor.Tensor
	for _, p := range t.c.Optimizer.Params() {
		if copies[p] == nil { // the parameter is not part of the model
			return
		}
		params = append(params, copies[p])
	}
	if c.ClipNorm > 0 {
		optim.ClipGradNorm(params, c.ClipNorm).Free()
	}
	if c.ClipValue > 0 {
		optim.ClipGradValue(params, c.ClipValue)
	}
	if opt := optim.Like(t.c.Optimizer, func(p *tensor.Tensor) *tensor.Tensor { return copies[p] }); opt != nil {
		opt.Step()
	}
}
