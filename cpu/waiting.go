package cpu

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/cpu/internal/spin"
)

// A goroutine that spins sees a change in a tenth of a microsecond. One that sleeps must be woken.
// That takes 5 to 10 µs on a machine of its own and 150 µs in some virtual machines, and costs the
// waker 2 to 12 µs. So whoever waits spins as long as waking takes, and then sleeps. That costs at
// most twice what the best choice would have cost. What it may cost others is bounded too:
//
//   - A worker spins only if most of its recent waits were short, also those in which it slept.
//   - If the system takes the processor away from a goroutine that spins, others need it. Then
//     nobody spins for some milliseconds.
//   - A worker that never sleeps yields to other goroutines every courtesy.
const (
	leastPatience = 20 * time.Microsecond
	mostPatience  = 200 * time.Microsecond
	courtesy      = 100 * time.Microsecond
	// gap between two readings of the clock, which shows that something else ran
	interruption = 100 * time.Microsecond
	leastTruce   = time.Millisecond
	mostTruce    = 64 * time.Millisecond
)

var processStart = time.Now()

func clock() time.Duration { return time.Since(processStart) }

// market is what the crews have learned about the processors, which they share.
var market struct {
	waking     atomic.Int64 // how long it takes to wake a goroutine, in ns; a moving average
	truce      atomic.Int64 // time of clock before which nobody spins, in ns
	length     atomic.Int64 // how long the last truce was, in ns
	processors atomic.Int64 // the value of GOMAXPROCS
	spinning   atomic.Int64 // number of workers that spin
}

func init() { market.waking.Store(int64(50 * time.Microsecond)) }

// patience returns how long a goroutine spins before it sleeps.
func patience() time.Duration { return time.Duration(market.waking.Load()) }

// woken notes how long it took to wake a worker. A machine that is busy takes much longer, which
// is no reason to spin.
func woken(took time.Duration) {
	took = min(max(took, leastPatience), mostPatience)
	old := market.waking.Load()
	market.waking.Store(old + (int64(took)-old)/8)
}

// interrupted begins a truce. It is twice as long as the last one if that was not long ago.
func interrupted(now time.Duration) {
	length := time.Duration(market.length.Load())
	if now < time.Duration(market.truce.Load())+8*length {
		length = min(2*length, mostTruce)
	} else {
		length = leastTruce
	}
	market.length.Store(int64(length))
	market.truce.Store(int64(now + length))
}

// truce reports whether spinning would take the processor from others.
func truce(now time.Duration) bool { return now < time.Duration(market.truce.Load()) }

// spinUntil calls done until it returns true. It gives up when patience ends, or if it is
// interrupted.
func spinUntil(began time.Duration, done func() bool) bool {
	end := began + patience()
	for last := began; ; {
		for range 16 {
			if done() {
				return true
			}
			spin.Pause()
		}
		now := clock()
		if now-last > interruption {
			interrupted(now)
			return done()
		}
		if now > end {
			return false
		}
		last = now
	}
}

// await returns when all ranges are finished.
func (j *job) await() {
	over := func() bool { return j.phase.Load() == ended }
	if over() {
		return
	}
	if now := clock(); market.processors.Load() > 1 && !truce(now) && spinUntil(now, over) {
		return
	}
	if j.phase.CompareAndSwap(begun, awaited) {
		<-j.done
	}
}

// lead is [job.work] for a caller whose workers sleep. Up to n of them can help. lead wakes them if
// that pays: if the job takes longer than waking them, or if calls come so often that the woken
// workers find work after the job.
func (c *crew) lead(j *job, n int) {
	now := clock()
	often := now-time.Duration(c.led.Swap(int64(now))) < patience()
	if often && !truce(now) {
		c.rouse(now, n)
	} else if j.one() {
		done := clock()
		if took := done - now; took*time.Duration(j.todo.Load()) > patience() {
			c.rouse(done, n)
		}
	}
	j.work()
}

// waiter is how a worker waits for jobs.
type waiter struct {
	crew    *crew
	hope    int           // how many of the recent waits were short, from 0 to hopeMost
	yielded time.Duration // when the worker last slept or yielded
}

const hopeMost = 8

// next returns a job to work on. It returns nil if the worker was woken and found none.
func (w *waiter) next() *job {
	if j := w.crew.find(); j != nil {
		return j
	}
	began := clock()
	if began-w.yielded > courtesy {
		runtime.Gosched()
		began = clock()
		w.yielded = began
	}
	if j := w.spin(began); j != nil {
		w.hope = min(w.hope+1, hopeMost)
		return j
	}
	j, at := w.sleep()
	if at-began <= patience() {
		w.hope = min(w.hope+1, hopeMost)
	} else {
		w.hope = max(w.hope-1, 0)
	}
	return j
}

// spin waits for a job without sleeping, if a job is likely to come soon and nobody else needs the
// processor.
func (w *waiter) spin(began time.Duration) (found *job) {
	c := w.crew
	if w.hope < hopeMost/2 || truce(began) {
		return nil
	}
	// leave one processor to the callers
	if market.spinning.Add(1) < market.processors.Load() {
		c.spinners.Add(1)
		spinUntil(began, func() bool {
			found = c.find()
			return found != nil || c.crowded()
		})
		c.spinners.Add(-1)
	}
	market.spinning.Add(-1)
	return found
}

// sleep waits until rouse wakes the worker. It returns the job that it finds then, and when rouse
// was called.
func (w *waiter) sleep() (*job, time.Duration) {
	c := w.crew
	market.processors.Store(int64(runtime.GOMAXPROCS(0)))
	c.asleep.Add(1)
	// callers that post a job from now on see this worker asleep; look for jobs that were posted
	// before
	if j := c.find(); j != nil || c.crowded() {
		if !c.choose() {
			<-c.wake // rouse has chosen this worker
		}
		return j, clock()
	}
	at := <-c.wake
	now := clock()
	w.yielded = now
	woken(now - at)
	return c.find(), at
}
