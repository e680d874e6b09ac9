package tensor_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
)

// TestLinAlgBlocks checks that equations and factorisations of any size have the backward error of
// float64. Some sizes are below the size of a block, and need no product. Larger ones need one
// product or several.
func TestLinAlgBlocks(t *testing.T) {
	tensor.ManualSeed(3)
	for _, n := range []int{1, 15, 16, 17, 31, 33, 64, 70, 130} {
		s := tensor.NewScope()
		size := func(x *tensor.Tensor) float64 { return x.Abs().Amax().Item() }
		// small fails unless the residual a·x - b is as small as rounding in float64 allows.
		small := func(name string, a, x, b *tensor.Tensor) {
			t.Helper()
			const eps = 0x1p-52
			if e, most := size(a.MatMul(x).Sub(b)), float64(n+2)*eps*(size(a)*size(x)*float64(n)+size(b)); !(e <= most) {
				t.Errorf("%s of size %d: the residual is %v, more than %v", name, n, e, most)
			}
		}
		// the diagonal is small, so the factorisation must exchange rows
		a, b := s.Randn(2, n, n).Double(), s.Randn(2, n, 9).Double()
		a = a.Sub(a.Mul(s.Eye(n).Double()).MulScalar(1 - 1e-9))
		if n == 1 {
			a = a.AddScalar(1)
		}
		small("solve", a, a.Solve(b), b)
		small("inverse", a, a.Inverse(), s.Eye(n).Double().Expand(2, n, n))
		symmetric := a.MatMul(a.T()).Add(s.Eye(n).Double())
		l := symmetric.Cholesky(false)
		small("cholesky", l, l.T(), symmetric)
		if e := size(l.Triu(1)); e != 0 {
			t.Errorf("the Cholesky factor of size %d has %v above the diagonal", n, e)
		}
		upper := symmetric.Cholesky(true)
		small("upper cholesky", upper.T(), upper, symmetric)
		// L divided by its diagonal, so that its diagonal is 1
		one := l.Div(l.Diagonal(0, -2, -1).Unsqueeze(-2))
		small("lower triangle", l, l.Add(a.Triu(1)).SolveTriangular(b, tensor.TriangularOptions{}), b)
		small("upper triangle", l.T(), l.T().SolveTriangular(b, tensor.TriangularOptions{Upper: true}), b)
		small("unit triangle", one, one.Add(s.Eye(n).Double()).SolveTriangular(b, tensor.TriangularOptions{Unit: true}), b)
		x := l.SolveTriangular(b.T(), tensor.TriangularOptions{Right: true})
		small("triangle on the right", x, l, b.T())
		// the determinant of L·Lᵀ is the square of the product of L's diagonal
		want := l.Diagonal(0, -2, -1).Log().Sum(-1).MulScalar(2).Floats()
		_, got := symmetric.SlogDet()
		for i, v := range got.Floats() {
			if math.Abs(v-want[i]) > 1e-12*float64(n)*(1+math.Abs(v)) {
				t.Errorf("the logarithm of determinant %d of size %d is %v, want %v", i, n, v, want[i])
			}
		}
		s.Close()
	}
}
