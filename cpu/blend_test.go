package cpu

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// TestBlend compares blends and their gradients with sums computed one element after the other. The
// bits must be equal.
func TestBlend(t *testing.T) {
	d := newDevice(2)
	for _, s := range [][4]int{{1, 1, 1, 1}, {2, 3, 4, 1}, {5, 4, 9, 1}, {1, 3000, 5000, 1}, {9, 40, 3, 1}, {3, 2, 9, 2}, {2, 5, 11, 7}, {7, 3, 20, 8}, {70, 4, 8, 65}, {1, 5, 6, 9000}, {2, 9, 2, 4097},
		{0, 3, 4, 2}, {2, 3, 4, 0}, {2, 3, 0, 1}, {2, 3, 0, 5}} {
		for taps := range 3 {
			for _, back := range []bool{false, true} {
				testBlend[float32](t, d, dtype.F32, s, taps, back)
				testBlend[float64](t, d, dtype.F64, s, taps, back)
			}
		}
	}
}

// testBlend tests a blend of an axis of s[1] elements to s[2] elements. If taps is 0, the blend has
// one tap without a weight.
func testBlend[K float32 | float64](t *testing.T, d *Device, typ dtype.Type, s [4]int, taps int, back bool) {
	r := rand.New(rand.NewPCG(1, 2))
	newView := func(t *testing.T, d *Device, typ dtype.Type, s ...int) device.View {
		v := newView(t, d, typ, max(1, shape.Of(s...).Size()))
		v.Layout = shape.Dense(shape.Of(s...))
		return v
	}
	outer, n, m, inner := s[0], s[1], s[2], s[3]
	x, out := newView(t, d, typ, outer, n, inner), newView(t, d, typ, outer, m, inner)
	if back {
		x, out = out, x
	}
	index, weight := newView(t, d, dtype.I64, max(1, taps), m), newView(t, d, typ, max(1, taps), m)
	elements := func(v *device.View) []K {
		if v.Size() == 0 {
			return nil
		}
		e := at[K](pointer(v), v.Size())
		for i := range e {
			e[i] = K(r.NormFloat64())
			if r.IntN(4) == 0 {
				e[i] = K(math.Copysign(0, -1))
			}
		}
		return e
	}
	from, got, w := elements(&x), elements(&out), elements(&weight)
	var places []int64
	if m > 0 {
		places = at[int64](pointer(&index), index.Size())
	}
	for k := range max(1, taps) {
		row := places[k*m:][:m]
		for i := range row {
			row[i] = r.Int64N(int64(n))
		}
		slices.Sort(row)
	}
	o := device.Blend{Out: out, X: x, Index: index, Weight: weight, Back: back}
	if taps == 0 {
		o.Weight = device.View{}
	}
	do(t, d, &o)
	want := make([]K, len(got))
	for k := range max(1, taps) {
		sums := make([]K, len(got))
		for q := range outer * m * inner {
			j := q / inner % m
			a, b := (q/inner/m*n+int(places[k*m+j]))*inner+q%inner, q
			if back {
				a, b = b, a
			}
			term := from[a]
			if taps > 0 {
				term *= w[k*m+j]
			}
			if back {
				term += sums[b]
			}
			sums[b] = term
		}
		for i, v := range sums {
			if want[i] += v; k == 0 {
				want[i] = v
			}
		}
	}
	for i := range want {
		if math.Float64bits(float64(want[i])) != math.Float64bits(float64(got[i])) {
			t.Fatalf("%v of %v, %d taps, back %v: element %d is %v, want %v", s, typ, taps, back, i, got[i], want[i])
		}
	}
	if m < 2 || len(got) == 0 || n < 2 {
		return
	}
	places[1] = int64(n)
	var e *device.IndexError
	if err := device.Run(d, nil, &o); !errors.As(err, &e) || e.Position != 1 {
		t.Errorf("an index outside the axis: %v", err)
	}
	places[0], places[1] = 1, 0
	if err := device.Run(d, nil, &o); back && !errors.As(err, &e) {
		t.Errorf("indices that decrease: %v", err)
	}
}
