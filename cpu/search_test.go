package cpu

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// TestSearchStrides searches rows whose elements are contiguous, far apart, in reverse order in
// memory, or all the same element. It searches every number of values up to 9.
func TestSearchStrides(t *testing.T) {
	d := newDevice(1)
	for _, stride := range []int{0, 1, 3, -1} {
		for n := range 10 {
			x := newView(t, d, dtype.F32, 1, 40)
			memory := at[float32](pointer(&x), 40)
			x.Layout = x.Narrow(1, 0, n, 1)
			x.Strides = x.Strides.With(1, stride)
			if stride < 0 {
				x.Offset = 30
			}
			for i := range n {
				memory[x.Offset+i*stride] = float32(i / 2 * 2) // 0 0 2 2 4 4 …
			}
			for m := 1; m < 10; m++ {
				for _, right := range []bool{false, true} {
					values, out := newView(t, d, dtype.F32, 1, m), newView(t, d, dtype.I64, 1, m)
					v := at[float32](pointer(&values), m)
					for i := range v {
						v[i] = float32(i) - 1
						if i == 5 {
							v[i] = float32(math.NaN())
						}
					}
					do(t, d, &device.Search{Out: out, Sorted: x, Values: values, Right: right})
					for i, got := range at[int64](pointer(&out), m) {
						want := int64(0)
						for k := range n {
							if e := memory[x.Offset+k*stride]; v[i] != v[i] || e < v[i] || right && e == v[i] {
								want++
							}
						}
						if got != want {
							t.Errorf("stride %d, right %v: the place of %v in a row of %d is %d, want %d", stride, right, v[i], n, got, want)
						}
					}
				}
			}
		}
	}
}
