package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// task is work that consists of numbered units; run does the units lo to hi-1. The ranges of one
// parallel call are disjoint, and may run at the same time.
type task interface{ run(lo, hi int) }

// each is a task that calls a function for each unit.
type each func(i int)

func (f each) run(lo, hi int) {
	for i := lo; i < hi; i++ {
		f(i)
	}
}

// workerPool is a set of worker goroutines. They share the units of a parallel call with the
// goroutine that makes the call. The first call that needs workers starts them. The caller always
// takes part, and waits only for units that a worker has begun. Nested and concurrent calls
// therefore cannot deadlock: in the worst case, a caller runs all of its units itself.
//
// The caller posts its job in a list, where spinning workers find it within a fraction of a
// microsecond. The caller wakes sleeping workers only if too few workers spin and the job is long
// enough (see [workerPool.workAndWake]).
//
// The size may change while work runs. The next call starts missing workers. A surplus worker ends
// when it has finished its job. If it sleeps, wakeSurplus wakes it.
type workerPool struct {
	wanted  atomic.Int64 // number of goroutines including the caller, at least 1
	running atomic.Int64 // number of workers, not counting the caller; changed only under mu
	mu      sync.Mutex
	jobs    sync.Pool

	posts    []atomic.Pointer[job] // jobs that workers may join
	posted   atomic.Int64          // number of jobs in posts
	spinners atomic.Int64          // number of workers that look at posts all the time
	// number of workers that wait on the channel wake and that wakeSome has not chosen yet
	asleep atomic.Int64
	// channel on which wakeSome sends the current time to the worker that it wakes
	wake  chan time.Duration
	waker waker
	// time of clock(), in ns, at the end of the last call that found workers asleep
	lastAlone atomic.Int64
}

// job is one call of parallel. Workers may join while its count of references is not zero. Jobs are
// reused: a worker that comes too late may join a later call.
type job struct {
	t          task
	n          int
	grain      int
	untaken    rangeEnds    // ranges that no goroutine has taken
	unfinished atomic.Int64 // number of ranges that are not finished
	refs       atomic.Int64 // number of goroutines that use the job
	phase      atomic.Int32 // one of the phases begun, awaited and ended
	done       chan struct{}
	panicked   atomic.Pointer[panicValue]
}

// These are the phases of a job. A caller changes the phase from begun to awaited before it waits
// on the channel done. The goroutine that finishes the last range sends to this channel only if the
// phase is awaited.
const (
	begun int32 = iota
	awaited
	ended
)

type panicValue struct{ value any }

// rangeEnds holds the numbers of the remaining ranges of a job. The lower half is the number of the
// first range. The upper half is one more than the number of the last range.
type rangeEnds struct{ atomic.Uint64 }

func (e *rangeEnds) set(n int) { e.Store(uint64(n) << 32) }

// left returns how many ranges there are.
func (e *rangeEnds) left() int {
	v := e.Load()
	return int(v>>32) - int(uint32(v))
}

// take removes the last range if last is true, and the first range otherwise. It returns false if
// there is no range.
func (e *rangeEnds) take(last bool) (k int, ok bool) {
	for {
		v := e.Load()
		first, end := uint32(v), uint32(v>>32)
		if first == end {
			return 0, false
		}
		k, next := int(first), v+1
		if last {
			k, next = int(end)-1, v-1<<32
		}
		if e.CompareAndSwap(v, next) {
			return k, true
		}
	}
}

func newWorkerPool(size int) *workerPool {
	c := &workerPool{posts: make([]atomic.Pointer[job], max(8, size, runtime.NumCPU())), wake: make(chan time.Duration, max(size, runtime.NumCPU()))}
	c.wanted.Store(int64(max(size, 1)))
	c.jobs.New = func() any { return &job{done: make(chan struct{}, 1)} }
	return c
}

// size returns how many goroutines work on a call, including the caller's goroutine.
func (c *workerPool) size() int { return int(c.wanted.Load()) }

// resize changes the number of goroutines that work on a call. Calls may run at the same time.
func (c *workerPool) resize(size int) {
	c.wanted.Store(int64(max(size, 1)))
	c.wakeSurplus()
}

// tooMany reports whether there are more workers than the size allows.
func (c *workerPool) tooMany() bool { return c.running.Load() >= c.wanted.Load() }

// wakeSurplus wakes a sleeping worker if there are too many workers, so that this worker ends.
// Workers that do not sleep check the number of workers by themselves.
func (c *workerPool) wakeSurplus() {
	if c.tooMany() {
		c.wakeSome(clock(), 1)
	}
}

