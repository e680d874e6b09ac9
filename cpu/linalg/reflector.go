package linalg

import (
	"math"

	"github.com/flambeau-go/flambeau/cpu/internal/rows"
)

// reflect returns the Householder reflector H = I - tau·v·vᵀ for which H·x = (beta, 0, …)ᵀ, and
// replaces x by v. v[0] is 1 (G. Golub and C. Van Loan, Matrix Computations, 2013, 5.1). If x[1:]
// is zero, or so small that it does not matter, tau is 0. The caller must scale the matrix: its
// greatest element should be about 1.
func reflect[T Float](x []T) (beta, tau T) {
	sum := 0.0
	for _, v := range x[1:] {
		sum += float64(float64(v) * float64(v))
	}
	alpha := float64(x[0])
	x[0] = 1
	if sum < 0x1p-900 { // the squares of such small numbers lose digits by underflow
		clear(x[1:])
		return T(alpha), 0
	}
	b := -math.Copysign(math.Sqrt(float64(alpha*alpha)+sum), alpha)
	scale := 1 / (alpha - b)
	for i := range x[1:] {
		x[1+i] = T(float64(x[1+i]) * scale)
	}
	return T(b), T((b - alpha) / b)
}

// accumulate replaces the rows of x by x·H(n-1)·…·H(0), where reflector k has the vector in row k
// of v and the factor tau[k]. The vector begins at column k+shift. At the start the rows of x are
// those of the identity matrix. Reflector k does not change the rows before k+shift, because they
// are still rows of the identity.
func accumulate[T Float](x, v *padded[T], tau []T, shift int) {
	dots := make([]T, x.rows)
	for k := len(tau) - 1; k >= 0; k-- {
		if tau[k] == 0 {
			continue
		}
		i := k + shift
		top, left := i&^(rows.Group-1), lead(i)
		w := v.row(k)[left:x.stride]
		part := dots[top:]
		rows.Dots(len(part), len(w), x.from(top, left), x.stride, w, part)
		for j := range part {
			part[j] *= -tau[k]
		}
		rows.Add(len(part), len(w), x.from(top, left), x.stride, part, w)
	}
}

func dot[T Float](x, y []T) T {
	var sum [4]T
	i := 0
	for ; i+4 <= len(x); i += 4 {
		u, v := x[i:i+4:i+4], y[i:i+4:i+4]
		sum[0] += T(u[0] * v[0])
		sum[1] += T(u[1] * v[1])
		sum[2] += T(u[2] * v[2])
		sum[3] += T(u[3] * v[3])
	}
	for ; i < len(x); i++ {
		sum[0] += T(x[i] * y[i])
	}
	return sum[0] + sum[1] + (sum[2] + sum[3])
}
