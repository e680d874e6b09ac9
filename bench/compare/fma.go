package main

import (
	"runtime"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// fmaRate returns the rate in GFLOP/s at which all threads together execute independent FMAs on
// registers. It is the median of some runs, or 0 if there is no loop for the processor.
func fmaRate(dev device.Device) float64 {
	info := dev.Info()
	f, lanes := fmaLoop(info.SIMD)
	if info.Kind != "cpu" || f == nil {
		return 0
	}
	const loops = 2_000_000 // each of twelve FMAs
	var rates []float64
	for range 9 {
		var all sync.WaitGroup
		start := time.Now()
		for range runtime.GOMAXPROCS(0) {
			all.Go(func() { f(loops) })
		}
		all.Wait()
		flops := 2 * 12 * float64(lanes*loops*runtime.GOMAXPROCS(0))
		rates = append(rates, flops/time.Since(start).Seconds()/1e9)
	}
	return median(rates)
}
