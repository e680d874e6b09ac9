package nccl

import (
	"fmt"
	"strings"
)

// Result is ncclResult_t.
type Result int32

// The results of calls. Success is never returned as an error.
const (
	Success            Result = 0
	ErrUnhandledCUDA   Result = 1
	ErrSystem          Result = 2
	ErrInternal        Result = 3
	ErrInvalidArgument Result = 4
	ErrInvalidUsage    Result = 5
	ErrRemote          Result = 6
	InProgress         Result = 7
)

var resultTexts = [...]string{"success", "a call of CUDA failed", "a call of the system failed", "an internal error",
	"an invalid argument", "an invalid use of the library", "a remote process failed", "still in progress"}

// Error returns the result in words.
func (r Result) Error() string {
	if r < 0 || int(r) >= len(resultTexts) {
		return fmt.Sprintf("an error without a name here (NCCL error %d)", int32(r))
	}
	return fmt.Sprintf("%s (NCCL error %d)", resultTexts[r], int32(r))
}

// An Error is a failed call.
type Error struct {
	Call   string // name of the function, such as "ncclAllReduce"
	Result Result
	Text   string // the library's text for the result
	// text of the last error that the library remembers, perhaps from an earlier call; "" if it
	// remembers none
	Detail string
}

// Error returns a text such as "ncclAllReduce: unhandled cuda error (NCCL error 1): …".
func (e *Error) Error() string {
	s := e.Call + ": " + e.Result.Error()
	if e.Text != "" {
		s = fmt.Sprintf("%s: %s (NCCL error %d)", e.Call, e.Text, int32(e.Result))
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns the [Result].
func (e *Error) Unwrap() error { return e.Result }

// Unavailable says why the library cannot be called on this machine.
type Unavailable struct {
	// Tried lists each name and path with the loader's error, if no library could be loaded.
	Tried   []string
	Path    string   // path of the loaded library; "" if there is none
	Version Version  // version of the loaded library; 0 if it is unknown
	Missing []string // functions that the loaded library lacks
}

// Error returns a line that says what was found.
func (u *Unavailable) Error() string {
	switch {
	case u.Path == "":
		return "NCCL (" + libraryName + ") was not found: tried " + strings.Join(u.Tried, "; ")
	case u.Version != 0 && u.Version < Minimum:
		return fmt.Sprintf("%s is NCCL %v, %v or newer is needed", u.Path, u.Version, Minimum)
	}
	return fmt.Sprintf("%s lacks %s", u.Path, strings.Join(u.Missing, ", "))
}
