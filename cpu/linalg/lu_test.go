package linalg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var sizes = []int{0, 1, 2, 3, 15, 16, 17, 31, 33, 47, 48, 65, 100, 145}

func rowMajor[T Float](a []T, n int) Matrix[T] { return Matrix[T]{a, n, 1} }

// layouts returns m×n matrices equal to the row-major a, with various distances between rows and
// between columns.
func layouts[T Float](a []T, m, n int) map[string]Matrix[T] {
	turned, spread := make([]T, m*n), make([]T, 2*m*n+1)
	for i := range m {
		for j := range n {
			turned[j*m+i], spread[2*(i*n+j)] = a[i*n+j], a[i*n+j]
		}
	}
	return map[string]Matrix[T]{"rows": rowMajor(a, n), "columns": {turned, 1, m}, "spread": {spread, 2 * n, 2}}
}

// residual checks that a·x is b, as far as rounding allows. The limit is relative to the greatest
// sum of products, so it holds for a backward stable method.
func residual[T Float](t *testing.T, name string, n, k int, a, x, b func(i, j int) float64) {
	t.Helper()
	most := 0.0
	for i := range n {
		for j := range k {
			sum := math.Abs(b(i, j))
			for p := range n {
				sum += math.Abs(a(i, p) * x(p, j))
			}
			most = max(most, sum)
		}
	}
	if d := apart(n, k, n, b, a, x); !(d <= float64(n+4)*unit[T]()*most) {
		t.Errorf("%T %s of size %d: the residual is %g, beside sums up to %g", T(0), name, n, d, most)
	}
}

// definite returns a positive definite matrix near a·aᵀ.
func definite[T Float](a []T, n int) []T {
	s := make([]T, n*n)
	for i := range n {
		for j := range n {
			sum := 0.0
			for k := range n {
				sum += float64(a[i*n+k]) * float64(a[j*n+k])
			}
			s[i*n+j] = T(sum)
		}
		s[i*n+i] += 1
	}
	return s
}

func TestEquations(t *testing.T) {
	variants(t, func(t *testing.T) {
		testEquations[float32](t)
		testEquations[float64](t)
	})
}

func testEquations[T Float](t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, n := range sizes {
		a := random[T](r, n*n)
		for i := range n { // small pivots, so that rows must be exchanged
			a[i*n+i] *= 1e-6
		}
		if n == 1 {
			a[0] = 3
		}
		for name, m := range layouts(a, n, n) {
			before := slices.Clone(m.Data)
			lu := Factor(serial, n, m)
			if lu.ZeroPivot() != 0 || !slices.Equal(before, m.Data) {
				t.Errorf("%s: pivot %d is 0, or the matrix changed", name, lu.ZeroPivot())
			}
			x := make([]T, n*n)
			lu.Inverse(serial, x)
			residual[T](t, name+": inverse", n, n, at(a, n), at(x, n), identity)
			for _, k := range []int{0, 1, 16, 70} {
				b, x := random[T](r, n*k), make([]T, n*k)
				for from, right := range layouts(b, n, k) {
					lu.Solve(serial, k, right, x)
					residual[T](t, fmt.Sprintf("%s: %d right sides by %s", name, k, from), n, k, at(a, n), at(x, k), at(b, k))
				}
			}
			lu.Release()
		}
		testTriangles(t, r, n, a)
		testCholesky(t, n, definite(a, n))
	}
}

func testTriangles[T Float](t *testing.T, r *rand.Rand, n int, a []T) {
	const k = 9
	b := random[T](r, n*k)
	for c := range 4 {
		upper, unit := c&1 != 0, c&2 != 0
		used, given := make([]T, n*n), slices.Clone(a)
		for i := range n {
			for j := range n {
				v := &given[i*n+j]
				switch {
				case i == j && unit:
					*v, used[i*n+j] = T(math.NaN()), 1
				case i == j:
					*v = 2 + *v
					used[i*n+j] = *v
				case j > i == upper:
					*v /= T(n)
					used[i*n+j] = *v
				default:
					*v = T(math.NaN()) // not read
				}
			}
		}
		for name, m := range layouts(given, n, n) {
			x := make([]T, n*k)
			SolveTriangle(serial, n, k, m, upper, unit, rowMajor(b, k), x)
			residual[T](t, fmt.Sprint(name, " triangle, upper ", upper, ", unit ", unit), n, k, at(used, n), at(x, k), at(b, k))
		}
	}
}

