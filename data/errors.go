package data

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A ConfigError is an invalid setting of a loader, sampler or dataset.
type ConfigError struct{ Field, Msg string }

func (e *ConfigError) Error() string { return "data: " + e.Field + ": " + e.Msg }

// A SampleError says which sample failed to load, and why.
type SampleError struct {
	Index int // index of the sample in the dataset; -1 if the whole batch failed
	Err   error
}

func (e *SampleError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("data: batch: %v", e.Err)
	}
	if odd, ok := e.Err.(*oddError); ok {
		return fmt.Sprintf("data: sample %d: %sin its batch it %s", e.Index, odd.key, odd.msg)
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

// Unwrap returns the value of the panic if it is an error, such as the error of a tensor op.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Must returns v, or panics with err if err is not nil. Use it in examples, in tests, and with
// arguments that are known to be valid.
//
//	loader := data.Must(data.NewLoader(set, data.Config{Batch: 32}))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A StateError says why a loader cannot continue from a state.
type StateError struct {
	Key string // key of the wrong entry in the state; "" if the whole state is wrong
	Msg string
}

func (e *StateError) Error() string {
	if e.Key == "" {
		return "data: state: " + e.Msg
	}
	return "data: state: " + e.Key + ": " + e.Msg
}

// errExit is the error of a user's function that ended its goroutine by runtime.Goexit.
var errExit = errors.New("the function ended its goroutine (runtime.Goexit) instead of returning")

// guard runs f and returns its error. It turns a panic in f into a *PanicError.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}
