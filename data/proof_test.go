package data_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// epoch measures the time of one epoch over 48 samples. The transform of each sample calls the
// function work.
func epoch(t *testing.T, workers int, work func()) time.Duration {
	t.Helper()
	l := load(t, &squares{n: 48}, data.Config{Batch: 4, Workers: workers, Transform: func(s data.Sample, _ *rand.Rand) (data.Sample, error) {
		work()
		return s, nil
	}})
	start := time.Now()
	if n := len(firstBatches(t, l, -1)); n != 12 {
		t.Fatalf("%d batches", n)
	}
	return time.Since(start)
}

// Workers run at the same time. If the transform only waits, four workers make nearly four times as
// many batches as one worker.
func TestWorkersWorkAtOnce(t *testing.T) {
	wait := func() { time.Sleep(2 * time.Millisecond) }
	best := 0.0
	for range 3 { // other load may disturb a measurement
		one, four := epoch(t, 1, wait), epoch(t, 4, wait)
		if best = max(best, one.Seconds()/four.Seconds()); best >= 2.5 {
			return
		}
	}
	t.Errorf("4 workers are %.2f times as fast as one", best)
}

// With a transform that computes, two workers make at least 1.6 times as many batches as one
// worker. This needs two free cores. With fewer cores, they must reach 0.85 of the speedup of two
// goroutines without a loader. The ratio is checked only if FLAMBEAU_SOAK is set. Otherwise the
// test only runs the code, with less work.
func TestWorkersShareTheCores(t *testing.T) {
	spin, rounds := 10_000, 2
	soak := os.Getenv("FLAMBEAU_SOAK") != ""
	if soak {
		spin, rounds = 60_000, 200
	}
	compute := func() {
		x := uint64(1)
		for range spin {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		if x == 0 {
			t.Error("a xorshift is never 0")
		}
	}
	bare := func(goroutines int) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range 48 / goroutines {
					compute()
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	var least [4]time.Duration // shortest times, which other load has disturbed least
	for k := range rounds {
		for i, d := range []time.Duration{epoch(t, 1, compute), epoch(t, 2, compute), bare(1), bare(2)} {
			if k == 0 || d < least[i] {
				least[i] = d
			}
		}
	}
	ratio, without := least[0].Seconds()/least[1].Seconds(), least[2].Seconds()/least[3].Seconds()
	t.Logf("2 workers are %.2f times as fast as one, 2 goroutines without a loader %.2f times (%d CPUs)", ratio, without, runtime.GOMAXPROCS(0))
	if want := min(1.6, 0.85*without); soak && ratio < want {
		t.Errorf("2 workers are %.2f times as fast as one, want %.2f", ratio, want)
	}
}

// growing is the name of an environment variable that the test sets for a child process. In the
// child, TestMemoryStaysLevel prints the memory of the process after each epoch.
const growing = "FLAMBEAU_TEST_GROWING"

// resident returns the memory of the process after a garbage collection. On Linux it is the
// resident set size, elsewhere the size of Go's heap.
func resident() (int, error) {
	debug.FreeOSMemory()
	if runtime.GOOS == "linux" {
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return 0, err
		}
		pages, err := strconv.Atoi(strings.Fields(string(b))[1])
		return pages * os.Getpagesize(), err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), nil
}

// A process that loads data has at most 5 % more memory after 100 epochs than after 5 epochs.
func TestMemoryStaysLevel(t *testing.T) {
	if os.Getenv(growing) != "" {
		l := load(t, wide{64, 5000}, data.Config{Batch: 8, Workers: 3, Shuffle: true})
		for range 100 {
			for b, err := range l.Batches() {
				if err != nil {
					t.Fatal(err)
				}
				tensor.Do(func(s *tensor.Scope) { b.Into(s).Y.Sum().Item() })
			}
			n, err := resident()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("resident", n)
		}
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^TestMemoryStaysLevel$", "-test.count=1")
	c.Env = append(os.Environ(), growing+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var n []int
	for line := range bytes.Lines(out) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "resident "); ok {
			k, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			n = append(n, k)
		}
	}
	if len(n) != 100 {
		t.Fatalf("%d epochs\n%s", len(n), out)
	}
	t.Logf("after 5 epochs %.1f MiB, after 100 %.1f MiB", float64(n[4])/(1<<20), float64(n[99])/(1<<20))
	if low, high := float64(n[4])*0.95, float64(n[4])*1.05; float64(n[99]) < low || float64(n[99]) > high {
		t.Errorf("after 5 epochs %d bytes, after 100 %d", n[4], n[99])
	}
}
