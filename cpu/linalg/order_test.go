package linalg

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrder checks that the order in which parts run does not change any bit of the results.
func TestOrder(t *testing.T) {
	backwards := func(n int, f func(int)) {
		for i := range n {
			f(n - 1 - i)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	const n = 150
	a := random[float32](r, n*n)
	factors := func(par Parallel) (all []float32) {
		values, x, y := make([]float32, n), make([]float32, n*n), make([]float32, n*n)
		if !Eigh(par, n, slices.Clone(a), values, x) {
			t.Fatal("no eigenvalues")
		}
		all = slices.Concat(values, x)
		if !SVD(par, n, n, slices.Clone(a), x, values, y, false) {
			t.Fatal("no singular values")
		}
		all = slices.Concat(all, values, x, y)
		lu := Factor(par, n, rowMajor(a, n))
		defer lu.Release()
		lu.Solve(par, n, rowMajor(y, n), x)
		lu.Inverse(par, y)
		all = slices.Concat(all, x, y)
		if Cholesky(par, n, rowMajor(definite(a, n), n), x) != 0 {
			t.Fatal("not positive definite")
		}
		return slices.Concat(all, x)
	}
	first, second := factors(serial), factors(backwards)
	for i, v := range first {
		if math.Float32bits(v) != math.Float32bits(second[i]) {
			t.Fatalf("element %d is %v in order, and %v backwards", i, v, second[i])
		}
	}
}
