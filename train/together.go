package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Computation has the functions that run a model on a batch: Forward and Loss, or Compute. The
// fields of [Config] with these names describe them.
type Computation struct {
	// Forward maps the inputs to the output. Nil means the model's own Forward.
	Forward func(x *tensor.Tensor) *tensor.Tensor
	Loss    func(output, target *tensor.Tensor) *tensor.Tensor
	Compute func(s *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor)
}

// checkDevices opens Devices, and returns an error for settings that do not work with several
// devices. closures is true if the configuration has Forward or Compute.
func (c *Config) checkDevices(closures bool) error {
	list, err := c.Devices.List()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	bad := func(field, format string, a ...any) error { return &Error{field, fmt.Sprintf(format, a...)} }
	if c.Device != nil && c.Device != list[0] {
		return bad("Devices", "Device is %s, and the first of Devices is %s; give one of the two", c.Device.Name(), list[0].Name())
	}
	c.Device = list[0]
	if len(list) == 1 {
		return nil
	}
	known := map[*tensor.Tensor]bool{}
	for _, p := range nn.Named(c.Model) {
		known[p.Tensor] = true
		if d := p.Tensor.Device(); d != list[0] {
			return bad("Devices", "%s is on %s; the model has to be on %s, the first of them (nn.To)", p.Name, d.Name(), list[0].Name())
		}
	}
	for i, p := range c.Optimizer.Params() {
		if p == nil || !known[p] {
			return bad("Optimizer", "its parameter %d is not Model's; on several devices all that learns is part of Model, of which each has a copy", i)
		}
	}
	if closures && c.Replica == nil {
		return bad("Replica", "Forward or Compute is given, and on %s it would use the model of %s; Replica gives one for the copy there", list[1].Name(), list[0].Name())
	}
	c.devices = list
	return nil
}

// replicas copies the model to all devices except the first, and returns a configuration for each
// copy.
func (t *trainer) replicas() (all []Config, err error) {
	for r, dev := range t.c.devices[1:] {
		c, err := t.replica(t.c.Model, dev, func(x *tensor.Tensor) *tensor.Tensor { return x.Detach().To(dev) })
		var misfit *nn.Error
		var setting *Error
		switch {
		case errors.As(err, &misfit):
			return all, &Error{"Model", fmt.Sprintf("it cannot be copied to %s: %v", dev.Name(), misfit)}
		case errors.As(err, &setting):
			return append(all, c), err
		case err != nil:
			return all, &dist.RankError{Rank: r + 1, World: len(t.c.devices), Device: dev.Name(), Err: err}
		}
		all = append(all, c)
	}
	return all, nil
}

// replica returns a configuration with a copy of the model for device dev. copyOf returns the copy
// of a parameter or buffer.
func (t *trainer) replica(model any, dev device.Device, copyOf func(x *tensor.Tensor) *tensor.Tensor) (c Config, err error) {
	c = t.c
	c.Device, c.Generator = dev, tensor.NewGenerator(0)
	if err := tensor.Try(func() { c.Model = copyTo(model, copyOf) }); err != nil {
		return c, err
	}
	var own Computation
	if t.c.Replica != nil {
		own = t.c.Replica(c.Model, dev)
	}
	if own.Loss != nil {
		c.Loss, c.plain = own.Loss, false
	}
	c.Forward, c.Compute = own.Forward, own.Compute
	switch m, ok := c.Model.(nn.Module); {
	case c.Forward != nil || c.Compute != nil:
	case !ok:
		return c, &Error{"Replica", fmt.Sprintf("it gives neither Forward nor Compute, and a %T has no method Forward(x)", c.Model)}
	default:
		c.Forward = m.Forward
	}
	return c, nil
}

// copyTo returns a copy of a model. copyOf returns the copy of a parameter or buffer. In the copy
// these tensors are leaves, which require a gradient if the originals do.
func copyTo(model any, copyOf func(x *tensor.Tensor) *tensor.Tensor) any {
	with := map[string]*tensor.Tensor{}
	for _, p := range nn.Named(model) {
		y := copyOf(p.Tensor)
		if trained := p.Tensor.NeedsGrad(); trained || p.Tensor.IsFrozen() {
			y.SetRequiresGrad(trained)
		}
		with[p.Name] = y
	}
	return nn.Replace(model, with)
}

