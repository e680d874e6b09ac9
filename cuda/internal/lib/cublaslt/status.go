package cublaslt

import (
	"fmt"
	"strings"
)

// Status is cublasStatus_t.
type Status int32

// The statuses of calls. Success is never returned as an error.
const (
	Success            Status = 0
	ErrNotInitialized  Status = 1
	ErrAllocFailed     Status = 3
	ErrInvalidValue    Status = 7
	ErrArchMismatch    Status = 8
	ErrMapping         Status = 11
	ErrExecutionFailed Status = 13
	ErrInternal        Status = 14
	ErrNotSupported    Status = 15
	ErrLicense         Status = 16
)

var statusTexts = map[Status]string{Success: "success", ErrNotInitialized: "the library is not initialised",
	ErrAllocFailed: "no memory for the library itself", ErrInvalidValue: "an invalid argument",
	ErrArchMismatch: "the device lacks what is asked for", ErrMapping: "memory cannot be accessed",
	ErrExecutionFailed: "the work failed on the device", ErrInternal: "an internal error",
	ErrNotSupported: "the library does not support this", ErrLicense: "the library's licence is refused"}

// Error returns the status in words.
func (s Status) Error() string {
	text, ok := statusTexts[s]
	if !ok {
		text = "a status without a name here"
	}
	return fmt.Sprintf("%s (cuBLAS status %d)", text, int32(s))
}

// An Error is a failed call of the library.
type Error struct {
	Call   string // name of the function, such as "cublasLtMatmul"
	Status Status
	Detail string // description of the operands; may be empty
}

// Error returns a text such as "cublasLtMatmul: an invalid argument (cuBLAS status 7): …".
func (e *Error) Error() string {
	s := e.Call + ": " + e.Status.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns the status.
func (e *Error) Unwrap() error { return e.Status }

// Unavailable says why the library cannot be called on this machine.
type Unavailable struct {
	// Tried lists each name and path with the loader's error. It is nil if a library was loaded.
	Tried   []string
	Path    string   // path of the loaded library; "" if there is none
	Version Version  // version of the loaded library; 0 if it is unknown
	Missing []string // functions that the loaded library lacks
}

// Error returns a line that says what was found.
func (u *Unavailable) Error() string {
	switch {
	case u.Path == "":
		return "cublasLt was not found: tried " + strings.Join(u.Tried, "; ")
	case u.Missing != nil:
		return fmt.Sprintf("%s lacks %s", u.Path, strings.Join(u.Missing, ", "))
	}
	return fmt.Sprintf("%s is cublasLt %v, %v or newer is needed", u.Path, u.Version, Minimum)
}
