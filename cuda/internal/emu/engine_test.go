package emu

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCalendar makes reservations for operations that are ready and for operations that wait. They
// must get the free time in the order of the calls, and no time twice.
func TestCalendar(t *testing.T) {
	var c calendar
	for i, x := range []struct{ ready, cost, start, end time.Duration }{
		{0, 10, 0, 10},
		{100, 5, 100, 105},  // waits until 100
		{0, 20, 10, 30},     // does not wait for the previous operation
		{20, 100, 30, 135},  // takes 70 before the waiting operation, and 30 after it
		{0, 1, 135, 136},    // no time before 135 is free
		{200, 10, 200, 210}, // leaves free time before it
		{140, 0, 140, 140},  // an operation without duration occupies no time
		{150, 10, 150, 160},
		{136, 20, 136, 166}, // takes 14 before the operation at 150, and 6 after it
		{205, 1, 210, 211},
		{166, 34, 166, 200},
		{136, 1, 211, 212},
	} {
		if start, end := c.reserve(x.ready, x.cost); start != x.start || end != x.end {
			t.Fatalf("%d: %v from %v on: %v to %v, want %v to %v", i, x.cost, x.ready, start, end, x.start, x.end)
		}
	}
}

// TestCalendarAgreesWithTicks compares random reservations with a reference that marks each
// occupied unit of time.
func TestCalendarAgreesWithTicks(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var c calendar
		taken := map[time.Duration]bool{}
		for i := range 200 {
			ready, cost := time.Duration(rng.IntN(1500)), time.Duration(1+rng.IntN(12))
			start, end := c.reserve(ready, cost)
			first, last := time.Duration(-1), ready
			for left := cost; left > 0; last++ {
				if !taken[last] {
					taken[last] = true
					left--
					if first < 0 {
						first = last
					}
				}
			}
			if start != first || end != last {
				t.Fatalf("seed %d, work %d: %v to %v, want %v to %v", seed, i, start, end, first, last)
			}
		}
	}
}

// TestCalendarForgets checks that a calendar keeps a limited number of free intervals. The
// intervals that it drops must count as occupied.
func TestCalendarForgets(t *testing.T) {
	var c calendar
	for i := range time.Duration(10 * maxIdle) {
		c.reserve(10*i, 5)
	}
	if n := len(c.idle); n > maxIdle {
		t.Errorf("%d stretches are remembered", n)
	}
	oldest := c.idle[0]
	if start, _ := c.reserve(0, 5); start != oldest.from {
		t.Errorf("it starts at %v, want %v", start, oldest.from)
	}
}
