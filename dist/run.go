package dist

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Option changes the behaviour of [Run].
type Option func(*settings)

type settings struct {
	timeout, grace time.Duration
	seed           uint64
	composed       bool
}

// Timeout sets how long a rank waits in a collective for the other ranks. The default is ten
// minutes, as in PyTorch with NCCL.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// Grace sets how long Run waits for the other ranks after one rank has failed. The next collective
// of each of these ranks panics, so that its function ends. Run does not wait longer for a rank
// that does not return in time: its goroutine goes on, and the error contains its stack. The
// default is thirty seconds.
func Grace(d time.Duration) Option { return func(s *settings) { s.grace = d } }

// Seed sets the seed of the run. Each rank's generator gets its own seed from it, so each rank
// draws different numbers.
func Seed(n uint64) Option { return func(s *settings) { s.seed = n } }

// InProcess makes collectives of GPUs use copies between devices and kernels of this library, even
// if NCCL is found.
func InProcess() Option { return func(s *settings) { s.composed = true } }

// world is the state of one Run.
type world struct {
	settings
	parent  context.Context
	ctx     context.Context
	cancel  context.CancelCauseFunc
	devices []device.Device
	label   string // pprof label of the run's goroutines
	failed  chan struct{}

	mu     sync.Mutex
	err    error // first failure
	ended  bool  // whether Run has returned
	cores  []*core
	back   []bool // whether each rank's function has returned
	graphs []*sharedGraph

	capturing []atomic.Pointer[capture] // for each rank, the capture in which it is recording
}

var runs atomic.Uint64

