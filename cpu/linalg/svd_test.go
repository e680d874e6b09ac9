package linalg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSVD(t *testing.T) {
	variants(t, func(t *testing.T) {
		testSVD[float32](t)
		testSVD[float64](t)
	})
}

func testSVD[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, size := range [][2]int{{0, 0}, {3, 0}, {0, 3}, {1, 1}, {2, 1}, {1, 5}, {2, 2}, {3, 2}, {5, 5}, {16, 16}, {17, 30}, {40, 33}, {64, 20}} {
		m, n := size[0], size[1]
		for name, f := range general[T](r, m, n) {
			a := make([]T, m*n)
			for i := range a {
				a[i] = T(f(i/n, i%n))
			}
			for _, full := range []bool{false, true} {
				checkSVD(t, fmt.Sprintf("%T %s %dx%d", a, name, m, n), m, n, a, full)
			}
		}
	}
}

func checkSVD[T Float](t *testing.T, name string, m, n int, a []T, full bool) {
	k := min(m, n)
	ku, kv := k, k
	if full {
		ku, kv = m, n
	}
	norm := float64(greatest(a))
	u, s, vt := make([]T, m*ku), make([]T, k), make([]T, kv*n)
	if !SVD(serial, m, n, slices.Clone(a), u, s, vt, full) {
		t.Errorf("%s: no convergence", name)
		return
	}
	limit := 8 * unit[T]() * math.Sqrt(float64(max(m, n)))
	left, right := at(u, ku), at(vt, n)
	scaled := func(i, j int) float64 { return left(i, j) * float64(s[j]) }
	if d := apart(m, n, k, at(a, n), scaled, right); !(d <= limit*norm*float64(max(m, n))) {
		t.Errorf("%s: U·S·Vᵀ is %g from the matrix", name, d/norm)
	}
	if d := apart(ku, ku, m, identity, turned(left), left); !(d <= limit) {
		t.Errorf("%s: Uᵀ·U is %g from the identity", name, d)
	}
	if d := apart(kv, kv, n, identity, right, turned(right)); !(d <= limit) {
		t.Errorf("%s: Vᵀ·V is %g from the identity", name, d)
	}
	for i := range s {
		if !(s[i] >= 0) || i > 0 && s[i] > s[i-1] {
			t.Errorf("%s: singular values %v", name, s)
			break
		}
	}
}

// general returns test matrices of m×n elements by name, each as a function of the row and the
// column.
func general[T Float](r *rand.Rand, m, n int) map[string]func(i, j int) float64 {
	rank := random[T](r, m+n)
	return map[string]func(i, j int) float64{
		"random":      func(int, int) float64 { return r.NormFloat64() },
		"zero":        func(int, int) float64 { return 0 },
		"identity":    identity,
		"ones":        func(int, int) float64 { return 1 },
		"rank 1":      func(i, j int) float64 { return float64(rank[i]) * float64(rank[m+j]) },
		"huge":        func(int, int) float64 { return r.NormFloat64() * 0x1p120 },
		"tiny":        func(int, int) float64 { return r.NormFloat64() * 0x1p-120 },
		"denormal":    func(int, int) float64 { return (1 + r.Float64()) * 0x1p-131 },
		"graded":      func(i, j int) float64 { return r.NormFloat64() * math.Exp2(-float64(i+j)/2) },
		"graded up":   func(i, j int) float64 { return r.NormFloat64() * math.Exp2(float64(i+j)/4) },
		"zero column": func(i, j int) float64 { return r.NormFloat64() * float64(j%3) },
		"shift": func(i, j int) float64 {
			if j == i+1 {
				return 1
			}
			return 0
		},
		"triangle": func(i, j int) float64 {
			switch {
			case j > i:
				return -1
			case j < i:
				return 0
			}
			return 1
		},
	}
}

func BenchmarkSVD(b *testing.B) {
	for _, n := range []int{128, 256, 512} {
		b.Run(fmt.Sprint("F64/", n), func(b *testing.B) { benchSVD[float64](b, n) })
		b.Run(fmt.Sprint("F32/", n), func(b *testing.B) { benchSVD[float32](b, n) })
	}
}

func benchSVD[T Float](b *testing.B, n int) {
	r := rand.New(rand.NewPCG(5, 6))
	a, u, s, vt := random[T](r, n*n), make([]T, n*n), make([]T, n), make([]T, n*n)
	for b.Loop() {
		SVD(serial, n, n, a, u, s, vt, false)
	}
}
