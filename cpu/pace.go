package cpu

import (
	"sync/atomic"
	"time"
)

// pace is the measured time that a plan takes per element: the shortest of its first runs. Other
// work on the machine can only lengthen a run. Results do not depend on the pace.
type pace struct {
	runs     atomic.Int32 // number of measured runs
	shortest atomic.Int64 // time of an element in picoseconds; 0 before the first measured run
}

const (
	measuredRuns = 32
	// least number of elements in a measured run; reading the clock takes 40 ns
	measuredLeast = 1 << 10
	// assumed time of one step for one element in picoseconds, before the first measurement
	assumedPerStep = 100

	// least time of a part; dividing work among workers costs half a microsecond
	partLeast = 2 * time.Microsecond
)

// measures reports whether the time of a call of n elements is to be measured.
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

// parts returns the number of parts into which a call of n elements is divided among workers. The
// result is 1 or a multiple of workers. Before the first measurement, the time is estimated from
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
