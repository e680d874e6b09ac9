package profile

import (
	"errors"
	"fmt"
	"math"
)

// Options chooses what a profile records. The zero value records the times of all devices from
// Start to Stop.
type Options struct {
	// CPU and CUDA are torch's activities: the devices whose times the reports show. If neither is
	// set, the reports show both.
	CPU, CUDA bool
	Memory    bool // record allocations and frees by op: torch's profile_memory
	Shapes    bool // record the shapes of operands: torch's record_shapes
	// record the stack of each op: torch's with_stack; this takes 0.1 µs for each op, and some
	// microseconds for each new stack
	Stacks bool
	// show a column of FLOPs in tables: torch's with_flops; FLOPs are always counted
	FLOPs bool
	// Modules holds the names of layers, as nn.ModuleNames of a model returns them. Its keys are
	// pointers to layers. A layer without an entry is named by its type and a number, such as
	// Linear_0.
	Modules map[any]string
	// Schedule chooses which steps are recorded. The zero value records all steps. Profile.Step
	// ends a step.
	Schedule Schedule
	// Step or Stop calls OnTraceReady at the end of each cycle of the schedule. The profile then
	// holds the events of that cycle. If OnTraceReady returns an error, the profile ends, and Step
	// or Stop returns this error.
	OnTraceReady func(*Profile) error
	// MaxEvents limits the number of spans, kernels, copies, waits and allocations that are kept in
	// a cycle. 0 means 1<<18. That many events take about 50 MB, and twice as much while reports
	// are made.
	MaxEvents int
}

const defaultEvents = 1 << 18

// Schedule is torch.profiler.schedule. It skips SkipFirst steps. Then it repeats a cycle of Wait
// steps without recording, Warmup steps that are recorded and discarded, and Active steps that are
// kept. There are Repeat cycles, or infinitely many if Repeat is 0.
type Schedule struct {
	Wait, Warmup, Active, Repeat, SkipFirst int
	// SkipFirstWait skips the Wait steps of the first cycle.
	SkipFirstWait bool
}

// Action is what the profiler does in a step: torch's ProfilerAction.
type Action uint8

// These are the actions. Their method String returns torch's names.
const (
	None          Action = iota
	Warmup               // record events and discard them
	Record               // record events
	RecordAndSave        // record events, as the last step of a cycle
)

// String returns torch's name of the action.
func (a Action) String() string {
	names := [...]string{"NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"}
	if int(a) >= len(names) {
		return fmt.Sprintf("Action(%d)", uint8(a))
	}
	return names[a]
}

// Action returns the action for a step, counted from 0. The zero Schedule always returns Record. A
// Schedule that [Start] refuses returns None.
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

// An Error says what is wrong with a call of this package. Err, if not nil, is the cause, which
// errors.Is finds.
type Error struct {
	Op  string // the function or method: "start", "table", …
	Msg string
	Err error
}

func (e *Error) Error() string { return "profile: " + e.Op + ": " + e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// These are the causes of errors, to be tested by errors.Is.
var (
	// ErrRunning means that a profile is running already, or that another tracer is set.
	ErrRunning = errors.New("a profile is running")
	// ErrStopped means that the profile has been stopped.
	ErrStopped = errors.New("the profile has been stopped")
	// ErrKey means that rows cannot be sorted by the given key.
	ErrKey = errors.New("unknown key")
)

// wrong reports whether the schedule is invalid: a field is negative, or so large that a sum could
// overflow.
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
