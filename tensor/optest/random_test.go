package optest

import (
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func moments(v []float64) (mean, std float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		std += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(std)
}

// TestDistributions checks that random numbers lie in their range, in every type, and have the
// moments of their distribution.
func TestDistributions(t *testing.T) {
	const n = 1 << 16
	tensor.Do(func(s *tensor.Scope) {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
			m := s.Typed(ty)
			for _, c := range []struct {
				name         string
				x            *tt
				lo, hi       float64 // range of the numbers; hi itself does not occur
				mean, std, e float64
			}{
				{"Rand", m.Rand(n), 0, 1, 0.5, math.Sqrt(1.0 / 12), 0.01},
				{"Uniform", m.Uniform(-3, 5, n), -3, 5, 1, 8 * math.Sqrt(1.0/12), 0.06},
				{"UniformInPlace", m.Empty(n).UniformInPlace(2, 3), 2, 3, 2.5, math.Sqrt(1.0 / 12), 0.01},
				{"Randn", m.Randn(n), -7, 7, 0, 1, 0.02},
				{"Normal", m.Normal(2, 0.5, n), -2, 6, 2, 0.5, 0.02},
				{"NormalInPlace", m.Empty(n).NormalInPlace(-1, 2), -15, 13, -1, 2, 0.04},
				{"Bernoulli", m.Bernoulli(0.25, n), 0, 1.5, 0.25, math.Sqrt(0.25 * 0.75), 0.01},
				{"Dropout", m.Ones(n).Dropout(0.75), 0, 4.5, 1, math.Sqrt(3), 0.04},
			} {
				v := c.x.Floats()
				if c.x.Type() != ty {
					t.Errorf("%s %v has type %v", c.name, ty, c.x.Type())
				}
				if lo, hi := slices.Min(v), slices.Max(v); lo < c.lo || !(hi < c.hi) {
					t.Errorf("%s %v: from %v to %v, want [%v, %v)", c.name, ty, lo, hi, c.lo, c.hi)
				}
				if mean, std := moments(v); math.Abs(mean-c.mean) > c.e || math.Abs(std-c.std) > c.e {
					t.Errorf("%s %v: mean %v, deviation %v, want %v, %v", c.name, ty, mean, std, c.mean, c.std)
				}
			}
		}
		v := s.RandInt(-2, 3, n).Floats()
		counts := map[float64]int{}
		for _, x := range v {
			counts[x]++
		}
		for x := -2.0; x < 3; x++ {
			if c := counts[x]; math.Abs(float64(c)-n/5) > 500 {
				t.Errorf("RandInt: %v comes %d times", x, c)
			}
		}
		if len(counts) != 5 {
			t.Errorf("RandInt: %v", counts)
		}
		p := s.Typed(dtype.I64).RandPerm(257)
		got := tensor.Data[int64](p)
		if slices.IsSorted(got) {
			t.Error("RandPerm does not shuffle")
		}
		slices.Sort(got)
		for i, x := range got {
			if x != int64(i) {
				t.Fatal("RandPerm is no permutation")
			}
		}
	}, tensor.Seed(5))
}

// TestDrawing checks that random numbers depend only on the seed and on the numbers drawn before.
// It also checks that the gradient of dropout uses the mask of the result.
func TestDrawing(t *testing.T) {
	draw := func(seed uint64, f func(s *tensor.Scope) *tt) (v []float64) {
		tensor.Do(func(s *tensor.Scope) { v = f(s).Floats() }, tensor.Seed(seed))
		return v
	}
	first := func(s *tensor.Scope) *tt { return s.Randn(50) }
	second := func(s *tensor.Scope) *tt { s.Rand(3); return s.Randn(50) }
	inChild := func(s *tensor.Scope) *tt { c := s.New(); x := c.Randn(50); c.Close(x); return x }
	if !slices.Equal(draw(1, first), draw(1, first)) || !slices.Equal(draw(1, first), draw(1, inChild)) {
		t.Error("one seed gives different numbers")
	}
	if slices.Equal(draw(1, first), draw(2, first)) || slices.Equal(draw(1, first), draw(1, second)) {
		t.Error("another seed or place gives the same numbers")
	}
	whole := draw(1, func(s *tensor.Scope) *tt { return s.Randn(6, 10) })
	view := draw(1, func(s *tensor.Scope) *tt { return s.Zeros(10, 6).T().NormalInPlace(0, 1) })
	if !slices.Equal(whole, view) {
		t.Error("numbers depend on the layout")
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(8, 9).T().RequiresGrad()
		y := x.Dropout(0.4)
		g := tensor.Gradients(y, []*tt{x}, tensor.GradOutput(s.Ones(9, 8)))[0].Floats()
		for i, v := range y.Floats() {
			want := 0.0
			if v != 0 {
				want = round(dtype.F32, 1/(1-0.4))
			}
			if g[i] != want {
				t.Fatalf("element %d is %v, its gradient %v", i, v, g[i])
			}
		}
		if z := x.Dropout(0); z != x {
			t.Error("Dropout(0) copies")
		}
		for _, v := range x.Dropout(1).Floats() {
			if v != 0 {
				t.Error("Dropout(1) keeps something")
			}
		}
		wide := s.Zeros(4, 6)
		wide.Narrow(1, 2, 2).UniformInPlace(1, 2)
		for i, v := range wide.Floats() {
			if (v != 0) != (i%6 == 2 || i%6 == 3) {
				t.Fatalf("a fill of a view changes element %d", i)
			}
		}
	})
}