// parallel runs t on the units 0 … n-1, in ranges of grain units. It returns when all units are
// done. If a worker panics, parallel panics with the same value. If n is at most grain, the caller
// runs all units.
func (c *workerPool) parallel(n, grain int, t task) {
	if n <= 0 {
		return
	}
	// the number of ranges must fit in 32 bits, so ranges may have to be longer
	grain = max(grain, n>>31)
	ranges := (n + grain - 1) / grain
	size := c.size()
	if ranges == 1 || size == 1 {
		t.run(0, n)
		return
	}
	if int(c.running.Load()) < size-1 {
		c.startMissing()
	}
	j := c.jobs.Get().(*job)
	j.t, j.n, j.grain = t, n, grain
	j.untaken.set(ranges)
	j.unfinished.Store(int64(ranges))
	j.panicked.Store(nil)
	j.phase.Store(begun)
	j.refs.Store(1)
	post := c.post(j)
	if missing := min(ranges, size) - 1 - int(c.spinners.Load()); post != nil && missing > 0 && c.asleep.Load() > 0 {
		c.workAndWake(j, missing)
	} else {
		j.work(false)
	}
	if post != nil {
		post.Store(nil)
		c.posted.Add(-1)
	}
	j.await()
	// The caller may change the task's data when parallel returns. A worker that comes too late
	// does not read the data.
	j.t = nil
	r := j.panicked.Load()
	c.release(j)
	if r != nil {
		panic(r.value)
	}
}

// post puts j into the list of jobs that workers may join. It returns the list's entry for j. It
// returns nil if there is no free entry, because very many calls of parallel run at the same time.
// The caller then works alone.
func (c *workerPool) post(j *job) *atomic.Pointer[job] {
	for i := range c.posts {
		if p := &c.posts[i]; p.Load() == nil && p.CompareAndSwap(nil, j) {
			c.posted.Add(1)
			return p
		}
	}
	return nil
}

// find returns a posted job that has ranges left. The caller gets a reference to the job. If there
// is no such job, find returns nil.
func (c *workerPool) find() *job {
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

// wakeSome wakes up to n sleeping workers.
func (c *workerPool) wakeSome(now time.Duration, n int) {
	if n <= 0 || !c.choose() {
		return
	}
	c.waker.before()
	c.wake <- now
	for n--; n > 0 && c.choose(); n-- {
		c.wake <- now
	}
	wakeBystander()
	if !spinForbidden(now) {
		c.waker.after()
	}
}

// choose reserves a sleeping worker: it subtracts one from the number of sleeping workers. It
// returns false if no worker sleeps.
func (c *workerPool) choose() bool {
	for n := c.asleep.Load(); n > 0; n = c.asleep.Load() {
		if c.asleep.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

func (c *workerPool) release(j *job) {
	if j.refs.Add(-1) == 0 {
		c.jobs.Put(j)
	}
}

// dismiss ends the workers as soon as they have no work. Tests call it.
func (c *workerPool) dismiss() { c.resize(1) }

// startMissing starts workers until their number is right.
func (c *workerPool) startMissing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.running.Load() < c.wanted.Load()-1 {
		c.running.Add(1)
		go c.workLoop()
	}
}

// workLoop is the function of a worker's goroutine. It returns when there are too many workers.
func (c *workerPool) workLoop() {
	w := waiter{workers: c}
	for {
		if c.tooMany() && c.leave() {
			c.wakeSurplus() // another surplus worker may be asleep
			return
		}
		if j := w.next(); j != nil {
			j.work(true)
			c.release(j)
		}
	}
}

// leave subtracts one from the number of workers if there are too many. Otherwise it returns false,
// and the worker must stay.
func (c *workerPool) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tooMany() {
		return false
	}
	c.running.Add(-1)
	return true
}

// join adds a reference to the job. It returns false if the job has no ranges left or has ended.
func (j *job) join() bool {
	if j.untaken.left() == 0 {
		return false
	}
	for n := j.refs.Load(); n > 0; n = j.refs.Load() {
		if j.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// work runs ranges until none is left. The caller takes the first ranges, and workers take the
// last ranges. Each thread thus tends to work on the same memory in each call, and finds it in its
// cache.
func (j *job) work(worker bool) {
	for j.runNext(worker) {
	}
}

// runNext takes a range of the job and runs it. It returns false if no range is left.
func (j *job) runNext(worker bool) bool {
	k, ok := j.untaken.take(worker)
	if !ok {
		return false
	}
	j.runOne(k*j.grain, min((k+1)*j.grain, j.n))
	return true
}

func (j *job) runOne(lo, hi int) {
	defer func() {
		if v := recover(); v != nil {
			j.panicked.CompareAndSwap(nil, &panicValue{v})
		}
		if j.unfinished.Add(-1) == 0 && j.phase.Swap(ended) == awaited {
			j.done <- struct{}{}
		}
	}()
	if j.panicked.Load() == nil {
		j.t.run(lo, hi)
	}
}

// Parallel calls f(0) … f(n-1) on the workers, in any order, and returns when all calls have
// returned.
func (d *Device) Parallel(n int, f func(i int)) { d.par(n, f) }
