package tensor_test

import (
	"fmt"
	"math"
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

// TestLargeFloat32Gradients compares gradients of float32 matrices with those of the same matrices
// in float64. Rounding to the nearest has an error up to ε. So the factors of a matrix A have an
// error of about √n·ε·|A|. A gradient divides by a gap. For Eigh it is the smallest gap between
// values, and for SVD the smallest gap between their squares. For QR it is the smallest singular
// value of R's first columns. So the limit is √n·ε·|A|/gap, relative to the gradient.
func TestLargeFloat32Gradients(t *testing.T) {
	for _, size := range [][]int{{32, 32}, {33, 33}, {40, 33}, {33, 40}, {100, 32}, {32, 100}, {2, 65, 65}} {
		for name, f := range map[string]func(x, wide *tensor.Tensor) (loss *tensor.Tensor, gap float64){
			"eigh": func(x, wide *tensor.Tensor) (*tensor.Tensor, float64) {
				n := min(x.Dim(-1), x.Dim(-2))
				x = x.Narrow(-2, 0, n).Narrow(-1, 0, n)
				l, v := x.Add(x.T()).Eigh()
				return weigh(l).Add(weigh(v.Mul(v))), gap(wide.Narrow(-2, 0, n).Narrow(-1, 0, n), func(x *tensor.Tensor) *tensor.Tensor {
					return x.Add(x.T()).EigValsH()
				})
			},
			"svd": func(x, wide *tensor.Tensor) (*tensor.Tensor, float64) {
				u, v, vh := x.SVD(false)
				return weigh(u.Mul(u)).Add(weigh(v)).Add(weigh(vh.Mul(vh))), gap(wide, func(x *tensor.Tensor) *tensor.Tensor {
					return x.SVDVals().Mul(x.SVDVals()).Div(x.SVDVals().Amax(-1, tensor.KeepDim))
				})
			},
			"qr": func(x, wide *tensor.Tensor) (*tensor.Tensor, float64) {
				q, r := x.QR(false)
				first := wide.Narrow(-1, 0, min(x.Dim(-1), x.Dim(-2))).SVDVals()
				return weigh(q).Add(weigh(r)), first.Amin(-1).Div(first.Amax(-1)).Amin().Item()
			},
		} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				tensor.Do(func(s *tensor.Scope) {
					x := s.Randn(size...)
					gradient := func(x *tensor.Tensor) (*tensor.Tensor, float64) {
						x = x.Detach().RequiresGrad()
						loss, gap := f(x, x.Detach().Double())
						loss.Backward()
						return x.Grad().Double(), gap
					}
					got, gap := gradient(x.Clone())
					want, _ := gradient(x.Double())
					d := got.Sub(want).Abs().Amax().Item() / want.Abs().Amax().Item()
					n := float64(max(x.Dim(-1), x.Dim(-2)))
					if limit := math.Sqrt(n) * 0x1p-24 / gap; !(d <= limit) {
						t.Errorf("off by %g, the limit is %g", d, limit)
					}
				}, tensor.Seed(5))
			})
		}
	}
}

// weigh returns the sum of x's elements, each multiplied by a different weight.
func weigh(x *tensor.Tensor) *tensor.Tensor {
	w := x.Scope().Arange(x.Size()).Cast(x.Type()).Reshape(x.Shape().Slice()...)
	return x.Mul(w.Sin()).Sum()
}

// gap returns the smallest distance between neighbouring values, relative to the greatest value.
func gap(x *tensor.Tensor, values func(x *tensor.Tensor) *tensor.Tensor) float64 {
	v := values(x)
	n := v.Dim(-1)
	return v.Narrow(-1, 1, n-1).Sub(v.Narrow(-1, 0, n-1)).Abs().Amin().Item() / math.Abs(v.Abs().Amax().Item())
}
