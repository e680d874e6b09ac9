package data

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A ConfigError is a setting that a loader, sampler or dataset cannot have.
type ConfigError struct{ Field, Msg string }

func (e *ConfigError) Error() string { return "data: " + e.Field + ": " + e.Msg }

// A SampleError is a sample that could not be had.
type SampleError struct {
	Index int // in the dataset; -1 where it is the batch as a whole
	Err   error
}

func (e *SampleError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("data: batch: %v", e.Err)
	}
	return fmt.Sprintf("data: sample %d: %v", e.Index, e.Err)
}

// Unwrap returns the cause.
func (e *SampleError) Unwrap() error { return e.Err }

// A PanicError is a panic in a dataset, transform, sampler or collate function of the program.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error, as that of a tensor op is.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Must returns v and panics with err unless that is nil: for examples, tests, and what is known to
// be right.
//
//	loader := data.Must(data.NewLoader(set, data.Config{Batch: 32}))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A StateError is a state that a loader cannot go on from.
type StateError struct {
	Key string // in the state, "" for all of it
	Msg string
}

func (e *StateError) Error() string {
	if e.Key == "" {
		return "data: state: " + e.Msg
	}
	return "data: state: " + e.Key + ": " + e.Msg
}

// errExit is what a goroutine of the loader that a user's function ended leaves behind.
var errExit = errors.New("the function ended its goroutine (runtime.Goexit) instead of returning")

// guard runs f and returns a panic of it as a *PanicError.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}
