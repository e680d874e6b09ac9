package train

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
)

// newAdapt makes what gets over running out of memory. ours says that the loss is the one that is taken where none is given.
func (t *trainer) newAdapt(ours bool) (*Adapt, error) {
	c := AdaptConfig{Model: t.c.Model, Params: t.c.Optimizer.Params(), Device: t.c.Device, Generator: t.c.Generator, Most: t.c.MicroBatch, Options: t.c.modes(),
		Log: func(line string) { t.say(line) }}
	if ours {
		c.Reduction = ReductionMean
	}
	a, err := NewAdapt(c)
	if err != nil {
		return nil, err
	}
	if t.c.Checkpointing {
		if nn.SetCheckpointing(t.c.Model, true) == 0 {
			return nil, &Error{"Checkpointing", fmt.Sprintf("no part of a %T knows how; see nn.SetCheckpointing and autograd.Checkpoint", t.c.Model)}
		}
		a.anew = true
	}
	return a, nil
}

// clip limits the gradients.
func (t *trainer) clip() error {
	if t.c.ClipNorm > 0 {
		err := t.adapt.Do("clipping the gradients", func() { optim.ClipGradNorm(t.c.Optimizer.Params(), t.c.ClipNorm).Free() })
		if err != nil {
			return err
		}
	}
	if t.c.ClipValue > 0 {
		return t.adapt.Do("clipping the gradients", func() { optim.ClipGradValue(t.c.Optimizer.Params(), t.c.ClipValue) })
	}
	return nil
}

// schedule steps the schedule, if it is its time. One that cannot go on, as a cycle that is over, is an error.
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
	return nil
}
