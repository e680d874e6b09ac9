package cpu

import (
	"sync/atomic"
	"time"
)

// A pace is the time that a plan takes for an element. The first runs are measured, and the
// shortest time counts, because other work on the machine only adds to it. Results do not depend on
// the pace.
type pace struct {
	runs     atomic.Int32 // number of measured runs
	shortest atomic.Int64 // time of an element in picoseconds; 0 before the first measured run
}

const (
	measuredRuns = 32
	// least number of elements of a measured run, because reading the clock takes 40 ns
	measuredLeast = 1 << 10
	// time of a step for an element in picoseconds, if there is no measurement
	assumedPerStep = 100

	// Sharing work costs half a microsecond, so each part takes at least two.
	partLeast = 2 * time.Microsecond
)

// measures reports whether a call of n elements is measured.
func (p *pace) measures(n int) bool { return n >= measuredLeast && p.runs.Load() < measuredRuns }

// add adds a measurement of a run of n elements.
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
// workers. It is 1, or a multiple of workers. If there is no measurement, it depends on the number
// of steps of the plan.
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