// Run calls f for each device, each time on a new goroutine. It returns when all calls have
// returned. The result is nil, or the first failure as a *[RankError]. f gets its rank's Group, and
// a context that ends when one of the ranks fails. The run ends if f returns an error or panics, or
// if a rank does not call a collective in time. The other ranks' collectives then panic with an
// *[Error] of the kind [ErrAborted]. The end of ctx ends the run too, and Run then returns the
// cause of ctx.
//
// Ranks on the CPU get equal shares of its worker goroutines.
func Run(ctx context.Context, devices DeviceList, f func(ctx context.Context, g *Group) error, opts ...Option) error {
	if devices.err != nil {
		return devices.err
	}
	if f == nil || len(devices.devices) == 0 {
		return &Error{Op: "run", Msg: "there is no function, or no device"}
	}
	w := &world{parent: ctx, settings: settings{timeout: 10 * time.Minute, grace: 30 * time.Second}, devices: devices.devices,
		label: fmt.Sprint(runs.Add(1)), failed: make(chan struct{}), back: make([]bool, len(devices.devices)),
		capturing: make([]atomic.Pointer[capture], len(devices.devices))}
	for i, o := range opts {
		if o == nil {
			return &Error{Op: "run", Msg: fmt.Sprintf("option %d is nil", i)}
		}
		o(&w.settings)
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	defer w.cancel(nil)
	shareWorkers(w.devices)
	members := make([]int, len(w.devices))
	for r := range members {
		members[r] = r
	}
	c, err := w.newCore(members)
	if err != nil {
		return err
	}
	defer w.close()
	returned := make(chan struct{}, len(members))
	for r := range members {
		g := &Group{core: c, rank: r, gen: tensor.NewGenerator(mixed(mixed(w.seed) + uint64(r)))}
		go pprof.Do(w.ctx, pprof.Labels(rankLabel, w.labelOf(r)), func(ctx context.Context) {
			defer func() { returned <- struct{}{} }()
			w.rank(ctx, g, f)
		})
	}
	stop := context.AfterFunc(ctx, func() { w.fail(-1, context.Cause(ctx)) })
	defer stop()
	var late <-chan time.Time
	ended := w.failed
	for left := len(members); left > 0; {
		select {
		case <-returned:
			left--
		case <-ended:
			ended = nil
			late = time.After(w.grace)
		case <-late:
			return w.failureWithStacks()
		}
	}
	if err := w.closeGraphs(); err != nil {
		w.fail(-1, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// rank runs one rank on the current goroutine: it calls f and handles f's result.
func (w *world) rank(ctx context.Context, g *Group, f func(ctx context.Context, g *Group) error) {
	err := errors.New("the goroutine ended by runtime.Goexit")
	defer func() {
		if r := recover(); r != nil {
			raised, ok := r.(device.Raised)
			if err = raised; !ok {
				err = &PanicError{r, debug.Stack()}
			}
		}
		for _, r := range slices.Clone(g.reducers) {
			r.Close()
		}
		w.mu.Lock()
		w.back[g.rank] = true
		cores := w.cores
		w.mu.Unlock()
		if err != nil {
			w.fail(g.rank, err)
			return
		}
		for _, c := range cores {
			c.missing(g.rank)
		}
	}()
	err = f(ctx, g)
}

// fail ends the run because of the failure of a rank. The rank is -1 if no single rank failed.
// Later calls have no effect.
func (w *world) fail(rank int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.ended {
		return
	}
	var step *StepError
	// the failure is that of step.Rank, which has not reported it yet; this rank passes it on
	if errors.As(err, &step) {
		rank, err = step.Rank, step.Err
	}
	// If a rank only reports that the program's context has ended, no rank has failed.
	cause := context.Cause(w.parent)
	if cause != nil && (errors.Is(err, w.parent.Err()) || errors.Is(err, cause)) {
		rank, err = -1, cause
	}
	if w.err = err; rank >= 0 {
		w.err = &RankError{rank, len(w.devices), w.devices[rank].Name(), err}
	}
	close(w.failed)
	w.cancel(w.err)
	for _, c := range w.cores {
		if c.comm != nil {
			go c.comm.Abort()
		}
	}
}

// aborted returns the error with which the collectives of the other ranks panic after a failure.
func (w *world) aborted() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		return fmt.Errorf("%w: all ranks have returned", ErrAborted)
	}
	return fmt.Errorf("%w: %w", ErrAborted, w.err)
}

// failureWithStacks returns the failure of the run, with the stacks of ranks that have not
// returned.
func (w *world) failureWithStacks() error {
	w.mu.Lock()
	err := w.err
	var ranks []int
	for r, back := range w.back {
		if !back {
			ranks = append(ranks, r)
		}
	}
	w.mu.Unlock()
	return fmt.Errorf("%w\n%v did not return within %v after that:\n%s", err, ranksOf(ranks), w.grace, w.stacks(ranks))
}

// returned returns the first of the given ranks whose function has returned, or -1.
func (w *world) returned(ranks []int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range ranks {
		if w.back[r] {
			return r
		}
	}
	return -1
}

// close releases the resources of all groups of the run.
func (w *world) close() {
	w.mu.Lock()
	cores := w.cores
	if w.ended = true; w.err == nil {
		close(w.failed) // a group that is used after the run must return an error
	}
	w.mu.Unlock()
	_ = w.closeGraphs() // a graph is still open only if some rank did not return
	for _, c := range cores {
		c.close()
	}
}

// shareWorkers divides the CPU's workers equally among the ranks on the CPU.
func shareWorkers(devices []device.Device) {
	n := 0
	for _, d := range devices {
		if _, ok := d.(device.WorkerSharer); ok {
			n++
		}
	}
	// the device may still have a smaller share from an earlier run
	if n == 1 && devices[0].Name() != "cpu" {
		devices[0].(device.WorkerSharer).SetWorkers(0)
	}
	if n < 2 {
		return
	}
	k, all := 0, workers()
	for _, d := range devices {
		if s, ok := d.(device.WorkerSharer); ok {
			share := all / n
			if k < all%n {
				share++
			}
			s.SetWorkers(max(share, 1))
			k++
		}
	}
}
