package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.Connector = (*Device)(nil)

// CollectiveError says why NCCL did not run a collective of several GPUs. If it wraps
// errors.ErrUnsupported, nothing was queued and the communicator can still be used. After any other
// CollectiveError the communicator cannot be used any more.
type CollectiveError struct {
	Op     string // "all reduce", "connect"
	Rank   int    // rank that the error concerns; -1 if it concerns no single rank
	Device string // the rank's device
	Reason string
	// the error of the library or the system, errors.ErrUnsupported, or [ErrAborted]
	Err error
}

// Error returns a text such as "cuda: all reduce: rank 1 (cuda:1): NCCL has no type for int16".
func (e *CollectiveError) Error() string {
	s := "cuda: " + e.Op
	if e.Rank >= 0 {
		s += fmt.Sprintf(": rank %d (%s)", e.Rank, e.Device)
	}
	return s + ": " + e.Reason
}

// Unwrap returns the cause.
func (e *CollectiveError) Unwrap() error { return e.Err }

// ErrAborted is wrapped by the error of a collective whose communicator was aborted or closed.
var ErrAborted = errors.New("the communicator was ended")

// communicator runs collectives of GPUs by NCCL. NCCL allows only one call at a time on a
// communicator. The mutex named calls is therefore held during each call. A goroutine that waits
// for the library polls it with short pauses, so that Abort takes effect soon.
type communicator struct {
	lib   *nccl.Library
	devs  []*Device
	comms []nccl.Comm // handles of the ranks' communicators, written by NCCL

	// The mutex queue is held during a whole Collect, so that only one Collect runs at a time.
	// Between its calls of the library, Collect holds only this mutex.
	queue   sync.Mutex
	calls   sync.Mutex // held during a call of the library; guards the fields below it
	ended   error      // why the communicator cannot be used any more; nil if it can
	stop    sync.Once
	stopped chan struct{} // closed to make waits for the library give up
}

// Connect returns a communicator by NVIDIA's NCCL, with devices[r] as rank r. All devices belong
// to one driver; d may be missing from the list. Connect waits until the ranks have found each
// other, which takes about a second.
//
// The library adds in an order of its own, not in the order of the ranks. On one machine, equal
// calls return equal bits, but another machine may return different bits. Weights, and the factor
// 1/ranks of a mean, are rounded to the elements' type before the sum.
//
// A collective fails with errors.ErrUnsupported in three cases:
//   - NCCL lacks the type or the operation: for example, sums of int16 and bool.
//   - NCCL's result would differ: its maximum and minimum of floats drop NaN.
//   - The elements' type cannot hold a weight.
//
// Connect fails with errors.ErrUnsupported if two ranks share a GPU. Its error is a
// *[device.UnavailableError] if the library is missing or older than 2.18, and for emulated GPUs.
// In all other cases its error is a *[CollectiveError] or a *[device.OperandError].
func (d *Device) Connect(devices []device.Device) (device.Communicator, error) {
	const op = "connect"
	devs := make([]*Device, len(devices))
	at := map[*Device]int{}
	for r, dev := range devices {
		own, ok := dev.(*Device)
		if !ok || own == nil || own.p != d.p {
			return nil, d.refusal(op, fmt.Sprintf("device %d", r), "it is no GPU of this driver")
		}
		if first, twice := at[own]; twice {
			return nil, &CollectiveError{Op: op, Rank: r, Device: own.name, Reason: fmt.Sprintf("rank %d has the same GPU, and NCCL takes one for each", first), Err: errors.ErrUnsupported}
		}
		devs[r], at[own] = own, r
	}
	if len(devs) == 0 {
		return nil, d.refusal(op, "devices", "there are none")
	}
	if d.p.collectives == nil {
		return nil, &device.UnavailableError{Name: "nccl", Reason: "the GPUs are emulated, and NCCL works on hardware"}
	}
	lib, err := d.p.collectives()
	if err != nil {
		return nil, &device.UnavailableError{Name: "nccl", Reason: err.Error(), Err: err,
			Help: "install NCCL 2.18 or newer (libnccl2 of NVIDIA's repositories, or the Python package nvidia-nccl-cu13), or say in LD_LIBRARY_PATH where it is"}
	}
	c := &communicator{lib: lib, devs: devs, comms: make([]nccl.Comm, len(devs)), stopped: make(chan struct{})}
	if err := c.connect(op); err != nil {
		return nil, err
	}
	return c, nil
}

// openNCCL loads NCCL from the path that [Libraries] finds.
func openNCCL() (*nccl.Library, error) {
	for _, l := range Libraries() {
		if l.Name == "nccl" && l.Found {
			return nccl.Open(l.Path)
		}
	}
	return nccl.Open()
}

