package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// fmaShare alternates between a step and a loop that all threads execute: independent FMAs on
// registers. So changes of the clock rate, and other processes, affect both the step and the loop.
// It returns the median rate of the FMAs in GFLOP/s. It also returns the median, over the turns, of
// the step's rate divided by the mean rate of the FMAs before and after it. A step has the given
// number of operations. Both results are 0 if there is no loop for the processor.
func fmaShare(dev device.Device, turns int, flops float64, step func()) (rate, share float64) {
	// A turn takes this many seconds. It is long, because a cache that all cores share is slow at
	// first if the cores have not read it for some milliseconds.
	const turn = 100e-3
	info := dev.Info()
	f, lanes := fmaLoop(info.SIMD)
	if info.Kind != "cpu" || f == nil {
		return 0, 0
	}
	rates, shares := []float64{fmaRate(f, lanes)}, []float64(nil)
	one := 0.0 // seconds that a step took
	for range turns {
		if one < turn/2 {
			step() // not timed: it wakes the threads, and reads the factors into the shared cache
		}
		start, steps, taken := time.Now(), 0, 0.0
		for taken < turn {
			step()
			steps++
			taken = time.Since(start).Seconds()
		}
		one = taken / float64(steps)
		before := rates[len(rates)-1]
		rates = append(rates, fmaRate(f, lanes))
		ours := flops * float64(steps) / taken / 1e9
		shares = append(shares, 2*ours/(before+rates[len(rates)-1]))
	}
	return median(rates), median(shares)
}

// fmaRate returns the rate of f in GFLOP/s if all threads together execute it. Each FMA has the
// given number of lanes. Each thread's rate counts from the moment at which all threads are ready.
func fmaRate(f func(n int), lanes int) float64 {
	const loops = 4_000_000 // each of twelve FMAs, some 10 ms
	var all sync.WaitGroup
	var ready atomic.Int32
	threads := int32(runtime.GOMAXPROCS(0))
	rates := make([]float64, threads)
	started := make(chan struct{})
	var start time.Time
	for i := range rates {
		all.Go(func() {
			// This call is not measured. The system may run a woken thread on its waker's
			// processor. If both have work, it moves the thread some milliseconds later.
			f(loops)
			if ready.Add(1) == threads {
				start = time.Now()
				close(started)
			}
			for waiting := true; waiting; {
				select {
				case <-started:
					waiting = false
				default:
					f(1)
				}
			}
			f(loops)
			rates[i] = 2 * 12 * float64(lanes*loops) / time.Since(start).Seconds() / 1e9
		})
	}
	all.Wait()
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum
}
