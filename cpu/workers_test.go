package cpu

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestParallelDoesEveryUnitOnce calls parallel with many sizes, also from many goroutines at the
// same time. Every unit must run exactly once.
func TestParallelDoesEveryUnitOnce(t *testing.T) {
	c := newWorkerPool(4)
	defer c.dismiss()
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range 120 {
				hits := make([]atomic.Int32, n)
				c.parallel(n, 1+g*n/10%7, each(func(i int) { hits[i].Add(1) }))
				for i := range hits {
					if h := hits[i].Load(); h != 1 {
						t.Errorf("unit %d of %d done %d times", i, n, h)
						return
					}
				}
			}
		}()
	}
	wg.Wait()
}

func TestParallelNests(t *testing.T) {
	c := newWorkerPool(3)
	defer c.dismiss()
	var n atomic.Int32
	finished := make(chan struct{})
	go func() {
		c.parallel(8, 1, each(func(int) {
			c.parallel(8, 1, each(func(int) {
				c.parallel(3, 1, each(func(int) { n.Add(1) }))
			}))
		}))
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(20 * time.Second):
		t.Fatal("nested calls do not end")
	}
	if n.Load() != 8*8*3 {
		t.Fatalf("%d units, want %d", n.Load(), 8*8*3)
	}
}

func TestPanicIsRaisedByTheCaller(t *testing.T) {
	c := newWorkerPool(4)
	defer c.dismiss()
	want := errors.New("broken unit")
	for _, size := range []int{1, 2, 100} {
		for _, bad := range []int{0, size - 1} {
			func() {
				defer func() {
					if v := recover(); v != want {
						t.Errorf("%d units, unit %d panics: recovered %v", size, bad, v)
					}
				}()
				c.parallel(size, 1, each(func(i int) {
					if i == bad {
						panic(want)
					}
				}))
				t.Errorf("%d units, unit %d panics: parallel returned", size, bad)
			}()
		}
	}
	var n atomic.Int32 // atomic, because workers may still run after the panic
	c.parallel(50, 1, each(func(int) { n.Add(1) }))
	if n.Load() != 50 {
		t.Fatalf("after panics: %d of 50 units", n.Load())
	}
}

// TestWorkersSpinAndSleep makes calls in bursts and one by one. Workers then spin, fall asleep, are
// woken, and get jobs while they fall asleep. The number of workers changes at the same time. No
// unit may be lost, and no call may hang.
func TestWorkersSpinAndSleep(t *testing.T) {
	c := newWorkerPool(4)
	defer c.dismiss()
	gaps := []time.Duration{0, 0, time.Microsecond, 30 * time.Microsecond, 300 * time.Microsecond}
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(g)))
			for k := range 1500 {
				var sum atomic.Int64
				c.parallel(6, 1, each(func(i int) {
					wait(time.Duration(k*i%4) * time.Microsecond)
					sum.Add(int64(i + 1))
				}))
				if sum.Load() != 21 {
					t.Errorf("call %d of goroutine %d: sum %d, want 21", k, g, sum.Load())
					return
				}
				if g == 0 && k%50 == 0 {
					c.resize(2 + k/50%4)
				}
				wait(gaps[rnd.IntN(len(gaps))])
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		var all [1 << 16]byte
		t.Fatalf("a call hangs\n%s", all[:runtime.Stack(all[:], true)])
	}
	c.resize(4)
	c.parallel(100, 1, each(func(int) {}))
	awaitAsleep(t, c, 3)
}

// wait keeps the processor busy for the time d.
func wait(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

// awaitAsleep waits until all workers sleep.
func awaitAsleep(t *testing.T, c *workerPool, workers int64) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); c.asleep.Load() != workers; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d workers sleep and %d spin, want %d asleep", c.asleep.Load(), c.spinners.Load(), workers)
		}
	}
	if n := c.spinners.Load(); n != 0 {
		t.Errorf("%d workers spin while all sleep", n)
	}
	if n := c.posted.Load(); n != 0 {
		t.Errorf("%d jobs are posted after all calls", n)
	}
}

// TestMoreCallsThanPosts makes more calls at a time than the list of jobs has entries. Calls
// without an entry must do all of their work alone.
func TestMoreCallsThanPosts(t *testing.T) {
	c := newWorkerPool(3)
	defer c.dismiss()
	calls := 3 * len(c.posts)
	var begun, sum atomic.Int64
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			first := true
			c.parallel(4, 1, each(func(i int) {
				if sum.Add(1); first && i == 0 {
					// wait until all calls have begun
					for begun.Add(1); begun.Load() < int64(calls); runtime.Gosched() {
					}
				}
			}))
		})
	}
	wg.Wait()
	if sum.Load() != int64(4*calls) {
		t.Errorf("%d units, want %d", sum.Load(), 4*calls)
	}
	awaitAsleep(t, c, 2)
}