// connect makes the communicators of all ranks in one group. It then checks that NCCL numbered the
// ranks as requested.
func (c *communicator) connect(op string) error {
	id, err := c.lib.GetUniqueID()
	if err != nil {
		return &CollectiveError{Op: op, Rank: -1, Reason: err.Error(), Err: err}
	}
	err = c.group(op, func(r int) error { return c.lib.CommInitRank(&c.comms[r], len(c.devs), id, r) })
	if err != nil {
		return err
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	for r, h := range c.comms {
		world, err := c.lib.CommCount(h)
		rank, err2 := c.lib.CommUserRank(h)
		if err = errors.Join(err, err2); err == nil && (world != len(c.devs) || rank != r) {
			err = fmt.Errorf("the library calls it rank %d of %d", rank, world)
		}
		if err != nil {
			return c.end(c.failure(op, r, err))
		}
	}
	return nil
}

// failure wraps an error of the library or the system in a CollectiveError.
func (c *communicator) failure(op string, rank int, err error) error {
	return c.failureOf(op, rank, err.Error(), err)
}

// failureOf does the same as failure, with the given text as the reason.
func (c *communicator) failureOf(op string, rank int, reason string, err error) error {
	e := &CollectiveError{Op: op, Rank: rank, Reason: reason, Err: err}
	if rank >= 0 {
		e.Device = c.devs[rank].name
	}
	return e
}

// group makes the NCCL calls of all ranks as one NCCL group. During the call of a rank, the context
// of its device is current. The method returns when NCCL has queued all calls. If a call fails, the
// communicator is ended.
func (c *communicator) group(op string, call func(rank int) error) error {
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.ended != nil {
		return c.ended
	}
	runtime.LockOSThread() // NCCL keeps a group's state in the thread
	defer runtime.UnlockOSThread()
	err := c.lib.GroupStart()
	if err != nil {
		return c.end(c.failure(op, -1, err))
	}
	for r := range c.devs {
		if err = c.withContext(r, call); err != nil {
			err = c.failure(op, r, err)
			break
		}
	}
	// GroupEnd is called even after a failed call, so that the thread leaves the group.
	if e := c.lib.GroupEnd(); err == nil && e != nil {
		err = c.failure(op, -1, e)
	}
	if err == nil {
		err = c.settle(op)
	}
	if err != nil {
		return c.end(err)
	}
	return nil
}

// withContext calls a function while the context of the rank's device is current.
func (c *communicator) withContext(r int, call func(rank int) error) error {
	if err := c.devs[r].enter(); err != nil {
		return err
	}
	defer c.devs[r].leave()
	return call(r)
}

// NCCL finishes a call in the background, within about ten microseconds. The first call of
// connected ranks takes seconds. These constants say how often and how long settle polls.
const (
	quickLooks = 200
	firstPause = 20 * time.Microsecond
	longPause  = 2 * time.Millisecond
)

// settle waits until the library has finished its pending calls for all ranks. The caller holds
// c.calls.
func (c *communicator) settle(op string) error {
	var timer *time.Timer
	pause := firstPause
	for r, looks := 0, 0; r < len(c.comms); looks++ {
		state, err := c.lib.State(c.comms[r])
		switch {
		case err != nil:
			return c.failure(op, r, err)
		case state == nccl.Success:
			r++
			continue
		case state != nccl.InProgress:
			return c.failure(op, r, c.lib.Failure(c.comms[r], state))
		}
		select {
		case <-c.stopped:
			return c.failure(op, r, ErrAborted)
		default:
		}
		if looks < quickLooks {
			runtime.Gosched()
			continue
		}
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-c.stopped:
		case <-timer.C:
		}
		pause = min(2*pause, longPause)
	}
	return nil
}

// end marks the communicator as unusable for the reason err, and returns err. The library then
// stops its work that is queued on the GPUs. The caller holds c.calls.
func (c *communicator) end(err error) error {
	if c.ended != nil {
		return c.ended
	}
	c.ended = err
	_ = c.abort() // only the first error is reported
	return err
}

// abort aborts the NCCL communicators of all ranks. The caller holds c.calls.
func (c *communicator) abort() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var failed error
	for r, h := range c.comms {
		if h == 0 {
			continue // the communicator of this rank was never created
		}
		if err := c.lib.CommAbort(h); err != nil && failed == nil {
			failed = c.failure("abort", r, err)
		}
		c.comms[r] = 0
	}
	return failed
}

// Name returns "nccl".
func (c *communicator) Name() string { return "nccl" }

// Abort ends calls of Collect and Close that hang; they return an error that wraps [ErrAborted]. It
// also ends kernels of a collective that wait for each other on their GPUs.
func (c *communicator) Abort() error {
	c.stop.Do(func() { close(c.stopped) })
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.ended != nil {
		return nil
	}
	c.ended = c.failure("collective", -1, ErrAborted)
	return c.abort()
}

// Close waits for the queued work and destroys the communicator. After Abort or an error it does
// nothing.
func (c *communicator) Close() error {
	const op = "close"
	c.queue.Lock()
	defer c.queue.Unlock()
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.ended != nil {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for r, h := range c.comms {
		if err := c.withContext(r, func(int) error { return c.lib.CommFinalize(h) }); err != nil {
			return c.end(c.failure(op, r, err))
		}
	}
	if err := c.settle(op); err != nil {
		return c.end(err)
	}
	c.ended = c.failure("collective", -1, ErrAborted)
	var failed error
	for r, h := range c.comms {
		c.comms[r] = 0
		if err := c.withContext(r, func(int) error { return c.lib.CommDestroy(h) }); err != nil && failed == nil {
			failed = c.failure(op, r, err)
		}
	}
	return failed
}
