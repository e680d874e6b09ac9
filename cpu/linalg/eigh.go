package linalg

import (
	"cmp"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/cpu/internal/rows"
)

// Eigh sets values to the eigenvalues of the symmetric n×n matrix a, in ascending order, and the
// columns of vectors to orthonormal eigenvectors. It reads only the lower triangle of a, whose
// elements must be finite. It returns false if the iteration does not converge.
//
// Householder reflectors make the matrix tridiagonal. Implicit QR steps find the eigenvalues. The
// rotations of these steps are applied to the rows of the transposed matrix of eigenvectors.
func Eigh[T Float](par Parallel, n int, a, values, vectors []T) bool {
	if n == 0 {
		return true
	}
	most := T(0)
	for i := range n {
		most = max(most, greatest(a[i*n:i*n+i+1]))
	}
	scale := powerOfTwo(most)
	s, v, q := zeros[T](n, n), zeros[T](n, n), zeros[T](n, n)
	defer s.release()
	defer v.release()
	defer q.release()
	for i := range n {
		row := s.row(i)
		for j, x := range a[i*n : i*n+i+1] {
			row[j] = T(float64(x) * scale) // scale may overflow T, so multiply in float64
			s.a[j*s.stride+i] = row[j]
		}
	}
	tau := make([]T, n-1)
	d, e := tridiagonal(par, n, &s, &v, tau)
	q.setIdentity(n)
	accumulate(&q, &v, tau, 1)
	r := rotationsOf(par, &q, n)
	defer r.release()
	if !diagonalise(d, e, epsilon[T](), r) {
		return false
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(d[i], d[j]) })
	for i, k := range order {
		values[i] = T(d[k] / scale)
	}
	q.transposeTo(vectors, n, order, n)
	return true
}

// epsilon returns a bound for relative changes of a number of type T. Changes below the bound do
// not matter.
func epsilon[T Float]() float64 {
	if _, ok := any(T(0)).(float32); ok {
		return 0x1p-26
	}
	return 0x1p-53
}

// greatest returns the greatest magnitude in a.
func greatest[T Float](a []T) T {
	most := T(0)
	for _, v := range a {
		if v < 0 {
			v = -v
		}
		if v > most {
			most = v
		}
	}
	return most
}

// powerOfTwo returns a power of two p for which p·most is about 1.
func powerOfTwo[T Float](most T) float64 {
	if most == 0 {
		return 1
	}
	_, exponent := math.Frexp(float64(most))
	return math.Ldexp(1, max(-1000, min(1000, -exponent)))
}

// tridiagonal reduces the symmetric matrix s to a tridiagonal one by Householder reflectors. It
// returns the diagonal d and the elements e beside it. Row k of v becomes the vector of reflector
// k, which begins at column k+1. One pass over s does two things: it updates s by one reflector,
// and multiplies s by the vector of the next reflector.
func tridiagonal[T Float](par Parallel, n int, s, v *padded[T], tau []T) (d, e []float64) {
	d, e = make([]float64, n), make([]float64, n)
	work := zeros[T](5, n)
	defer work.release()
	w, minusV, minusW, sum, none := work.row(0), work.row(1), work.row(2), work.row(3), work.row(4)
	last := none // vector of the previous reflector
	for k := range n - 1 {
		i := k + 1
		row := s.row(k)
		for j := k; j < n; j++ {
			row[j] += T(minusV[k]*w[j]) + T(minusW[k]*last[j])
		}
		d[k] = float64(row[k])
		x := v.row(k)
		copy(x[i:n], row[i:n])
		var beta T
		beta, tau[k] = reflect(x[i:n])
		e[k] = float64(beta)
		left := lead(i)
		clear(sum[left:])
		update(par, s, left, minusV, w, minusW, last, x, sum)
		clear(w[:i])
		for j := i; j < n; j++ {
			w[j] = tau[k] * sum[j]
		}
		half := tau[k] / 2 * dot(w[i:n], x[i:n])
		minusV[k], minusW[k] = 0, 0
		for j := i; j < n; j++ {
			w[j] -= T(half * x[j])
			minusV[j], minusW[j] = -x[j], -w[j]
		}
		last = x
	}
	k := n - 1
	d[k] = float64(s.row(k)[k] + T(minusV[k]*w[k]) + T(minusW[k]*last[k]))
	return d, e
}

// update calls rows.Update in parallel on the rows and columns of s from index left on.
func update[T Float](par Parallel, s *padded[T], left int, p, y, q, x, r, sum []T) {
	rows.Update(s.rows-left, s.stride-left, s.from(left, left), s.stride, p[left:], y[left:], q[left:], x[left:], r[left:], sum[left:])
}

// diagonalise finds the eigenvalues of the tridiagonal matrix with the diagonal d and the elements
// e beside it, and leaves them in d. It adds the rotations to r. It makes implicit QR steps with
// Wilkinson's shift (Golub and Van Loan, 8.3.3). Each step begins at that end of the diagonal
// whose element is greater. The small eigenvalues of graded matrices then stay precise. An element
// of e up to about eps times its neighbours counts as 0.
func diagonalise[T Float](d, e []float64, eps float64, r *rotations[T]) bool {
	n := len(d)
	norm := 0.0
	for i := range d {
		norm = max(norm, math.Abs(d[i]), math.Abs(e[i]))
	}
	small := func(i int) bool {
		x := math.Abs(e[i])
		return x <= eps*math.Sqrt(math.Abs(d[i])*math.Abs(d[i+1])) || x <= eps*eps*norm
	}
	steps := 40 * n
	for hi := n - 1; hi > 0; {
		if small(hi - 1) {
			e[hi-1] = 0
			hi--
			continue
		}
		lo := hi - 1
		for lo > 0 && !small(lo-1) {
			lo--
		}
		if lo > 0 {
			e[lo-1] = 0
		}
		if steps--; steps < 0 {
			return false
		}
		if math.Abs(d[lo]) <= math.Abs(d[hi]) {
			qrStep(d, e, hi, lo, r)
		} else {
			qrStep(d, e, lo, hi, r)
		}
	}
	r.flush()
	return true
}

// qrStep makes an implicit QR step on rows first to last. If first is greater than last, the step
// goes upwards (a QL step).
func qrStep[T Float](d, e []float64, first, last int, r *rotations[T]) {
	step, beside := 1, 0 // e[i+beside] is the element between rows i and i+step
	if first > last {
		step, beside = -1, -1
	}
	// Wilkinson's shift is the eigenvalue of the last two rows that is nearer to d[last].
	b := e[last-step+beside]
	g := (d[last-step] - d[last]) / (2 * b)
	shift := d[last] - b/(g+math.Copysign(math.Hypot(g, 1), g))
	g = d[first] - shift
	c, s, p := 1.0, 1.0, 0.0
	cos, sin := r.begin(first, step, (last-first)*step)
	for k := range cos {
		i := first + k*step
		f, b := s*e[i+beside], c*e[i+beside]
		length := math.Sqrt(float64(f*f) + float64(g*g))
		if length > 0x1p-480 {
			inverse := 1 / length
			c, s = g*inverse, f*inverse
		} else { // the squares of small numbers would lose digits by underflow
			c, s, length = rotation(g, f)
		}
		if k > 0 {
			e[i-step+beside] = length
		}
		g = d[i] - p
		t := float64((d[i+step]-g)*s) + float64(2*c*b)
		p = s * t
		d[i] = g + p
		g = float64(c*t) - b
		cos[k], sin[k] = T(c), T(s)
	}
	d[last] -= p
	e[last-step+beside] = g
}
