package gemm

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// team is a Parallel with one goroutine for each processor. The caller takes the tasks from the
// front, and the others take them from the back, as the workers of package cpu do.
type team struct {
	wake  chan struct{}
	wg    sync.WaitGroup
	front atomic.Int64
	back  atomic.Int64
	left  atomic.Int64 // number of tasks that nobody has reserved
	f     func(int)
}

func newTeam() *team {
	t := &team{wake: make(chan struct{})}
	for range runtime.GOMAXPROCS(0) - 1 {
		go func() {
			for range t.wake {
				t.work(true)
				t.wg.Done()
			}
		}()
	}
	return t
}

func (t *team) work(back bool) {
	for t.left.Add(-1) >= 0 {
		if back {
			t.f(int(t.back.Add(-1)))
		} else {
			t.f(int(t.front.Add(1) - 1))
		}
	}
}

func (t *team) run(n int, f func(int)) {
	t.f = f
	t.front.Store(0)
	t.back.Store(int64(n))
	t.left.Store(int64(n))
	for range min(n, runtime.GOMAXPROCS(0)) - 1 {
		t.wg.Add(1)
		t.wake <- struct{}{}
	}
	t.work(false)
	t.wg.Wait()
}

// filled returns a slice whose values are not all equal. Memory that was never written would be one
// page of zeros, which always stays in the caches.
func filled[E float32 | uint16](n int) []E {
	s := make([]E, n)
	for i := range s {
		s[i] = E(i % 7)
	}
	return s
}

// peak returns how fast all processors together run the kernel on panels in the first-level cache,
// in billions of operations per second.
func peak[E factor, T float](par Parallel, kern *kernel[E, T]) (gflops float64) {
	const k, repeat = 128, 2000
	h := kern.height
	procs := runtime.GOMAXPROCS(0)
	type work struct {
		a, b []E
		c    []T
	}
	w := make([]work, procs)
	for i := range w {
		w[i] = work{aligned[E](nil, k*kern.stride), aligned[E](nil, k*kern.width), make([]T, h*kern.width)}
	}
	start := time.Now()
	par(procs, func(i int) {
		for range repeat {
			kern.micro[h](kern.steps(k), &w[i].a[0], &w[i].b[0], kern.width, &w[i].c[0], kern.width, kern.width, 0, &w[i].a[0])
		}
	})
	return float64(2*k*h*kern.width*repeat*procs) / float64(time.Since(start).Nanoseconds())
}

