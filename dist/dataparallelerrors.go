package dist

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A ReplicaError is an error of the library in one of the replicas of a [Parallel].
type ReplicaError struct {
	Device   string // of the replica
	Backward bool   // it happened in Backward, not in the call
	Err      error  // a *[tensor.Error], as a rule
}

func (e *ReplicaError) Error() string {
	if e.Backward {
		return fmt.Sprintf("dist: Backward of the replica on %s: %v", e.Device, e.Err)
	}
	return fmt.Sprintf("dist: the replica on %s: %v", e.Device, e.Err)
}

// Unwrap returns the error of the replica.
func (e *ReplicaError) Unwrap() error { return e.Err }

// Raised makes the error one that tensor.Try returns: see device.Raised.
func (e *ReplicaError) Raised() {}

// A ReplicaPanic is what the goroutine that called a [Parallel] panics with when the program itself
// panics in a replica, on a goroutine that is gone by then. tensor.Try lets it pass.
type ReplicaPanic struct {
	Device string // of the replica
	Value  any    // what it panicked with
	Stack  []byte // where, as debug.Stack prints it
}

func (p *ReplicaPanic) Error() string {
	return fmt.Sprintf("dist: the replica on %s panicked: %v\n\n%s", p.Device, p.Value, p.Stack)
}

// Unwrap returns the value if it is an error.
func (p *ReplicaPanic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// onEach calls f for each device at the same time, for the first one on the goroutine of the
// caller, and returns when all are done. What one panics with, the first of them, goes on from
// here. If f ended its goroutine (runtime.Goexit), so does this one.
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
			// the goroutine has no frame of the program
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
