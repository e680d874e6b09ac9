package tensor_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
)

// TestCdistDigits checks that distances of order 2 and their gradients are as exact as if they were
// computed from the differences of the elements. Rows may be far from the origin, very close to
// each other, or equal.
func TestCdistDigits(t *testing.T) {
	const unit = 1. / (1 << 24) // half the distance from 1 to the next float32
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, dims := range [][3]int{{5, 16, 3}, {3, 16, 3}, {20, 15, 40}, {16, 64, 32}, {33, 100, 130}, {4, 1100, 20}} {
		n, k, m := dims[0], dims[1], dims[2]
		x, y := make([]float32, n*m), make([]float32, k*m)
		for i := range x {
			x[i] = 1000 + float32(rnd.NormFloat64())
		}
		for i := range y {
			y[i] = 1000 + float32(rnd.NormFloat64())
		}
		copy(y, x[:2*m])                 // two pairs of equal rows
		y[m] = math.Nextafter32(y[m], 0) // the second pair differs in one bit
		for i := range m {
			y[2*m+i] *= 1e15
			y[3*m+i] = x[i] + float32(rnd.NormFloat64())*1e-3
		}
		s := tensor.NewScope()
		tx, ty := s.From(x, n, m).RequiresGrad(), s.From(y, k, m).RequiresGrad()
		d := tx.Cdist(ty, 2)
		g := s.Rand(n, k)
		d.Mul(g).Sum().Backward()
		got, gs := tensor.Data[float32](d), tensor.Data[float32](g)
		grads := [2][]float32{tensor.Data[float32](tx.Grad()), tensor.Data[float32](ty.Grad())}
		want, size := [2][]float64{make([]float64, n*m), make([]float64, k*m)}, [2][]float64{make([]float64, n*m), make([]float64, k*m)}
		for i := range n {
			for j := range k {
				sum := 0.
				for c := range m {
					v := float64(x[i*m+c]) - float64(y[j*m+c])
					sum += v * v
				}
				r := math.Sqrt(sum)
				if e := math.Abs(float64(got[i*k+j]) - r); e > (8+float64(m)/16)*unit*r {
					t.Errorf("%v: distance %d, %d is %v, want %v", dims, i, j, got[i*k+j], r)
				}
				for c := range m {
					if r > 0 {
						v := float64(gs[i*k+j]) * (float64(x[i*m+c]) - float64(y[j*m+c])) / r
						want[0][i*m+c] += v
						want[1][j*m+c] -= v
						size[0][i*m+c] += math.Abs(v)
						size[1][j*m+c] += math.Abs(v)
					}
				}
			}
		}
		for which, list := range want {
			for i, v := range list {
				if e := math.Abs(float64(grads[which][i]) - v); !(e <= 32*unit*size[which][i]) {
					t.Errorf("%v: element %d of gradient %d is %v, want %v", dims, i, which, grads[which][i], v)
				}
			}
		}
		s.Close()
	}
}

// TestCdistSpecialValues computes distances of rows with infinities and NaN. Each distance must
// equal the distance computed from its two rows alone.
func TestCdistSpecialValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := []float32{0, 0, inf, 1, nan, 0, 1e-22, 0, -inf, 2, 1e20, 0}
	var y []float32
	for range 4 {
		y = append(y, 0, 0, inf, 1, 3, nan, 1e30, 4)
	}
	s := tensor.NewScope()
	defer s.Close()
	for _, p := range []float64{0, 1, 2, 3, math.Inf(1)} {
		got := tensor.Data[float32](s.From(x, 6, 2).Cdist(s.From(y, 16, 2), p))
		for i := range got {
			// With so few rows Cdist sums along each row, instead of transposing y.
			row := s.From(x, 6, 2).Narrow(0, i/16, 1).Cdist(s.From(y, 16, 2).Narrow(0, i%16, 1), p)
			want := float32(row.Item())
			if got[i] != want && (got[i] == got[i] || want == want) {
				t.Errorf("order %v: the distance of rows %d and %d is %v, want %v", p, i/16, i%16, got[i], want)
			}
		}
	}
}