// BenchmarkF32 measures products and the peak alternately, because the clock rate and other
// processes affect both. The metric peak% is the median of the ratios. The metric best-peak% is the
// ratio of the fastest product to the highest peak: other processes affect it least.
func BenchmarkF32(b *testing.B) {
	par := newTeam().run
	for _, c := range []struct {
		name    string
		m, n, k int
		ta, tb  bool
	}{
		{"nn", 8, 8, 8, false, false}, {"nn", 16, 16, 16, false, false}, {"nn", 32, 32, 32, false, false}, {"nt", 64, 64, 32, false, true},
		{"nn", 64, 32, 64, false, false}, {"nn", 128, 128, 128, false, false}, {"nn", 256, 256, 256, false, false}, {"nn", 512, 512, 512, false, false},
		{"nn", 1024, 1024, 1024, false, false}, {"nn", 2048, 2048, 2048, false, false},
		{"nt", 64, 512, 784, false, true}, {"nn", 64, 784, 512, false, false}, {"tn", 512, 784, 64, true, false},
		{"nt", 512, 512, 784, false, true}, {"nt", 768, 512, 128, false, true}, {"nt", 64, 10, 512, false, true},
		{"nt", 32, 4096, 1024, false, true}, {"nt", 8, 512, 784, false, true}, {"nt", 1, 512, 784, false, true}, {"nn", 1, 512, 784, false, false},
	} {
		for _, v := range asm.Variants()[1:] {
			b.Run(fmt.Sprintf("%s/%dx%dx%d/%s", c.name, c.m, c.n, c.k, v), func(b *testing.B) {
				defer asm.Use(v)()
				x, y, z := filled[float32](c.m*c.k), filled[float32](c.k*c.n), make([]float32, c.m*c.n)
				ars, acs, brs, bcs := c.k, 1, c.n, 1
				if c.ta {
					ars, acs = 1, c.m
				}
				if c.tb {
					brs, bcs = 1, c.k
				}
				flops := 2 * c.m * c.n * c.k
				repeat := max(1, 20_000_000/flops)
				var rates, ratios []float64
				best := 0.0
				for b.Loop() {
					top := peak(par, active32())
					best = max(best, top)
					start := time.Now()
					for range repeat {
						F32(par, c.m, c.n, c.k, x, ars, acs, y, brs, bcs, z, c.n, 1, false)
					}
					rate := float64(flops*repeat) / float64(time.Since(start).Nanoseconds())
					rates, ratios = append(rates, rate), append(ratios, 100*rate/top)
				}
				slices.Sort(rates)
				slices.Sort(ratios)
				b.ReportMetric(rates[len(rates)/2], "GFLOP/s")
				b.ReportMetric(ratios[len(ratios)/2], "peak%")
				b.ReportMetric(100*rates[len(rates)-1]/best, "best-peak%")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkBF16 alternately measures products of bfloat16, products of float32, and the peak of
// bfloat16. It reports medians of ratios.
func BenchmarkBF16(b *testing.B) {
	if !HasBF16() {
		b.Skip("the processor has no VDPBF16PS")
	}
	par := newTeam().run
	for _, c := range []struct {
		name    string
		m, n, k int
		ta, tb  bool
	}{
		{"nn", 64, 64, 64, false, false}, {"nn", 256, 256, 256, false, false}, {"nt", 256, 256, 256, false, true}, {"tn", 256, 256, 256, true, false},
		{"nn", 1024, 1024, 1024, false, false}, {"nt", 1024, 1024, 1024, false, true}, {"tn", 1024, 1024, 1024, true, false}, {"nn", 2048, 2048, 2048, false, false},
		{"nt", 1024, 384, 128, false, true}, {"nt", 1, 1024, 1024, false, true}, {"nt", 8, 1024, 1024, false, true}, {"nn", 1, 1024, 1024, false, false},
	} {
		b.Run(fmt.Sprintf("%s/%dx%dx%d", c.name, c.m, c.n, c.k), func(b *testing.B) {
			ars, acs, brs, bcs := c.k, 1, c.n, 1
			if c.ta {
				ars, acs = 1, c.m
			}
			if c.tb {
				brs, bcs = 1, c.k
			}
			x, y, z := filled[float32](c.m*c.k), filled[float32](c.k*c.n), make([]float32, c.m*c.n)
			v, w := filled[uint16](c.m*c.k), filled[uint16](c.k*c.n)
			flops := 2 * c.m * c.n * c.k
			repeat := max(1, 20_000_000/flops)
			rate := func(f func()) float64 {
				start := time.Now()
				for range repeat {
					f()
				}
				return float64(flops*repeat) / float64(time.Since(start).Nanoseconds())
			}
			var rates, ratios, peaks []float64
			for b.Loop() {
				top := peak(par, activeBF16())
				single := rate(func() { F32(par, c.m, c.n, c.k, x, ars, acs, y, brs, bcs, z, c.n, 1, false) })
				low := rate(func() { BF16(par, c.m, c.n, c.k, v, ars, acs, w, brs, bcs, z, c.n, 1, false) })
				rates, ratios, peaks = append(rates, low), append(ratios, low/single), append(peaks, 100*low/top)
			}
			for _, list := range [][]float64{rates, ratios, peaks} {
				slices.Sort(list)
			}
			b.ReportMetric(rates[len(rates)/2], "GFLOP/s")
			b.ReportMetric(ratios[len(ratios)/2], "xF32")
			b.ReportMetric(peaks[len(peaks)/2], "peak%")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func BenchmarkConvByTiles(b *testing.B) {
	for _, s := range [][3]int{{1, 64, 56}, {1, 128, 28}, {8, 256, 14}} {
		b.Run(fmt.Sprint(s), func(b *testing.B) {
			n, channels, size := s[0], s[1], s[2]
			in, ones := [3]int{1, size, size}, [3]int{1, 1, 1}
			c := Conv{N: n, Groups: 1, Channels: channels, Outputs: channels, In: in, Kernel: [3]int{1, 3, 3}, Stride: ones, Dilation: ones, Before: [3]int{0, 1, 1}, Out: in}
			nx, nw, ny := c.sizes()
			x, w, y := make([]float32, nx), make([]float32, nw), make([]float32, ny)
			for b.Loop() {
				c.Forward(Serial, y, x, w)
			}
		})
	}
}
