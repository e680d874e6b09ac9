package optest

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
	"pgregory.net/rapid"
)

// drawRow draws numbers from a small set of values, so that many are equal. For floats it also
// draws some special values.
func drawRow(t *rapid.T, ty dtype.Type, lengths ...int) []float64 {
	n := rapid.SampledFrom(lengths).Draw(t, "length")
	span := rapid.SampledFrom([]int{2, 7, 100, 1 << 20}).Draw(t, "span")
	r := random("row", fmt.Sprint(rapid.IntRange(0, 1000).Draw(t, "seed")))
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(r.IntN(2*span) - span)
		if ty.IsFloat() {
			v[i] /= 4
			switch r.IntN(40) {
			case 0:
				v[i] = math.NaN()
			case 1:
				v[i] = math.Inf(1 - 2*r.IntN(2))
			case 2:
				v[i] = math.Copysign(0, -1)
			}
		}
		v[i] = round(ty, v[i])
	}
	return v
}

// less reports whether a sorts before b. NaN is the greatest number.
func less(a, b float64) bool { return a < b || a == a && b != b }

// lengthsOf returns lengths at which algorithms change. An emulated device skips the long ones.
func lengthsOf(dev device.Device) []int {
	if dev.Info().Emulated {
		return []int{0, 1, 2, 5, 33, 64, 100, 257}
	}
	return []int{0, 1, 2, 5, 33, 64, 100, 511, 512, 1000, 3000}
}

// on checks a property on the CPU, once with kernels and once with compositions, and on an emulated
// device with fewer runs.
func on(t *testing.T, check func(t *rapid.T, dev device.Device, s *tensor.Scope)) {
	gpu := emulated(t)
	for _, c := range []struct {
		name string
		dev  device.Device
		mode []tensor.Option
		runs int
	}{{"cpu", hostDevice(), nil, 100}, {"composed", hostDevice(), []tensor.Option{tensor.Composed()}, 20}, {"cuda", gpu, nil, 12}} {
		t.Run(c.name, func(t *testing.T) {
			runs, failed := 0, false
			rapid.Check(t, func(t *rapid.T) {
				// After a failure, rapid repeats the check to find the smallest failing case, so
				// these runs are not limited.
				if runs++; runs > c.runs && !failed {
					return
				}
				done := false
				defer func() { failed = failed || !done }()
				if err := tensor.Try(func() { tensor.Do(func(s *tensor.Scope) { check(t, c.dev, s) }, c.mode...) }); err != nil {
					t.Fatal(err)
				}
				done = true
			})
		})
	}
}

// TestSortedOrder checks that sorting permutes and orders the elements, and that equal elements
// keep their order. TopK must return the first elements of that order.
func TestSortedOrder(t *testing.T) {
	on(t, func(t *rapid.T, dev device.Device, s *tensor.Scope) {
		ty := rapid.SampledFrom(dtype.Types()).Draw(t, "type")
		v := drawRow(t, ty, lengthsOf(dev)...)
		down := rapid.Bool().Draw(t, "descending")
		x := s.On(hostDevice()).From(v).Reshape(-1).Cast(ty).To(dev)
		values, indices := x.Sort(0, down)
		y, at := values.Floats(), indices.Floats()
		seen := make([]bool, len(v))
		for i, k := range at {
			if k < 0 || int(k) >= len(v) || seen[int(k)] {
				t.Fatalf("positions %v are no permutation", at)
			}
			seen[int(k)] = true
			if w := v[int(k)]; math.Float64bits(w) != math.Float64bits(y[i]) && w == w {
				t.Fatalf("value %d is %v, position %v has %v", i, y[i], k, w)
			}
			if i == 0 {
				continue
			}
			a, b := y[i-1], y[i]
			if down {
				a, b = b, a
			}
			if less(b, a) {
				t.Fatalf("%v before %v at %d", y[i-1], y[i], i)
			}
			if !less(a, b) && at[i-1] > at[i] {
				t.Fatalf("equal elements %v and %v have changed places", at[i-1], at[i])
			}
		}
		k := rapid.IntRange(0, len(v)).Draw(t, "k")
		top, where := x.TopK(k, 0, down, true)
		if !slices.Equal(where.Floats(), at[:k]) || top.Size() != k {
			t.Fatalf("TopK(%d) is %v, sorting gives %v", k, where.Floats(), at[:k])
		}
	})
}

