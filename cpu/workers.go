package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// task is work on a range of units. The ranges of one parallel call are disjoint and may run at the
// same time.
type task interface{ run(lo, hi int) }

// each is a task that calls a function for each unit.
type each func(i int)

func (f each) run(lo, hi int) {
	for i := lo; i < hi; i++ {
		f(i)
	}
}

// crew is the set of workers that share the units of a parallel call with the goroutine that makes
// it. The first call that needs workers starts them; later calls start no goroutine. The caller
// always takes part, and waits only for units that a worker has begun. So nested and concurrent
// calls cannot deadlock: at worst a caller does all of its units itself.
//
// The size may change while work runs. The next call starts missing workers. Surplus workers end
// between two jobs; a nil in the queue wakes one that waits there.
type crew struct {
	wanted atomic.Int64 // size including the caller, at least 1
	hired  atomic.Int64 // running workers without the caller; changed under mu
	mu     sync.Mutex
	queue  chan *job
	jobs   sync.Pool
}

// job is one parallel call.
type job struct {
	t      task
	n      int
	grain  int
	next   atomic.Int64 // the first range that no goroutine has taken
	left   atomic.Int64 // ranges not finished
	refs   atomic.Int32 // number of references: the caller and the entries in the queue
	done   chan struct{}
	raised atomic.Pointer[raised]
}

type raised struct{ value any }

func newCrew(size int) *crew {
	c := &crew{queue: make(chan *job, 4*max(size, runtime.NumCPU()))}
	c.wanted.Store(int64(max(size, 1)))
	c.jobs.New = func() any { return &job{done: make(chan struct{}, 1)} }
	return c
}

// size returns how many goroutines share a call, including the caller.
func (c *crew) size() int { return int(c.wanted.Load()) }

// resize changes the size, also while work runs.
func (c *crew) resize(size int) {
	c.wanted.Store(int64(max(size, 1)))
	c.nudge()
}

// crowded reports whether there are more workers than the size allows.
func (c *crew) crowded() bool { return c.hired.Load() >= c.wanted.Load() }

// nudge wakes a waiting worker, which ends if there are too many. If the queue is full, no worker
// waits there; each checks the size after its job.
func (c *crew) nudge() {
	if c.crowded() {
		select {
		case c.queue <- nil:
		default:
		}
	}
}

// parallel runs t on the units 0 … n-1 in ranges of grain units, and returns when all are done. It
// repeats a panic of a worker. If n is at most grain, the caller runs all units.
func (c *crew) parallel(n, grain int, t task) {
	if n <= 0 {
		return
	}
	ranges := (n + grain - 1) / grain
	size := c.size()
	if ranges == 1 || size == 1 {
		t.run(0, n)
		return
	}
	if int(c.hired.Load()) < size-1 {
		c.hire()
	}
	j := c.jobs.Get().(*job)
	j.t, j.n, j.grain = t, n, grain
	j.next.Store(0)
	j.left.Store(int64(ranges))
	j.raised.Store(nil)
	j.refs.Store(1)
	for range min(ranges, size) - 1 {
		j.refs.Add(1)
		select {
		case c.queue <- j:
		default: // all workers are busy
			j.refs.Add(-1)
		}
	}
	j.work()
	<-j.done
	// the caller may change the task's data now; a worker that comes too late does not read it
	j.t = nil
	r := j.raised.Load()
	c.release(j)
	if r != nil {
		panic(r.value)
	}
}

func (c *crew) release(j *job) {
	if j.refs.Add(-1) == 0 {
		c.jobs.Put(j)
	}
}

// dismiss ends the workers as soon as they are idle, for crews that tests create.
func (c *crew) dismiss() { c.resize(1) }

// hire starts the missing workers.
func (c *crew) hire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.hired.Load() < c.wanted.Load()-1 {
		c.hired.Add(1)
		go c.serve()
	}
}

// serve is a worker's loop. It ends when the crew has too many workers.
func (c *crew) serve() {
	for {
		if c.crowded() && c.leave() {
			c.nudge() // there may be another surplus worker
			return
		}
		if j := <-c.queue; j != nil {
			j.work()
			c.release(j)
		}
	}
}

// leave removes a worker from the count. It returns false if the worker is needed after all.
func (c *crew) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.crowded() {
		return false
	}
	c.hired.Add(-1)
	return true
}

// work runs ranges until none is left.
func (j *job) work() {
	for {
		lo := int(j.next.Add(1)-1) * j.grain
		if lo >= j.n {
			return
		}
		j.runOne(lo, min(lo+j.grain, j.n))
	}
}

func (j *job) runOne(lo, hi int) {
	defer func() {
		if v := recover(); v != nil {
			j.raised.CompareAndSwap(nil, &raised{v})
		}
		if j.left.Add(-1) == 0 {
			j.done <- struct{}{}
		}
	}()
	if j.raised.Load() == nil {
		j.t.run(lo, hi)
	}
}
