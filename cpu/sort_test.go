package cpu

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// TestSortsKeysOfManyBits sorts keys with so many bits that a word cannot hold a whole key and its
// position. Some keys differ only in the bits that words leave out. Other rows have small keys,
// which are often equal.
func TestSortsKeysOfManyBits(t *testing.T) {
	d := newDevice(1)
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 100, -100, 127, 128, -128, 3000, -3000} {
		few := n < 0
		n = max(n, -n)
		x := newView(t, d, dtype.I64, 1, n)
		v := at[int64](pointer(&x), n)
		for i := range v {
			if few {
				v[i] = rnd.Int64N(4)
				continue
			}
			switch v[i] = int64(rnd.Uint64()); rnd.IntN(3) {
			case 0:
				v[i] = v[i]>>2<<2 | 1
			case 1:
				v[i] = v[rnd.IntN(i+1)] ^ rnd.Int64N(4)
			}
		}
		for _, k := range []int{1, max(1, n/20), n} {
			for _, descending := range []bool{false, true} {
				checkSort(t, d, x, k, descending)
			}
		}
	}
}

// checkSort compares the positions of the first k elements of a sorted row with those of a stable
// sort.
func checkSort(t *testing.T, d *Device, x device.View, k int, descending bool) {
	t.Helper()
	n, step := x.Shape.At(1), x.Strides.At(1)
	v := at[int64](pointer(&x), (n-1)*step+1)
	out := newView(t, d, dtype.I64, 1, k)
	do(t, d, &device.Argsort{Out: out, X: x, Descending: descending})
	want := make([]int64, n)
	for i := range want {
		want[i] = int64(i)
	}
	slices.SortStableFunc(want, func(a, b int64) int {
		if descending {
			a, b = b, a
		}
		return cmp.Compare(v[int(a)*step], v[int(b)*step])
	})
	if got := at[int64](pointer(&out), k); !slices.Equal(got, want[:k]) {
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%d of %d, descending %v: position %d is %d, want %d", k, n, descending, i, got[i], want[i])
			}
		}
	}
}

// TestSortsLongRows sorts rows that several workers sort together, and the longest rows that one
// worker sorts alone. The digits of the keys are spread evenly in some rows, and unevenly in
// others.
func TestSortsLongRows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	twice := func(v int64) int64 { return v<<22 | v<<11 | v } // equal digits
	for _, workers := range []int{1, 3} {
		d := newDevice(workers)
		for name, value := range map[string]func() int64{
			"uniform":     func() int64 { return int64(rnd.Uint64()) },
			"normal":      func() int64 { return int64(rnd.NormFloat64() * 1e15) },
			"few bits":    func() int64 { return rnd.Int64N(1500) },
			"24 bits":     func() int64 { return rnd.Int64N(1 << 24) },
			"equal":       func() int64 { return -7 },
			"two values":  func() int64 { return rnd.Int64N(2) << 50 },
			"clusters":    func() int64 { return rnd.Int64N(4)<<40 + rnd.Int64N(3000) },
			"same digits": func() int64 { return twice(rnd.Int64N(1<<11))<<3 + rnd.Int64N(8) },
			"exponential": func() int64 { return int64(rnd.Uint64() >> (1 + rnd.IntN(62))) },
		} {
			for _, n := range []int{longRow - 1, longRow, longRow + 4567} {
				x := newView(t, d, dtype.I64, 1, 2*n)
				for i, v := 0, at[int64](pointer(&x), 2*n); i < len(v); i++ {
					v[i] = value()
				}
				t.Run(fmt.Sprint(name, n, workers), func(t *testing.T) {
					x.Layout = x.Narrow(1, 0, n, 1)
					checkSort(t, d, x, n, false)
					checkSort(t, d, x, n/3, true)
				})
			}
		}
		x := newView(t, d, dtype.I64, 1, 2*longRow)
		for i, v := 0, at[int64](pointer(&x), 2*longRow); i < len(v); i++ {
			v[i] = rnd.Int64N(1 << 40)
		}
		x.Layout = x.Narrow(1, 1, longRow, 2)
		checkSort(t, d, x, longRow, false)
	}
}

// TestSettle sorts words that are near their places, and words that are not.
func TestSettle(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, far := range []int{1, 3, 1000} {
		x := make([]uint64, 5000)
		for i := range x {
			x[i] = uint64(i + rnd.IntN(far))
		}
		want := slices.Clone(x)
		slices.Sort(want)
		if settle(x); !slices.Equal(x, want) {
			t.Errorf("words up to %d places away are not sorted", far)
		}
	}
}
