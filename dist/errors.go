package dist

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of errors, for errors.Is on an [Error].
var (
	ErrMismatch = errors.New("ranks do not agree")
	ErrTimeout  = errors.New("a rank does not come")
	ErrLeft     = errors.New("a rank has returned")
	// by the failure of another rank; Run returns that one
	ErrAborted = errors.New("the run has ended")
	ErrMember  = errors.New("this rank is not in the group")
)

// An Error is what a collective panics with, and what is wrong with the use of this package.
// tensor.Try returns it.
type Error struct {
	Op string // "all reduce"
	// what it was applied to, where that has a name: "gradients of fc1.weight … fc2.bias"
	Of     string
	Rank   int // of World, whose call it was
	World  int // 0 outside of a run
	Device string
	Msg    string
	Site   string // file:line of the rank's call, outside of the library
	Stacks string // of the ranks that did not come
	Err    error  // the kind, or the cause
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

// Unwrap returns the kind or the cause.
func (e *Error) Unwrap() error { return e.Err }

// Raised makes the error one that tensor.Try returns: see device.Raised.
func (e *Error) Raised() {}

// A RankError is the failure that ended a [Run]: the first rank's that failed by itself.
type RankError struct {
	Rank, World int
	Device      string
	Err         error
}

func (e *RankError) Error() string {
	return fmt.Sprintf("rank %d of %d, on %s: %v", e.Rank, e.World, e.Device, e.Err)
}

// Unwrap returns what went wrong in the rank.
func (e *RankError) Unwrap() error { return e.Err }

// A PanicError is a panic of a rank's function that is no error of the library.
type PanicError struct {
	Value any
	Stack []byte // of the rank's goroutine
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack)
}

// Unwrap returns the value where that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
