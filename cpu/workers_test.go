package cpu

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Every unit runs exactly once, for all sizes, also with many callers at once.
func TestParallelDoesEveryUnitOnce(t *testing.T) {
	c := newCrew(4)
	defer c.dismiss()
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range 120 {
				hits := make([]atomic.Int32, n)
				c.parallel(n, 1+g*n/10%7, each(func(i int) { hits[i].Add(1) }))
				for i := range hits {
					if h := hits[i].Load(); h != 1 {
						t.Errorf("unit %d of %d done %d times", i, n, h)
						return
					}
				}
			}
		}()
	}
	wg.Wait()
}

func TestParallelNests(t *testing.T) {
	c := newCrew(3)
	defer c.dismiss()
	var n atomic.Int32
	finished := make(chan struct{})
	go func() {
		c.parallel(8, 1, each(func(int) {
			c.parallel(8, 1, each(func(int) {
				c.parallel(3, 1, each(func(int) { n.Add(1) }))
			}))
		}))
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(20 * time.Second):
		t.Fatal("nested calls do not end")
	}
	if n.Load() != 8*8*3 {
		t.Fatalf("%d units, want %d", n.Load(), 8*8*3)
	}
}

func TestPanicIsRaisedByTheCaller(t *testing.T) {
	c := newCrew(4)
	defer c.dismiss()
	want := errors.New("broken unit")
	for _, size := range []int{1, 2, 100} {
		for _, bad := range []int{0, size - 1} {
			func() {
				defer func() {
					if v := recover(); v != want {
						t.Errorf("%d units, unit %d panics: recovered %v", size, bad, v)
					}
				}()
				c.parallel(size, 1, each(func(i int) {
					if i == bad {
						panic(want)
					}
				}))
				t.Errorf("%d units, unit %d panics: parallel returned", size, bad)
			}()
		}
	}
	var n atomic.Int32 // the crew still works
	c.parallel(50, 1, each(func(int) { n.Add(1) }))
	if n.Load() != 50 {
		t.Fatalf("after panics: %d of 50 units", n.Load())
	}
}
