package linalg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQR(t *testing.T) {
	variants(t, func(t *testing.T) {
		testQR[float32](t)
		testQR[float64](t)
	})
}

func testQR[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, size := range [][2]int{{1, 1}, {3, 0}, {2, 1}, {1, 5}, {2, 2}, {3, 2}, {5, 5}, {16, 16}, {17, 30}, {40, 33}, {64, 20}} {
		m, n := size[0], size[1]
		for name, f := range general[T](r, m, n) {
			a := make([]T, m*n)
			for i := range a {
				a[i] = T(f(i/n, i%n))
			}
			for _, k := range []int{min(m, n), m} {
				q, u := make([]T, m*k), make([]T, k*n)
				QR(m, n, k, slices.Clone(a), q, u)
				name, norm := fmt.Sprintf("%T %s %dx%d, %d columns", a, name, m, n, k), float64(greatest(a))
				limit := 8 * unit[T]() * math.Sqrt(float64(max(m, n)))
				if d := apart(m, n, k, at(a, n), at(q, k), at(u, n)); !(d <= limit*norm*float64(max(m, n))) {
					t.Errorf("%s: Q·R is %g from the matrix", name, d/norm)
				}
				if d := apart(k, k, m, identity, turned(at(q, k)), at(q, k)); !(d <= limit) {
					t.Errorf("%s: Qᵀ·Q is %g from the identity", name, d)
				}
				for i := range u {
					if i/max(n, 1) > i%max(n, 1) && u[i] != 0 {
						t.Errorf("%s: R has %v below its diagonal", name, u[i])
						break
					}
				}
			}
		}
	}
}

// TestQRColumns decomposes matrices with small columns beside large ones. The small columns must
// keep their digits.
func TestQRColumns(t *testing.T) {
	variants(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(11, 12))
		const m, n = 40, 33
		a, q, u := random[float32](r, m*n), make([]float32, m*n), make([]float32, n*n)
		for i := range a {
			a[i] *= []float32{0x1p120, 1, 0x1p-110}[i%n%3]
		}
		QR(m, n, n, slices.Clone(a), q, u)
		for j := range n {
			column := func(i, _ int) float64 { return float64(a[i*n+j]) }
			norm := 0.0
			for i := range m {
				norm = max(norm, math.Abs(column(i, 0)))
			}
			limit := 8 * unit[float32]() * math.Sqrt(m) * m
			if d := apart(m, 1, n, column, at(q, n), at(u[j:], n)); !(d <= limit*norm) {
				t.Errorf("column %d of Q·R is %g from that of the matrix, which is up to %g", j, d, norm)
			}
		}
	})
}
