package linalg

import "github.com/flambeau-go/flambeau/cpu/internal/rows"

// QR decomposes the m×n matrix a. It sets q, m×k, to orthonormal columns and r, k×n, to the upper
// triangular factor. k is min(m, n) or m. The elements of r must be 0 at the start.
//
// Each column is scaled by a power of two of its own, which does not change q. Columns far smaller
// than others thus keep their digits.
//
// One pass over the matrix does two things: it updates the matrix by one reflector, and multiplies
// the matrix by the vector of the next reflector.
func QR[T Float](m, n, k int, a, q, r []T) {
	count := min(m, n)
	scale := columnScales(m, n, a)
	b, v, turned := zeros[T](m, n), zeros[T](count, m), zeros[T](k, m)
	tall, wide := zeros[T](2, m), zeros[T](3, n)
	for _, p := range []*padded[T]{&b, &v, &turned, &tall, &wide} {
		defer p.release()
	}
	for i := range m {
		row := b.row(i)
		for j, x := range a[i*n : (i+1)*n] {
			row[j] = T(float64(x) * scale[j]) // scale may overflow T, so multiply in float64
		}
	}
	minusV, none := tall.row(0), tall.row(1)
	z, sum, zero := wide.row(0), wide.row(1), wide.row(2)
	tau := make([]T, count)
	for c := range count {
		x := v.row(c)
		for i := c; i < m; i++ {
			x[i] = b.a[i*b.stride+c] + T(minusV[i]*z[c])
		}
		var beta T
		beta, tau[c] = reflect(x[c:m])
		r[c*n+c] = T(float64(beta) / scale[c])
		top, left := c&^(rows.Group-1), lead(c+1)
		if left < b.stride {
			clear(sum)
			rows.Update(b.rows-top, b.stride-left, b.from(top, left), b.stride, minusV[top:], z[left:], none[top:], zero[left:], x[top:], sum[left:])
		}
		clear(z[:c+1])
		for j := c + 1; j < n; j++ {
			z[j] = tau[c] * sum[j]
			r[c*n+j] = T(float64(b.a[c*b.stride+j]-z[j]) / scale[j])
		}
		minusV[c] = 0
		for i := c + 1; i < m; i++ {
			minusV[i] = -x[i]
		}
	}
	turned.setIdentity(k)
	accumulate(&turned, &v, tau, 0)
	order := make([]int, k)
	for i := range order {
		order[i] = i
	}
	turned.transposeTo(q, k, order, m)
}

// columnScales returns a power of two for each column of the m×n matrix a. The product of this
// power and the column's greatest magnitude is about 1.
func columnScales[T Float](m, n int, a []T) []float64 {
	most, scale := make([]T, n), make([]float64, n)
	for i := range m {
		for j, x := range a[i*n : (i+1)*n] {
			most[j] = max(most[j], x, -x)
		}
	}
	for j, x := range most {
		scale[j] = powerOfTwo(x)
	}
	return scale
}