// restoreMeasured restores the fields of the variable measured when the test ends.
func restoreMeasured(t *testing.T) {
	length, truce, waking := measured.length.Load(), measured.noSpinUntil.Load(), measured.waking.Load()
	t.Cleanup(func() {
		measured.length.Store(length)
		measured.noSpinUntil.Store(truce)
		measured.waking.Store(waking)
	})
}

// TestTruce simulates an interruption by the system. Spinning must end, and start again after a
// pause. If a second interruption follows soon, the pause must be twice as long.
func TestTruce(t *testing.T) {
	restoreMeasured(t)
	measured.length.Store(0)
	measured.noSpinUntil.Store(0)
	at := time.Hour
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64} {
		want *= time.Millisecond
		interrupted(at)
		if !spinForbidden(at+want-1) || spinForbidden(at+want) {
			t.Fatalf("the truce lasts until %v, want %v", time.Duration(measured.noSpinUntil.Load())-at, want)
		}
		at += want
	}
	at += 8 * maxNoSpin
	if interrupted(at); spinForbidden(at + minNoSpin) {
		t.Errorf("after a long time without interruption, the truce lasts %v", time.Duration(measured.noSpinUntil.Load())-at)
	}

	slow := false
	if spinUntil(clock(), func() bool {
		if !slow {
			slow = true
			time.Sleep(2 * interruption)
		}
		return false
	}) {
		t.Error("spinning succeeds without a reason")
	}
	if !spinForbidden(clock()) {
		t.Error("no truce after an interruption")
	}
	c := newWorkerPool(2)
	w := waiter{workers: c, shortWaits: maxShortWaits}
	c.post(&job{}).Load().refs.Store(1)
	measured.noSpinUntil.Store(int64(time.Since(processStart) + time.Hour))
	if c.posts[0].Load().untaken.set(1); w.spin(clock()) != nil {
		t.Error("a worker spins during a truce")
	}
}

// TestPatience records times of waking. The time for which a goroutine spins must approach these
// times, within bounds.
func TestPatience(t *testing.T) {
	restoreMeasured(t)
	for _, c := range []struct{ took, want time.Duration }{
		{60 * time.Microsecond, 60 * time.Microsecond},
		{time.Second, maxSpinTime},
		{0, minSpinTime},
	} {
		for range 200 {
			noteWaking(c.took)
		}
		if got := spinTime(); got < c.want-time.Microsecond || got > c.want+time.Microsecond {
			t.Errorf("waking takes %v: spins for %v, want %v", c.took, got, c.want)
		}
	}
}

// TestWhoIsWoken makes calls of various lengths. A single call with little work must wake no
// worker. Calls in quick succession must wake workers, and so must a long call.
func TestWhoIsWoken(t *testing.T) {
	restoreMeasured(t)
	woke := func(apart, unit time.Duration) bool {
		for try := 0; ; try++ {
			c := newWorkerPool(2)
			c.asleep.Store(1) // pretend that a worker sleeps
			measured.waking.Store(int64(50 * time.Microsecond))
			measured.noSpinUntil.Store(0)
			j := &job{t: each(func(int) { wait(unit) }), n: 3, grain: 1}
			j.untaken.set(3)
			j.unfinished.Store(3)
			began := clock()
			c.lastAlone.Store(int64(began - apart))
			c.workAndWake(j, 1)
			if last := time.Duration(c.lastAlone.Load()); last < began+3*unit {
				t.Fatalf("the call ended %v after its beginning, by lastAlone %v", clock()-began, last-began)
			}
			// if the call took longer, it is repeated: the machine was busy with something else
			if took := clock() - began; took < 3*unit+20*time.Microsecond || try == 100 {
				return len(c.wake) == 1 && c.asleep.Load() == 0
			}
		}
	}
	if woke(time.Second, 0) {
		t.Error("a short call, alone, wakes a worker")
	}
	if !woke(time.Microsecond, 0) {
		t.Error("calls that follow one another wake no worker")
	}
	if !woke(time.Second, time.Millisecond) {
		t.Error("a long call wakes no worker")
	}
}

// TestOneProcessorDoesNotSpin runs on one processor. No goroutine may spin, because the work that
// it waits for could not run.
func TestOneProcessorDoesNotSpin(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := newWorkerPool(3)
	defer c.dismiss()
	for range 200 {
		c.parallel(6, 1, each(func(int) { runtime.Gosched() }))
		if n := c.spinners.Load(); n != 0 {
			t.Fatalf("%d workers spin", n)
		}
	}
}
