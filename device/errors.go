package device

import (
	"errors"
	"fmt"
)

// Raised is an error with which a function without an error result panics: for misuse, or for a
// device that cannot be opened. tensor.Try returns errors of this family, whichever package they
// come from, and repeats other panics. A program's own error type joins the family by implementing
// the method.
type Raised interface {
	error
	Raised()
}

// ErrOutOfMemory is wrapped by every error for exhausted device memory.
var ErrOutOfMemory = errors.New("out of memory")

// UnavailableError says why a device cannot be opened and what to do.
type UnavailableError struct {
	Name   string // the requested device
	Reason string // what is missing, in one line
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

// IndexError is an index outside its axis, found by a kernel.
type IndexError struct {
	Tag          uint32 // the number that the caller passed to Gather, Scatter or CrossEntropy
	Index, Bound int64
	Position     int64 // row-major position of the index in its tensor
}

func (e *IndexError) Error() string {
	return fmt.Sprintf("index %d at position %d is out of range for an axis of size %d", e.Index, e.Position, e.Bound)
}

// Fault is work that failed on the device. After a fault with Sticky set, the process cannot use
// the device any more.
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

// Shortage holds the numbers behind an error that wraps [ErrOutOfMemory]. All are bytes, 0 if
// unknown.
type Shortage struct {
	Device    string
	Asked     int // size of the allocation that failed
	For       string
	Total     int // memory of the device
	Free      int // part of Total that no program uses
	Limit     int // limit of this program's pool; 0: no limit
	Reserved  int // taken by the pool from the driver
	Allocated int // part of Reserved that is in use
	Owners    []string
}

// Available returns how many bytes the program could still have allocated, if they were in one
// piece.
func (s *Shortage) Available() int {
	n := s.Free + s.Reserved - s.Allocated
	if s.Limit > 0 {
		n = min(n, s.Limit-s.Allocated)
	}
	return max(n, 0)
}

// ShortageError is satisfied by drivers' errors that wrap [ErrOutOfMemory] and know the numbers.
// errors.As finds it.
type ShortageError interface {
	error
	Shortage() Shortage
}
