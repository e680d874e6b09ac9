package dist

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// ReplicaError is an error of the library in one of the replicas of a [Parallel].
type ReplicaError struct {
	Device   string // device of the replica
	Backward bool   // the error happened in Backward, not in the call
	Err      error  // error of the replica, usually a *[tensor.Error]
}

func (e *ReplicaError) Error() string {
	if e.Backward {
		return fmt.Sprintf("dist: Backward of the replica on %s: %v", e.Device, e.Err)
	}
	return fmt.Sprintf("dist: the replica on %s: %v", e.Device, e.Err)
}

// Unwrap returns the error of the replica.
func (e *ReplicaError) Unwrap() error { return e.Err }

// Raised marks the error as one that tensor.Try returns when a function panics with it.
func (e *ReplicaError) Raised() {}

// ReplicaPanic reports a panic of the program in a replica. It is the argument of a panic on the
// goroutine that called the [Parallel]. tensor.Try does not catch it.
type ReplicaPanic struct {
	Device string // device of the replica
	Value  any    // argument of the panic in the replica
	Stack  []byte // stack of the panic, as debug.Stack prints it
}

func (p *ReplicaPanic) Error() string {
	return fmt.Sprintf("dist: the replica on %s panicked: %v\n\n%s", p.Device, p.Value, p.Stack)
}

// Unwrap returns the argument of the panic if it is an error.
func (p *ReplicaPanic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// onEach calls f for all devices at the same time, and returns when all calls have ended. The call
// for the first device is on the caller's goroutine. If calls of f panic, onEach repeats the panic
// of the first such device. If f calls runtime.Goexit, onEach ends the caller's goroutine too.
func onEach(devices []device.Device, backward bool, f func(i int)) {
	panics := make([]any, len(devices))
	exits := make([]bool, len(devices))
	guarded := func(i int) {
		done := false
		defer func() {
			if done {
				return
			}
			switch v := recover().(type) {
			case nil:
				exits[i] = true
			case device.Raised:
				panics[i] = &ReplicaError{devices[i].Name(), backward, v}
			default:
				panics[i] = &ReplicaPanic{devices[i].Name(), v, debug.Stack()}
			}
		}()
		f(i)
		done = true
	}
	var others sync.WaitGroup
	for i := 1; i < len(devices); i++ {
		others.Go(func() { guarded(i) })
	}
	func() {
		defer others.Wait()
		guarded(0)
	}()
	for i := range devices {
		switch p := panics[i].(type) {
		case *ReplicaError:
			// the replica's goroutine has no frame of the program, so use the line of the caller of
			// this function
			if e, ok := p.Err.(*tensor.Error); ok && e.Site == "" {
				e.Site = misuse(nil, "").Site
			}
			panic(p)
		case *ReplicaPanic:
			panic(p)
		}
		if exits[i] {
			runtime.Goexit()
		}
	}
}
