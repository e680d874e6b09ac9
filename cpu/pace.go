package cpu

import (
	"sync/atomic"
	"time"
)

// pace is the time that a plan takes per element: the shortest time of its first runs, because
// other work on the machine can only lengthen a run. Results do not depend on the pace.
type pace struct {
	runs     atomic.Int32 // number of measured runs
	shortest atomic.Int64 // time of an element in picoseconds; 0 before the first measured run
}

const (
	measuredRuns = 32
	// minimum number of elements of a measured run, because reading the clock takes 40 ns
	measuredLeast = 1 << 10
	// time of a step for an element in picoseconds, if there is no measurement
	assumedPerStep = 100

	// sharing work costs half a microsecond, so that a part should take at least two microseconds
	partLeast = 2 * time.Microsecond
)

// measures reports whether a call of n elements is measured.
func (p *pace) measures(n int) bool { return n >= measuredLeast && p.runs.Load() < measuredRuns }

// add adds the measurement of a run of n elements.
func (p *pace) add(n int, took time.Duration) {
	if n < measuredLeast {
		return
	}
	p.runs.Add(1)
	v := max(1, took.Nanoseconds()*1000/int64(n))
	for old := p.shortest.Load(); old == 0 || v < old; old = p.shortest.Load() {
		if p.shortest.CompareAndSwap(old, v) {
			return
		}
	}
}

// parts returns the number of parts into which a call of n elements is divided for a number of
// workers. The result is 1 or a multiple of workers. Without a measurement, it is estimated from
// the number of steps of the plan.
func (p *pace) parts(n, steps, workers int) int {
	picos := p.shortest.Load()
	if picos == 0 {
		picos = assumedPerStep * int64(2+steps)
	}
	k := int(min(int64(4*workers), int64(n)*picos/(1000*partLeast.Nanoseconds())))
	if k < 2 {
		return 1
	}
	return max(1, k/workers) * workers
}
