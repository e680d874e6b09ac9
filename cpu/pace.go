package cpu

import (
	"sync/atomic"
	"time"
)

// A pace is how long a plan takes for an element. Its first runs are measured, and the shortest
// time counts, because other work on the machine only adds to it. Results do not depend on it.
type pace struct {
	runs  atomic.Int32 // number of measured runs
	least atomic.Int64 // picoseconds of an element; 0 before the first measured run
}

const (
	measuredRuns = 32
	// least number of elements of a measured run, because reading the clock takes 40 ns
	measuredLeast = 1 << 10
	// picoseconds that a step is assumed to take for an element, without a measurement
	assumedPerStep = 100

	// To share work costs half a microsecond. So no part is shorter than two.
	partLeast = 2 * time.Microsecond
)

// measures reports whether parts of a call of n elements are measured.
func (p *pace) measures(n int) bool { return n >= measuredLeast && p.runs.Load() < measuredRuns }

// note adds a measurement of a run of n elements.
func (p *pace) note(n int, took time.Duration) {
	if n < measuredLeast {
		return
	}
	p.runs.Add(1)
	v := max(1, took.Nanoseconds()*1000/int64(n))
	for old := p.least.Load(); old == 0 || v < old; old = p.least.Load() {
		if p.least.CompareAndSwap(old, v) {
			return
		}
	}
}

// parts returns into how many parts to divide a call of n elements for a number of workers: 1, or a
// multiple of the workers. Without a measurement, it goes by the number of steps of the plan.
func (p *pace) parts(n, steps, workers int) int {
	picos := p.least.Load()
	if picos == 0 {
		picos = assumedPerStep * int64(2+steps)
	}
	k := int(min(int64(4*workers), int64(n)*picos/(1000*partLeast.Nanoseconds())))
	if k < 2 {
		return 1
	}
	return max(1, k/workers) * workers
}
