package device

import (
	"errors"
	"fmt"
)

// Raised is an error of a function that has no error result. The function panics with it, for
// example because of misuse or because a device cannot be opened. tensor.Try returns every error
// that has the method Raised, whatever package defines it. After any other panic, Try panics again
// with the same value. A program may define the method for its own error types.
type Raised interface {
	error
	Raised()
}

// ErrOutOfMemory is wrapped by every error that reports exhausted device memory.
var ErrOutOfMemory = errors.New("out of memory")

// UnavailableError says why a device cannot be opened and what the user can do.
type UnavailableError struct {
	Name   string // name of the requested device
	Reason string // what is missing, in one line
	Help   string // what the user can do
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

// Raised marks the error as one that tensor.Try returns when a function panics with it.
func (e *UnavailableError) Raised() {}

// IndexError says that a kernel found an index outside its axis.
type IndexError struct {
	// number that the caller passed to Gather, Scatter or CrossEntropy, to identify the op
	Tag          uint32
	Index, Bound int64
	Position     int64 // row-major position of the bad index in the tensor of indices
}

func (e *IndexError) Error() string {
	return fmt.Sprintf("index %d at position %d is out of range for an axis of size %d", e.Index, e.Position, e.Bound)
}

// Fault reports work that failed on the device. If Sticky is set, the process cannot use the device
// any more.
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

// Shortage holds the sizes that explain an error that wraps [ErrOutOfMemory]. All are in bytes.
// Unknown sizes are 0.
type Shortage struct {
	Device    string
	Asked     int // size of the allocation that failed
	For       string
	Total     int // memory of the device
	Free      int // part of Total that no program uses
	Limit     int // limit of this program's pool; 0 means no limit
	Reserved  int // memory that the pool has taken from the driver
	Allocated int // part of Reserved that is in use
	Owners    []string
}

// Available returns how many more bytes the program could have allocated if the free memory were
// one contiguous block.
func (s *Shortage) Available() int {
	n := s.Free + s.Reserved - s.Allocated
	if s.Limit > 0 {
		n = min(n, s.Limit-s.Allocated)
	}
	return max(n, 0)
}

// ShortageError is satisfied by errors that wrap [ErrOutOfMemory] and come from drivers that know
// the sizes in [Shortage]. Use errors.As to find it.
type ShortageError interface {
	error
	Shortage() Shortage
}
