package linalg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// variants runs f with every variant of instructions.
func variants(t *testing.T, f func(t *testing.T)) {
	for _, v := range asm.Variants() {
		t.Run(v, func(t *testing.T) {
			defer asm.Use(v)()
			f(t)
		})
	}
}

func random[T Float](r *rand.Rand, n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = T(r.NormFloat64())
	}
	return v
}

// unit returns the spacing of T's numbers at 1.
func unit[T Float]() float64 {
	if _, ok := any(T(0)).(float32); ok {
		return 0x1p-23
	}
	return 0x1p-52
}

// apart returns the greatest difference between a and b·c, where b is m×k and c is k×n. Functions
// of the row and the column give the elements of the matrices.
func apart(m, n, k int, a func(i, j int) float64, b, c func(i, j int) float64) float64 {
	worst := 0.0
	for i := range m {
		for j := range n {
			sum := 0.0
			for p := range k {
				sum += b(i, p) * c(p, j)
			}
			if d := math.Abs(a(i, j) - sum); !(d <= worst) {
				worst = d
			}
		}
	}
	return worst
}

func at[T Float](a []T, lda int) func(i, j int) float64 {
	return func(i, j int) float64 { return float64(a[i*lda+j]) }
}

func turned(f func(i, j int) float64) func(i, j int) float64 {
	return func(i, j int) float64 { return f(j, i) }
}

func identity(i, j int) float64 {
	if i == j {
		return 1
	}
	return 0
}

func TestEigh(t *testing.T) {
	variants(t, func(t *testing.T) {
		testEigh[float32](t)
		testEigh[float64](t)
	})
}

func testEigh[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 2, 3, 4, 5, 15, 16, 17, 33, 70} {
		for name, make := range symmetric[T](r, n) {
			a := make()
			norm := 0.0
			for i := range n {
				norm = max(norm, float64(greatest(a[i*n:i*n+i+1])))
			}
			values, vectors := random[T](r, n), random[T](r, n*n)
			if !Eigh(serial, n, a, values, vectors) {
				t.Errorf("%s, n = %d: no convergence", name, n)
				continue
			}
			lower := func(i, j int) float64 { return float64(a[max(i, j)*n+min(i, j)]) }
			v := at(vectors, n)
			scaled := func(i, j int) float64 { return v(i, j) * float64(values[j]) }
			limit := 8 * unit[T]() * math.Sqrt(float64(n))
			if d := apart(n, n, n, lower, scaled, turned(v)); !(d <= limit*norm*float64(n)) {
				t.Errorf("%T %s, n = %d: V·L·Vᵀ is %g from the matrix", values[0], name, n, d/norm)
			}
			if d := apart(n, n, n, identity, turned(v), v); !(d <= limit) {
				t.Errorf("%T %s, n = %d: Vᵀ·V is %g from the identity", values[0], name, n, d)
			}
			for i := range n - 1 {
				if !(values[i] <= values[i+1]) {
					t.Errorf("%s, n = %d: values %v are not in order", name, n, values)
					break
				}
			}
		}
	}
}

// symmetric returns functions that make symmetric matrices, by the names of the matrices. The
// upper triangle of each matrix holds NaN, because it must not be read.
func symmetric[T Float](r *rand.Rand, n int) map[string]func() []T {
	fill := func(f func(i, j int) float64) func() []T {
		return func() []T {
			a := make([]T, n*n)
			for i := range n {
				for j := range n {
					a[i*n+j] = T(math.NaN())
					if j <= i {
						a[i*n+j] = T(f(i, j))
					}
				}
			}
			return a
		}
	}
	rank := random[T](r, n)
	return map[string]func() []T{
		"random":   fill(func(int, int) float64 { return r.NormFloat64() }),
		"zero":     fill(func(int, int) float64 { return 0 }),
		"identity": fill(identity),
		"ones":     fill(func(int, int) float64 { return 1 }),
		"rank 1":   fill(func(i, j int) float64 { return float64(rank[i]) * float64(rank[j]) }),
		"huge":     fill(func(int, int) float64 { return r.NormFloat64() * 0x1p120 }),
		"tiny":     fill(func(int, int) float64 { return r.NormFloat64() * 0x1p-120 }),
		"denormal": fill(func(int, int) float64 { return (1 + r.Float64()) * 0x1p-131 }),
		"graded":   fill(func(i, j int) float64 { return r.NormFloat64() * math.Exp2(-float64(i+j)/2) }),
		"graded up": fill(func(i, j int) float64 {
			return r.NormFloat64() * math.Exp2(float64(i+j)/4)
		}),
		"Wilkinson": fill(func(i, j int) float64 {
			switch i - j {
			case 0:
				return math.Abs(float64(i) - float64(n-1)/2)
			case 1:
				return 1
			}
			return 0
		}),
		"no diagonal": fill(func(i, j int) float64 {
			if i-j == 1 {
				return 1
			}
			return 0
		}),
	}
}

func BenchmarkEigh(b *testing.B) {
	for _, n := range []int{128, 256, 512} {
		b.Run(fmt.Sprint("F64/", n), func(b *testing.B) { benchEigh[float64](b, n) })
		b.Run(fmt.Sprint("F32/", n), func(b *testing.B) { benchEigh[float32](b, n) })
	}
}

func benchEigh[T Float](b *testing.B, n int) {
	r := rand.New(rand.NewPCG(5, 6))
	a, values, vectors := random[T](r, n*n), make([]T, n), make([]T, n*n)
	for b.Loop() {
		Eigh(serial, n, a, values, vectors)
	}
}
