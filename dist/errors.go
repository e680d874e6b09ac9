package dist

import (
	"errors"
	"fmt"
	"strings"
)

// These are the kinds of errors, to be tested by errors.Is on an [Error].
var (
	ErrMismatch = errors.New("ranks do not agree")
	ErrTimeout  = errors.New("a rank does not come")
	ErrLeft     = errors.New("a rank has returned")
	// ErrAborted means that the run has ended, usually because another rank failed. Run then
	// returns the error of that rank.
	ErrAborted = errors.New("the run has ended")
	ErrMember  = errors.New("this rank is not in the group")
)

// Error is the error with which a collective panics. Misuse of this package panics with it too.
// tensor.Try returns it.
type Error struct {
	Op string // name of the operation: "all reduce"
	// description of the operands, if there is one: "gradients of fc1.weight … fc2.bias"
	Of     string
	Rank   int // the rank that called the operation
	World  int // number of ranks, 0 outside a run
	Device string
	Msg    string
	Site   string // file:line of the rank's call in the program
	Stacks string // stacks of the ranks that did not call the collective
	Err    error  // the kind of the error, or its cause
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("dist: ")
	b.WriteString(e.Op)
	if e.Of != "" {
		b.WriteString(" (" + e.Of + ")")
	}
	if e.World > 0 {
		fmt.Fprintf(&b, ": rank %d of %d, on %s", e.Rank, e.World, e.Device)
	}
	b.WriteString(": " + e.Msg)
	if e.Site != "" {
		b.WriteString("\n  at " + e.Site)
	}
	if e.Stacks != "" {
		b.WriteString("\n" + strings.TrimRight(e.Stacks, "\n"))
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Raised marks the error as one that tensor.Try returns when a function panics with it.
func (e *Error) Raised() {}

// RankError is the failure that ended a [Run]. If several ranks fail, it is the first failure that
// is not a consequence of another rank's failure.
type RankError struct {
	Rank, World int
	Device      string
	Err         error
}

func (e *RankError) Error() string {
	return fmt.Sprintf("rank %d of %d, on %s: %v", e.Rank, e.World, e.Device, e.Err)
}

// Unwrap returns the rank's error.
func (e *RankError) Unwrap() error { return e.Err }

// PanicError says that a rank's function has panicked with a value that is not an error of the
// library.
type PanicError struct {
	Value any
	Stack []byte // stack of the rank's goroutine
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack)
}

// Unwrap returns the argument of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
