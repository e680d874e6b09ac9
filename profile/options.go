package profile

import (
	"errors"
	"fmt"
	"math"
)

// Options says what is recorded. The zero value records times of all devices from Start to Stop.
type Options struct {
	// CPU and CUDA are torch's activities: what the reports show the times of. Neither means both.
	CPU, CUDA bool
	Memory    bool // allocations and frees, by op: torch's profile_memory
	Shapes    bool // of operands: torch's record_shapes
	// of the Go code that called an op: torch's with_stack. A tenth of a microsecond an op,
	Stacks bool
	// and some the first time that a stack occurs
	FLOPs bool // a column of the table: torch's with_flops. They are counted in any case
	// Modules names layers, by the pointers that they tell in their spans: nn.ModuleNames of a
	// model. A layer that is not in it is called by its type and number, such as Linear_0.
	Modules map[any]string
	// Schedule says which steps are recorded; the zero value is all. A step ends with Profile.Step.
	Schedule Schedule
	// OnTraceReady is called at the end of each cycle of the schedule, in Step or Stop, with the
	// profile that then holds the cycle's events. An error ends the profile and comes out of that
	// call.
	OnTraceReady func(*Profile) error
	// MaxEvents bounds how many spans, kernels, copies, waits and allocations are kept in a cycle,
	// 0 is 1<<18: about 50 MB, and twice that while reports are made.
	MaxEvents int
}

const defaultEvents = 1 << 18

// Schedule is torch.profiler.schedule. After SkipFirst steps come cycles of Wait steps without
// recording, Warmup steps that are recorded and thrown away, and Active steps that are kept. There
// are Repeat cycles, or no end of them if it is 0.
type Schedule struct {
	Wait, Warmup, Active, Repeat, SkipFirst int
	// SkipFirstWait leaves the first cycle's Wait out.
	SkipFirstWait bool
}

// Action is what is done in a step: torch's ProfilerAction.
type Action uint8

// The actions.
const (
	None          Action = iota
	Warmup               // recorded and thrown away
	Record               // kept
	RecordAndSave        // kept, and the last of its cycle
)

// String returns the action as torch writes it.
func (a Action) String() string {
	names := [...]string{"NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"}
	if int(a) >= len(names) {
		return fmt.Sprintf("Action(%d)", uint8(a))
	}
	return names[a]
}

// Action returns what is done in a step; the first is 0. The zero Schedule always gives Record. One
// that [Start] refuses gives None.
func (s Schedule) Action(step int) Action {
	if s == (Schedule{}) {
		return Record
	}
	if step < s.SkipFirst || s.wrong() {
		return None
	}
	step -= s.SkipFirst
	if s.SkipFirstWait {
		step += s.Wait
	}
	n := s.Wait + s.Warmup + s.Active
	if s.Repeat > 0 && step/n >= s.Repeat {
		return None
	}
	switch at := step % n; {
	case at < s.Wait:
		return None
	case at < s.Wait+s.Warmup:
		return Warmup
	case at < n-1:
		return Record
	}
	return RecordAndSave
}

// An Error says what is wrong with a call of this package. Err, where it is set, is what errors.Is
// finds.
type Error struct {
	Op  string // "start", "table", …
	Msg string
	Err error
}

func (e *Error) Error() string { return "profile: " + e.Op + ": " + e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Causes of errors.
var (
	// ErrRunning: a profile runs already, or another tracer is set.
	ErrRunning = errors.New("a profile is running")
	// ErrStopped: the profile has been stopped.
	ErrStopped = errors.New("the profile has been stopped")
	// ErrKey: there is no such key to sort by.
	ErrKey = errors.New("unknown key")
)

// wrong reports whether there are no such schedules. Sums of the lengths stay within an int.
func (s Schedule) wrong() bool {
	for _, n := range []int{s.Wait, s.Warmup, s.Active, s.Repeat, s.SkipFirst} {
		if n < 0 || n > math.MaxInt/8 {
			return true
		}
	}
	return s.Active == 0
}

func (o *Options) check() error {
	s := o.Schedule
	bad := func(msg string, args ...any) error { return &Error{Op: "start", Msg: fmt.Sprintf(msg, args...)} }
	switch {
	case s != (Schedule{}) && s.wrong():
		return bad("schedule of Wait %d, Warmup %d, Active %d, Repeat %d, SkipFirst %d: Active must be positive, the others not negative, and none beyond any number of steps", s.Wait, s.Warmup, s.Active, s.Repeat, s.SkipFirst)
	case o.MaxEvents < 0:
		return bad("MaxEvents %d is negative", o.MaxEvents)
	}
	if o.MaxEvents == 0 {
		o.MaxEvents = defaultEvents
	}
	if !o.CPU && !o.CUDA {
		o.CPU, o.CUDA = true, true
	}
	return nil
}