// TestSearchedPlaces checks that a binary search in sorted rows without NaN finds the positions
// that package sort finds.
func TestSearchedPlaces(t *testing.T) {
	on(t, func(t *rapid.T, dev device.Device, s *tensor.Scope) {
		v := drawRow(t, dtype.F32, lengthsOf(dev)...)
		v = slices.DeleteFunc(v, func(a float64) bool { return a != a })
		slices.Sort(v)
		q := drawRow(t, dtype.F32, 1, 9)
		right := rapid.Bool().Draw(t, "right")
		got := s.On(hostDevice()).From(v).Reshape(-1).To(dev).Searchsorted(s.On(hostDevice()).From(q).To(dev), right).Floats()
		for i, a := range q {
			want := sort.Search(len(v), func(k int) bool { return a == a && (v[k] > a || !right && v[k] == a) })
			if int(got[i]) != want {
				t.Fatalf("the place of %v is %v, want %d (right %v)", a, got[i], want, right)
			}
		}
	})
}

// TestSumsOfDifferences checks that Diff undoes CumSum, and that the sums of parts add up to the
// sum of the whole.
func TestSumsOfDifferences(t *testing.T) {
	on(t, func(t *rapid.T, dev device.Device, s *tensor.Scope) {
		ty := rapid.SampledFrom([]dtype.Type{dtype.I64, dtype.I32, dtype.U8, dtype.Bool, dtype.F64, dtype.F32}).Draw(t, "type")
		outer, inner := rapid.SampledFrom([]int{1, 3}).Draw(t, "outer"), rapid.SampledFrom([]int{1, 2, 40}).Draw(t, "inner")
		lengths := lengthsOf(dev)
		n := rapid.SampledFrom(lengths[:len(lengths)-1]).Draw(t, "length")
		r := random("sums", fmt.Sprint(n, outer, inner))
		v := sample(r, ty, -8, 8, outer, n, inner).apply(math.Trunc)
		x := s.On(hostDevice()).From(v.v).Reshape(outer, n, inner).Cast(ty).To(dev)
		if rapid.Bool().Draw(t, "transposed") {
			x = x.Transpose(0, 2).Contiguous().Transpose(0, 2)
		}
		y := x.CumSum(1)
		first := y.Narrow(1, 0, min(1, n))
		if ty.IsFloat() {
			x = x.AddScalar(0)
		} else {
			x = x.Long()
		}
		if got, want := tensor.Cat(1, first, y.Diff(1, 1)).Floats(), x.Floats(); !slices.Equal(got, want) {
			t.Fatalf("the differences of sums are %v, want %v", got, want)
		}
		if n > 0 {
			if got, want := y.Select(1, -1).Floats(), x.Sum(1).Floats(); !slices.Equal(got, want) {
				t.Fatalf("the last sums are %v, want %v", got, want)
			}
		}
	})
}

// TestDistinctElements checks that Unique returns its elements in order. The inverse must map each
// element to the equal element of the result.
func TestDistinctElements(t *testing.T) {
	on(t, func(t *rapid.T, dev device.Device, s *tensor.Scope) {
		v := drawRow(t, dtype.I32, lengthsOf(dev)...)
		x := s.On(hostDevice()).From(v).Reshape(-1).Cast(dtype.I32).To(dev)
		values, inverse, counts := x.Unique(tensor.UniqueOptions{Inverse: true, Counts: true})
		u, c := values.Floats(), counts.Floats()
		for i := range u {
			if i > 0 && u[i-1] >= u[i] {
				t.Fatalf("%v before %v", u[i-1], u[i])
			}
		}
		for i, k := range inverse.Floats() {
			if u[int(k)] != v[i] {
				t.Fatalf("element %d is %v, its place has %v", i, v[i], u[int(k)])
			}
			c[int(k)]--
		}
		for i, n := range c {
			if n != 0 {
				t.Fatalf("the count of %v is off by %v", u[i], n)
			}
		}
		if all := x.IsIn(values, false).All(); all.Item() != 1 {
			t.Fatal("an element is not among the distinct ones")
		}
	})
}