// runTogether does the same as run on several devices. Rank 0 runs the loop, and the other ranks do
// the jobs that it sends.
func (t *trainer) runTogether(ctx context.Context) (r *Result, failed error) {
	copies, err := t.replicas()
	defer func() {
		for _, c := range copies {
			for _, p := range nn.Named(c.Model) {
				p.Tensor.Free()
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	jobs := make([]chan *job, len(t.c.devices))
	for i := range jobs {
		jobs[i] = make(chan *job)
	}
	done := make(chan outcome, len(jobs))
	// The trainer checks ctx between steps itself, so dist.Run must not end when ctx is cancelled.
	err = dist.Run(context.WithoutCancel(ctx), dist.On(t.c.devices...), func(runCtx context.Context, g *dist.Group) error {
		if g.Rank() > 0 {
			return serve(runCtx, g, copies[g.Rank()-1], jobs[g.Rank()], done)
		}
		defer func() {
			for _, c := range jobs {
				close(c)
			}
		}()
		if err := tensor.Try(func() { r, failed = t.lead(ctx, runCtx, g, jobs, done) }); err != nil {
			failed = err
		}
		return nil
	})
	if err != nil && (failed == nil || errors.Is(failed, dist.ErrAborted)) {
		failed = err
		if r == nil {
			r = t.newResult(Failed)
		}
	}
	return r, failed
}

// lead runs the loop as rank 0.
func (t *trainer) lead(ctx, runCtx context.Context, g *dist.Group, jobs []chan *job, done chan outcome) (*Result, error) {
	m := newMember(g, &t.c, t.adapt)
	m.update = func(s *tensor.Scope) { t.wholeUpdate(s, 1) }
	defer func() { t.broken = errors.Join(t.broken, m.close()) }()
	t.adapt.team = newTeam(t, m, runCtx, jobs, done)
	t.c.team = t.adapt.team
	defer func() { t.adapt.team, t.adapt.loss, t.c.team = nil, nil, nil }()
	var names []string
	for _, d := range t.c.devices {
		names = append(names, d.Name())
	}
	t.print(fmt.Sprintf("training on %d devices (%s): %s", len(names), g.Backend(), strings.Join(names, ", ")))
	return t.run(ctx)
}

// serve does the jobs from rank 0 until the channel jobs is closed.
func serve(ctx context.Context, g *dist.Group, c Config, jobs <-chan *job, done chan<- outcome) (failed error) {
	a, err := NewAdapt(AdaptConfig{Model: c.Model, Device: c.Device, Generator: c.Generator, Options: c.modes(), Keep: true})
	if err != nil {
		return err
	}
	m := newMember(g, &c, a)
	defer func() { failed = errors.Join(failed, m.close()) }()
	for {
		select {
		case j, more := <-jobs:
			if !more {
				return nil
			}
			out := func() outcome {
				defer j.readers.Done()
				return m.work(j)
			}()
			done <- out
		case <-ctx.Done():
			return nil
		}
	}
}

func flagsOf(layers []trained) []bool {
	flags := make([]bool, len(layers))
	for i, l := range layers {
		flags[i] = l.Training()
	}
	return flags
}

// A trained is a layer that has a training flag.
type trained interface{ Training() bool }

// layersWithFlags lists the layers of a model that have a training flag. Inner layers precede outer
// layers.
func layersWithFlags(model any) (list []trained) {
	nn.Apply(model, func(l any) {
		if l, ok := l.(trained); ok {
			list = append(list, l)
		}
	})
	return list
}

func setFlags(layers []trained, flags []bool) {
	for i, l := range slices.Backward(layers) { // inner layers come first
		if flags[i] {
			nn.Train(l)
		} else {
			nn.Eval(l)
		}
	}
}
