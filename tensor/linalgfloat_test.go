package tensor_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
)

// TestLargeFloat32 decomposes batches that are large enough to be factored in float32, and
// multiplies the factors.
func TestLargeFloat32(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(2, 48, 40)
		near := func(name string, got, want *tensor.Tensor) {
			if d := got.Sub(want).Abs().Amax().Item(); !(d <= 2e-5) {
				t.Errorf("%s: off by %g", name, d)
			}
		}
		u, v, vh := x.SVD(false)
		near("U·S·Vᵀ", u.Mul(v.Unsqueeze(-2)).MatMul(vh), x)
		near("singular values", v, x.Double().SVDVals().Float())
		q, r := x.QR(true)
		near("Q·R", q.MatMul(r), x)
		square := x.Narrow(-2, 0, 40)
		square = square.Add(square.T())
		l, w := square.Eigh()
		near("V·L·Vᵀ", w.Mul(l.Unsqueeze(-2)).MatMul(w.T()), square)
		near("eigenvalues", l, square.Double().EigValsH().Float())
	}, tensor.Seed(3))
}
