package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A task is work on a range of units; ranges of one parallel call are disjoint and may run at once.
type task interface{ run(lo, hi int) }

// each is a task of a function of one unit.
type each func(i int)

func (f each) run(lo, hi int) {
	for i := lo; i < hi; i++ {
		f(i)
	}
}

// A crew is the set of workers that share the units of a parallel call with the goroutine that
// makes it. They are started by the first call that wants them; later ones make no goroutine. The
// caller always takes part and waits only for units that a worker has begun, so nested and
// concurrent calls cannot deadlock: at worst a caller does all of its units itself.
//
// The size may change while work runs. Who is missing is hired by the next call. Who is too many
// leaves between two jobs; a nil in the queue wakes one who waits there.
type crew struct {
	wanted atomic.Int64 // the caller included, at least 1
	hired  atomic.Int64 // the caller not included; changed under mu
	mu     sync.Mutex
	queue  chan *job
	jobs   sync.Pool
}

// job is one parallel call.
type job struct {
	t      task
	n      int
	grain  int
	next   atomic.Int64 // the first range that nobody has taken
	left   atomic.Int64 // ranges not finished
	refs   atomic.Int32 // the caller and the entries in the queue
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

// size is how many goroutines share a call, the caller included.
func (c *crew) size() int { return int(c.wanted.Load()) }

// resize changes the size, also while work runs.
func (c *crew) resize(size int) {
	c.wanted.Store(int64(max(size, 1)))
	c.nudge()
}

// crowded reports whether there are more workers than the size leaves room for.
func (c *crew) crowded() bool { return c.hired.Load() >= c.wanted.Load() }

// nudge wakes a worker that may be one too many. If the queue is full none waits there: each looks
// when its job is done.
func (c *crew) nudge() {
	if c.crowded() {
		select {
		case c.queue <- nil:
		default:
		}
	}
}

// parallel runs t over the units 0 … n-1 in ranges of grain, and returns when all are done. What a
// worker panics with is raised again here. At most grain units run inline.
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
		default: // all are busy
			j.refs.Add(-1)
		}
	}
	j.work()
	<-j.done
	j.t = nil // what it refers to is the caller's again; who comes too late does not look at it
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

// dismiss ends the workers, each as soon as it has nothing to do; for crews that tests make.
func (c *crew) dismiss() { c.resize(1) }

// hire starts the workers that are missing.
func (c *crew) hire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.hired.Load() < c.wanted.Load()-1 {
		c.hired.Add(1)
		go c.serve()
	}
}

// serve is what a worker does until the crew has no room for it.
func (c *crew) serve() {
	for {
		if c.crowded() && c.leave() {
			c.nudge() // another may be too many
			return
		}
		if j := <-c.queue; j != nil {
			j.work()
			c.release(j)
		}
	}
}

// leave takes a worker off the list, false if there is room for it after all.
func (c *crew) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.crowded() {
		return false
	}
	c.hired.Add(-1)
	return true
}

// work takes ranges until none is left.
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
