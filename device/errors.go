package device

import (
	"errors"
	"fmt"
)

// A Raised is an error that a function of the library without an error result panics with: misuse,
// or a device that is not there. tensor.Try returns errors of this family, whichever package they
// are of, and lets other panics go on. A program's own error type joins the family by the method.
type Raised interface {
	error
	Raised()
}

// ErrOutOfMemory is wrapped by every error that says that a device's memory is exhausted.
var ErrOutOfMemory = errors.New("out of memory")

// An UnavailableError says why a device cannot be opened and what to do.
type UnavailableError struct {
	Name   string // what was asked for
	Reason string // one line: what is missing
	Help   string // what to do
	Err    error
}

func (e *UnavailableError) Error() string {
	s := fmt.Sprintf("device %q is not available: %s", e.Name, e.Reason)
	if e.Help != "" {
		s += "; " + e.Help
	}
	return s
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// Raised makes the error one that tensor.Try returns: see [Raised].
func (e *UnavailableError) Raised() {}

// An IndexError is an index outside its axis, found by a kernel.
type IndexError struct {
	Tag          uint32 // what the caller passed to Gather, Scatter or CrossEntropy
	Index, Bound int64
	Position     int64 // of the index in its tensor, row-major
}

func (e *IndexError) Error() string {
	return fmt.Sprintf("index %d at position %d is out of range for an axis of size %d", e.Index, e.Position, e.Bound)
}

// A Fault is work that failed on the device. After a fault that is Sticky the device can do nothing
// more in this process.
type Fault struct {
	Device string
	Kernel string
	Sticky bool
	Err    error
}

func (e *Fault) Error() string {
	s := e.Device + ": "
	if e.Kernel != "" {
		s += "kernel " + e.Kernel + ": "
	}
	return s + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Fault) Unwrap() error { return e.Err }

// A Shortage is what an allocation failed for: the numbers behind an error that wraps
// [ErrOutOfMemory]. All are bytes, 0 where unknown.
type Shortage struct {
	Device    string
	Asked     int // by the allocation that failed
	For       string
	Total     int // memory of the device
	Free      int // of that, what nobody has, other programs included
	Limit     int // most that this program's pool may take; 0: no limit
	Reserved  int // what the pool has taken
	Allocated int // of that, in use
	Owners    []string
}

// Available is what the failed allocation's program could still have got, were it in one piece.
func (s *Shortage) Available() int {
	n := s.Free + s.Reserved - s.Allocated
	if s.Limit > 0 {
		n = min(n, s.Limit-s.Allocated)
	}
	return max(n, 0)
}

// A ShortageError is satisfied by errors of drivers that wrap [ErrOutOfMemory] and know the
// numbers; errors.As finds it.
type ShortageError interface {
	error
	Shortage() Shortage
}
