package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
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
// The caller posts its job, where workers that spin find it within a fraction of a microsecond. It
// wakes sleeping workers only if too few spin, and if that pays ([crew.lead]).
//
// The size may change while work runs. The next call starts missing workers. Surplus workers end
// between two jobs; nudge wakes one that sleeps.
type crew struct {
	wanted atomic.Int64 // size including the caller, at least 1
	hired  atomic.Int64 // running workers without the caller; changed under mu
	mu     sync.Mutex
	jobs   sync.Pool

	posts    []atomic.Pointer[job] // the jobs that workers may join
	posted   atomic.Int64          // number of jobs in posts
	spinners atomic.Int64          // number of workers that look at posts all the time
	// number of workers that wait for wake, without those that rouse has chosen
	asleep atomic.Int64
	wake   chan time.Duration // the time when rouse chose a worker
	led    atomic.Int64       // when a caller last found workers asleep, in ns of clock
}

// job is one parallel call. Workers may join as long as it has references. A job that is used
// again keeps its memory, so a worker that comes too late joins the next call, or none.
type job struct {
	t      task
	n      int
	grain  int
	todo   atomic.Int64 // number of ranges that no goroutine has taken; below 0: none
	left   atomic.Int64 // number of ranges that are not finished
	refs   atomic.Int64 // number of goroutines that use the job
	phase  atomic.Int32 // begun, awaited or ended
	done   chan struct{}
	raised atomic.Pointer[raised]
}

// The phases of a job. The goroutine that finishes the last range sends to done only if the caller
// has set awaited.
const (
	begun int32 = iota
	awaited
	ended
)

type raised struct{ value any }

func newCrew(size int) *crew {
	c := &crew{posts: make([]atomic.Pointer[job], max(8, size, runtime.NumCPU())), wake: make(chan time.Duration, max(size, runtime.NumCPU()))}
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

// nudge wakes a sleeping worker if there are too many. All others check the size by themselves.
func (c *crew) nudge() {
	if c.crowded() {
		c.rouse(clock(), 1)
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
	j.todo.Store(int64(ranges))
	j.left.Store(int64(ranges))
	j.raised.Store(nil)
	j.phase.Store(begun)
	j.refs.Store(1)
	post := c.post(j)
	if missing := min(ranges, size) - 1 - int(c.spinners.Load()); post != nil && missing > 0 && c.asleep.Load() > 0 {
		c.lead(j, missing)
	} else {
		j.work()
	}
	if post != nil {
		post.Store(nil)
		c.posted.Add(-1)
	}
	j.await()
	// the caller may change the task's data now; a worker that comes too late does not read it
	j.t = nil
	r := j.raised.Load()
	c.release(j)
	if r != nil {
		panic(r.value)
	}
}

// post shows j to the workers, and returns where. If very many calls run at once, there may be no
// place. Then the result is nil, and the caller works alone.
func (c *crew) post(j *job) *atomic.Pointer[job] {
	for i := range c.posts {
		if p := &c.posts[i]; p.Load() == nil && p.CompareAndSwap(nil, j) {
			c.posted.Add(1)
			return p
		}
	}
	return nil
}

// find returns a posted job that has ranges left, with a reference for the caller; nil if there is
// none.
func (c *crew) find() *job {
	if c.posted.Load() == 0 {
		return nil
	}
	for i := range c.posts {
		if j := c.posts[i].Load(); j != nil && j.join() {
			return j
		}
	}
	return nil
}

// rouse wakes up to n sleeping workers.
func (c *crew) rouse(now time.Duration, n int) {
	for ; n > 0 && c.choose(); n-- {
		c.wake <- now
	}
}

// choose takes a worker out of the number of those asleep. It returns false if there is none.
func (c *crew) choose() bool {
	for n := c.asleep.Load(); n > 0; n = c.asleep.Load() {
		if c.asleep.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
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
	w := waiter{crew: c}
	for {
		if c.crowded() && c.leave() {
			c.nudge() // there may be another surplus worker
			return
		}
		if j := w.next(); j != nil {
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

// join adds a reference. It returns false if the job has no ranges left, or has ended.
func (j *job) join() bool {
	if j.todo.Load() <= 0 {
		return false
	}
	for n := j.refs.Load(); n > 0; n = j.refs.Load() {
		if j.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// work runs ranges until none is left.
func (j *job) work() {
	for j.one() {
	}
}

// one runs a range. It returns false if none is left.
func (j *job) one() bool {
	k := int(j.todo.Add(-1))
	if k < 0 {
		return false
	}
	lo := ((j.n-1)/j.grain - k) * j.grain
	j.runOne(lo, min(lo+j.grain, j.n))
	return true
}

func (j *job) runOne(lo, hi int) {
	defer func() {
		if v := recover(); v != nil {
			j.raised.CompareAndSwap(nil, &raised{v})
		}
		if j.left.Add(-1) == 0 && j.phase.Swap(ended) == awaited {
			j.done <- struct{}{}
		}
	}()
	if j.raised.Load() == nil {
		j.t.run(lo, hi)
	}
}
