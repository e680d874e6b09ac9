package train

import (
	"fmt"

	"github.com/flambeau-go/flambeau/optim"
)

// clip limits the gradients.
func (t *trainer) clip() {
	if t.c.ClipNorm > 0 {
		optim.ClipGradNorm(t.c.Optimizer.Params(), t.c.ClipNorm).Free()
	}
	if t.c.ClipValue > 0 {
		optim.ClipGradValue(t.c.Optimizer.Params(), t.c.ClipValue)
	}
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