func testCholesky[T Float](t *testing.T, n int, a []T) {
	given := slices.Clone(a)
	for i := range n {
		for j := i + 1; j < n; j++ {
			given[i*n+j] = T(math.NaN()) // not read
		}
	}
	for name, m := range layouts(given, n, n) {
		l := make([]T, n*n)
		if minor := Cholesky(serial, n, m, l); minor != 0 {
			t.Errorf("%s: minor %d of %d is not positive", name, minor, n)
		}
		residual[T](t, name+": Cholesky", n, n, at(l, n), turned(at(l, n)), at(a, n))
		for i := range n {
			if row := l[i*n+i+1 : (i+1)*n]; slices.ContainsFunc(row, func(v T) bool { return v != 0 }) {
				t.Errorf("%s: row %d of %d has elements above the diagonal", name, i, n)
			}
		}
	}
}

// TestIllConditioned solves equations of Hilbert's matrix. The residual must stay small, even
// though no digit of the solution is right.
func TestIllConditioned(t *testing.T) {
	variants(t, func(t *testing.T) {
		const n = 40
		a, b, x := make([]float32, n*n), make([]float32, n), make([]float32, n)
		for i := range a {
			a[i] = 1 / float32(i/n+i%n+1)
		}
		for i := range b {
			b[i] = float32(i%3) - 1
		}
		lu := Factor(serial, n, rowMajor(a, n))
		defer lu.Release()
		lu.Solve(serial, 1, rowMajor(b, 1), x)
		residual[float32](t, "Hilbert's matrix", n, 1, at(a, n), at(x, 1), at(b, 1))
	})
}

// TestSingular checks the place of the first pivot that is 0, and of the first minor that is not
// positive.
func TestSingular(t *testing.T) {
	variants(t, func(t *testing.T) {
		const n = 70
		for _, k := range []int{0, 1, 15, 16, 33, 69} {
			a := make([]float32, n*n)
			for i := range n {
				a[i*n+i] = 2
			}
			a[k*n+k] = 0
			lu := Factor(serial, n, rowMajor(a, n))
			if lu.ZeroPivot() != k+1 {
				t.Errorf("pivot %d is 0, want %d", lu.ZeroPivot(), k+1)
			}
			lu.Release()
			for _, d := range []float32{0, -1, float32(math.NaN())} {
				a[k*n+k] = d
				if minor := Cholesky(serial, n, rowMajor(a, n), make([]float32, n*n)); minor != k+1 {
					t.Errorf("minor %d is not positive, want %d", minor, k+1)
				}
			}
		}
	})
}

// TestZeroColumn factors matrices with a column of zeros. It first factors another matrix, so that
// the memory that is used again does not hold zeros.
func TestZeroColumn(t *testing.T) {
	variants(t, func(t *testing.T) {
		testZeroColumn[float32](t)
		testZeroColumn[float64](t)
	})
}

func testZeroColumn[T Float](t *testing.T) {
	const n = 70
	r := rand.New(rand.NewPCG(23, 24))
	for _, k := range []int{0, 1, 15, 16, 33, 69} {
		a := random[T](r, n*n)
		Factor(serial, n, rowMajor(a, n)).Release()
		for i := range n {
			a[i*n+k] = 0
		}
		lu := Factor(serial, n, rowMajor(a, n))
		if lu.ZeroPivot() != k+1 || lu.Pivot(k) != 0 {
			t.Errorf("%T: pivot %d is 0, want %d, and pivot %d is %v", T(0), lu.ZeroPivot(), k+1, k+1, lu.Pivot(k))
		}
		lu.Release()
	}
}

// TestNotFinite checks that NaN and infinities spread only to the elements that depend on them.
func TestNotFinite(t *testing.T) {
	variants(t, func(t *testing.T) {
		const n, k = 40, 3
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		a, b, x := make([]float32, n*n), make([]float32, n*k), make([]float32, n*k)
		for i := range n {
			for j := range i {
				a[i*n+j] = 1
			}
			a[i*n+i] = 1
			for j := range k {
				b[i*k+j] = 1
			}
		}
		a[37*n+37] = 0
		b[20*k+1] = nan
		b[30*k+2] = inf
		SolveTriangle(serial, n, k, rowMajor(a, n), false, false, rowMajor(b, k), x)
		for i, v := range x {
			row, column := i/k, i%k
			finite := row < 37 && (column == 0 || column == 1 && row < 20 || column == 2 && row < 30)
			if is := v-v == 0; is != finite {
				t.Errorf("row %d, column %d is %v", row, column, v)
			}
		}
		for i := range a {
			a[i] = nan
		}
		lu := Factor(serial, n, rowMajor(a, n))
		defer lu.Release()
		if p := lu.Pivot(0); lu.ZeroPivot() != 0 || p == p {
			t.Errorf("pivot 1 of a matrix of NaN is %v, pivot %d is 0", p, lu.ZeroPivot())
		}
	})
}
