package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/cpu/internal/spin"
)

// A goroutine that spins sees a change in a tenth of a microsecond. A goroutine that sleeps must be
// woken. Waking takes 5 to 10 µs on a physical machine and 30 to 70 µs in some virtual machines. It
// costs the waker 2 to 15 µs. A waiting goroutine therefore first spins as long as waking would
// take, and then sleeps. This costs at most twice as much as only spinning or only sleeping,
// whichever is cheaper. These rules limit what spinning takes from other goroutines and processes:
//
//   - A worker spins only if most of its recent waits were short. Waits in which it slept count
//     too.
//   - If the system takes the processor away from a goroutine that spins, other programs need it.
//     Then no goroutine spins for some milliseconds.
//   - A worker that does not sleep yields to other goroutines once in each yieldPeriod.
const (
	minSpinTime = 20 * time.Microsecond
	maxSpinTime = 200 * time.Microsecond
	yieldPeriod = 100 * time.Microsecond
	// If two successive readings of the clock are this far apart, another program has run: its time
	// slice takes more than a millisecond. The host of a virtual machine causes shorter gaps.
	interruption = 500 * time.Microsecond
	minNoSpin    = time.Millisecond
	maxNoSpin    = 64 * time.Millisecond
)

var processStart = time.Now()

func clock() time.Duration { return time.Since(processStart) }

// measured holds measurements of the processors. All worker pools share this variable.
var measured struct {
	waking      atomic.Int64 // moving average of the time that waking a goroutine takes, in ns
	noSpinUntil atomic.Int64 // time of clock(), in ns, before which no goroutine spins
	length      atomic.Int64 // length of the last period without spinning, in ns
	processors  atomic.Int64 // value of GOMAXPROCS
	spinning    atomic.Int64 // number of workers that spin
}

func init() { measured.waking.Store(int64(50 * time.Microsecond)) }

func spinTime() time.Duration { return time.Duration(measured.waking.Load()) }

// noteWaking records how long waking a worker took. The recorded time has bounds: on a busy
// machine waking takes much longer, but goroutines must not spin longer on such a machine.
func noteWaking(took time.Duration) {
	took = min(max(took, minSpinTime), maxSpinTime)
	old := measured.waking.Load()
	measured.waking.Store(old + (int64(took)-old)/8)
}

// interrupted starts a period in which no goroutine spins. If the last such period was recent, the
// new one is twice as long.
func interrupted(now time.Duration) {
	length := time.Duration(measured.length.Load())
	if now < time.Duration(measured.noSpinUntil.Load())+8*length {
		length = min(2*length, maxNoSpin)
	} else {
		length = minNoSpin
	}
	measured.length.Store(int64(length))
	measured.noSpinUntil.Store(int64(now + length))
}

// spinForbidden reports whether no goroutine may spin now, because spinning would take the
// processor away from other programs.
func spinForbidden(now time.Duration) bool { return now < time.Duration(measured.noSpinUntil.Load()) }

// spinUntil calls done until it returns true. It returns false after spinTime, or when the system
// has interrupted it.
func spinUntil(began time.Duration, done func() bool) bool {
	end := began + spinTime()
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

// await returns when all ranges of the job are finished. It spins first and then sleeps.
func (j *job) await() {
	over := func() bool { return j.phase.Load() == ended }
	if over() {
		return
	}
	if now := clock(); measured.processors.Load() > 1 && !spinForbidden(now) && spinUntil(now, over) {
		return
	}
	if j.phase.CompareAndSwap(begun, awaited) {
		<-j.done
	}
}

// wakeBystander wakes a goroutine that does nothing, after workers were woken. Go's scheduler
// reserves the goroutine that was woken last for the waker's own processor. Another processor takes
// it only after a sleep of 3 µs, to which Linux adds its timer slack of 50 µs. If the bystander is
// woken last, the workers start without this delay.
func wakeBystander() {
	startBystander()
	select {
	case bystander <- struct{}{}:
	default:
	}
}

var (
	bystander      = make(chan struct{}, 1)
	startBystander = sync.OnceFunc(func() {
		go func() {
			for range bystander {
			}
		}()
	})
)

// workAndWake runs ranges of the job for a caller whose workers sleep, and wakes up to n workers if
// that pays. Waking pays if the rest of the job takes longer than waking. It also pays if calls
// follow one another so closely that a woken worker spins until the next call.
func (c *workerPool) workAndWake(j *job, n int) {
	now := clock()
	soon := now-time.Duration(c.lastAlone.Load()) < spinTime()
	if soon && !spinForbidden(now) {
		c.wakeSome(now, n)
	} else if j.runNext(false) {
		done := clock()
		if took := done - now; took*time.Duration(j.untaken.left()) > spinTime() {
			c.wakeSome(done, n)
		}
	}
	j.work(false)
	c.lastAlone.Store(int64(clock()))
}

// waiter decides how a worker waits for jobs.
type waiter struct {
	workers    *workerPool
	shortWaits int           // number of recent waits that were short, up to maxShortWaits
	yielded    time.Duration // time when the worker last slept or yielded
}

const maxShortWaits = 8

// next returns a job to work on, or nil if the worker was woken and found no job.
func (w *waiter) next() *job {
	if j := w.workers.find(); j != nil {
		return j
	}
	began := clock()
	if began-w.yielded > yieldPeriod {
		runtime.Gosched()
		began = clock()
		w.yielded = began
	}
	if j := w.spin(began); j != nil {
		w.shortWaits = min(w.shortWaits+1, maxShortWaits)
		return j
	}
	j, at := w.sleep()
	if at-began <= spinTime() {
		w.shortWaits = min(w.shortWaits+1, maxShortWaits)
	} else {
		w.shortWaits = max(w.shortWaits-1, 0)
	}
	return j
}

// spin waits for a job without sleeping. It returns nil when it gives up. It spins only while a job
// is likely to come soon and no other program needs the processor.
func (w *waiter) spin(began time.Duration) (found *job) {
	c := w.workers
	if w.shortWaits < maxShortWaits/2 || spinForbidden(began) {
		return nil
	}
	// Leave one processor to the goroutines that call parallel.
	if measured.spinning.Add(1) < measured.processors.Load() {
		c.spinners.Add(1)
		spinUntil(began, func() bool {
			found = c.find()
			return found != nil || c.tooMany()
		})
		c.spinners.Add(-1)
	}
	measured.spinning.Add(-1)
	return found
}

// sleep blocks until wakeSome wakes the worker. It returns the job that the worker then finds, and
// the time when wakeSome was called.
func (w *waiter) sleep() (*job, time.Duration) {
	c := w.workers
	measured.processors.Store(int64(runtime.GOMAXPROCS(0)))
	c.asleep.Add(1)
	// From here on, a caller that posts a job sees that this worker sleeps. Look for a job that was
	// posted before.
	if j := c.find(); j != nil || c.tooMany() {
		if !c.choose() {
			<-c.wake // wakeSome has chosen this worker
		}
		return j, clock()
	}
	at := <-c.wake
	c.waker.leave()
	now := clock()
	w.yielded = now
	noteWaking(now - at)
	return c.find(), at
}
