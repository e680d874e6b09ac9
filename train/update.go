package train

import (
	"errors"
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// newAdapt makes the Adapt of the training. defaultLoss says whether the loss is the default.
func (t *trainer) newAdapt(defaultLoss bool) (*Adapt, error) {
	c := AdaptConfig{Model: t.c.Model, Params: t.c.Optimizer.Params(), Device: t.c.Device, Generator: t.c.Generator, Most: t.c.MicroBatch, Options: t.c.modes(),
		Log: func(line string) { t.print(line) }}
	if defaultLoss {
		c.Reduction = ReductionMean // computePart scales the losses of parts accordingly
	}
	if t.c.Scaler != nil {
		c.Scale = t.c.Scaler.Scale
	}
	a, err := NewAdapt(c)
	if err != nil {
		return nil, err
	}
	if t.c.Checkpointing {
		if nn.SetCheckpointing(t.c.Model, true) == 0 {
			return nil, &Error{"Checkpointing", fmt.Sprintf("no part of a %T knows how; see nn.SetCheckpointing and autograd.Checkpoint", t.c.Model)}
		}
		a.recomputes = true
	}
	a.spare = t.spare
	t.c.spare = t.spare
	return a, nil
}

// update changes the parameters by the accumulated gradients, unless a replay has already done so.
func (t *trainer) update() error {
	opt := t.c.Optimizer
	if t.tb != nil {
		t.tb.Scalar("lr", opt.LR(), t.st.Step+1)
	}
	if t.stepped {
		t.stepped = false
		return nil
	}
	t.average(tensor.Root(), float64(t.firstSamples)/float64(t.samples))
	if err := t.unscale(); err != nil {
		return err
	}
	if err := t.clip(); err != nil {
		return err
	}
	return t.change()
}

// average multiplies the gradients by a factor, in scope s, to turn their sum over a step's batches
// into an average.
func (t *trainer) average(s *tensor.Scope, factor float64) {
	if factor == 1 {
		return
	}
	s.Do(func(s *tensor.Scope) {
		for _, p := range t.c.Optimizer.Params() {
			if g := p.Grad(); g != nil {
				g.In(s).MulScalarInPlace(factor)
			}
		}
	}, tensor.NoGrad())
}

// unscale divides the gradients by the scale of the loss.
func (t *trainer) unscale() error {
	if t.c.Scaler == nil {
		return nil
	}
	return t.adapt.Do("the gradients' scale", func() { t.c.Scaler.Unscale(t.c.Optimizer) })
}

// change makes the step of the optimizer, and frees the gradients.
func (t *trainer) change() error {
	opt := t.c.Optimizer
	if t.c.Scaler == nil {
		if err := t.adapt.Do("the optimizer's step", opt.Step); err != nil {
			return err
		}
	} else {
		// Step records that it has unscaled the gradients, so that a repetition does not unscale
		// them again.
		if err := t.adapt.Do("the optimizer's step", func() { t.c.Scaler.Step(opt) }); err != nil {
			return err
		}
		if err := t.adapt.Do("the scale of losses", t.c.Scaler.Update); err != nil {
			return err
		}
	}
	opt.ZeroGrad()
	return nil
}

// profiled calls the profile's Step. If this fails, the profile is no longer used, and the training
// returns the error at the end.
func (t *trainer) profiled() {
	if t.c.Profile == nil {
		return
	}
	if err := t.c.Profile.Step(); err != nil {
		t.c.Profile = nil
		t.broken = errors.Join(t.broken, err)
		t.print(fmt.Sprintf("the profile ends here: %v", err))
	}
}

func (t *trainer) clip() error {
	for _, limit := range t.limits() {
		if err := t.adapt.Do("clipping the gradients", limit); err != nil {
			return err
		}
	}
	return nil
}

// limits returns functions that limit the gradients as ClipNorm and ClipValue say.
func (t *trainer) limits() (list []func()) {
	if t.c.ClipNorm > 0 {
		list = append(list, func() { optim.ClipGradNorm(t.c.Optimizer.Params(), t.c.ClipNorm).Free() })
	}
	if t.c.ClipValue > 0 {
		list = append(list, func() { optim.ClipGradValue(t.c.Optimizer.Params(), t.c.ClipValue) })
	}
	return list
}

// schedule steps the schedule if it is due. It returns an error if the schedule cannot continue,
// for example because its cycle is finished.
func (t *trainer) schedule(now When, v float64) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *optim.Error:
			err = &Error{"Schedule", fmt.Sprintf("after step %d: %v", t.st.Step, r)}
		default:
			panic(r)
		}
	}()
	if t.c.Schedule != nil && t.c.ScheduleOn == now {
		if s, ok := t.c.Schedule.(measuredStepper); ok {
			s.StepMetric(v)
		} else {
			t.c.Schedule.(stepper).Step()
		}
	}
	t.st.LR = t.c.Optimizer.LR()
	if t.c.Schedule != nil && t.c.ScheduleOn == now {
		for i, g := range t.c.Optimizer.Groups() {
			if !(g.LR >= 0) || math.IsInf(g.LR, 1) {
				return &Error{"Schedule", fmt.Sprintf("after step %d it has set a learning rate of %v in group %d", t.st.Step, g.LR, i)}
			}
		}
	}
	return nil
}
