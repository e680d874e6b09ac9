package linalg

import (
	"math"

	"github.com/flambeau-go/flambeau/cpu/internal/rows"
)

// Cholesky sets l, row-major, to the lower triangular matrix L for which L·Lᵀ is the symmetric n×n
// matrix a. It reads the lower triangle of a. If a is not positive definite, Cholesky returns the
// order of the first leading minor that is not positive, otherwise 0.
//
// It computes U = Lᵀ by rows, because the rows of a block of U are contiguous. Like substitution,
// it halves the matrix recursively, so that most of the work is products.
func Cholesky[T Float](par Parallel, n int, a Matrix[T], l []T) (minor int) {
	if n <= block {
		return smallCholesky(n, a, l)
	}
	u, spare := rough[T](n, n), rough[T](n/2+block, n/2+block)
	defer u.release()
	defer spare.release()
	for lo := 0; lo < n; lo += block {
		hi := min(lo+block, n)
		switch {
		case a.Column == 1:
			transpose(u.a[lo:], u.stride, a.Data[lo*a.Row:], a.Row, hi-lo, hi)
		case a.Row == 1:
			for j := lo; j < hi; j++ {
				copy(u.row(j)[j:n], a.Data[j*a.Column+j:])
			}
		default:
			for i := lo; i < hi; i++ {
				for j := range i + 1 {
					u.a[j*u.stride+i] = a.Data[i*a.Row+j*a.Column]
				}
			}
		}
	}
	for i := range n { // what is below the diagonal of U is never used
		row := u.row(i)
		clear(row[lead(i):i])
		clear(row[n:])
	}
	f := upperFactor[T]{u: &u, spare: &spare}
	if minor = f.factor(par, 0, n); minor != 0 {
		return minor
	}
	for lo := 0; lo < n; lo += block {
		hi := min(lo+block, n)
		transpose(l[lo*n:], n, u.a[lo:], u.stride, hi, hi-lo)
		for i := lo; i < hi; i++ {
			clear(l[i*n+i+1 : (i+1)*n])
		}
	}
	return 0
}

// smallCholesky does what Cholesky does for a small matrix. It uses plain loops, because rows of
// this length are too short for package rows.
func smallCholesky[T Float](n int, a Matrix[T], l []T) (minor int) {
	for i := range n {
		x := l[i*n : (i+1)*n : (i+1)*n]
		for j := range i + 1 {
			y := l[j*n : j*n+j+1]
			v := a.Data[i*a.Row+j*a.Column]
			for k, f := range x[:j] {
				v -= T(f * y[k])
			}
			if j < i {
				x[j] = v / y[j]
				continue
			}
			if !(v > 0) {
				return i + 1
			}
			x[i] = T(math.Sqrt(float64(v)))
		}
		clear(x[i+1:])
	}
	return 0
}

// rowsOfUpdate is the greatest number of rows that one product updates. A product computes whole
// blocks on the diagonal, although only half of each block is needed.
const rowsOfUpdate = 128

// upperFactor is the factor U of a matrix while it is computed.
type upperFactor[T Float] struct {
	u, spare *padded[T] // spare holds the negative of rows of U
	c        [block]T   // the negative of elements of a column of U
}

// factor computes rows lo to hi-1, in all columns.
func (f *upperFactor[T]) factor(par Parallel, lo, hi int) (minor int) {
	if hi-lo <= block {
		return f.rows(lo, hi)
	}
	u, spare, h := f.u, f.spare.a, lo+halved(hi-lo)
	if minor = f.factor(par, lo, h); minor != 0 {
		return minor
	}
	for from := h; from < hi; from += rowsOfUpdate {
		m, k := min(rowsOfUpdate, hi-from), h-lo
		width := upTo(m, rows.Width)
		for i := range k {
			copy(spare[i*width:(i+1)*width], u.from(lo+i, from))
		}
		negate(spare[:k*width])
		addProduct(par, m, u.stride-from, k, Matrix[T]{spare, 1, width}, u.from(lo, from), u.stride, u.from(from, from), u.stride)
	}
	return f.factor(par, h, hi)
}

// rows computes rows lo to hi-1, each from the rows before it.
func (f *upperFactor[T]) rows(lo, hi int) (minor int) {
	u, c := f.u, f.c[:]
	width := u.stride - lo
	for k := lo; k < hi; k++ {
		for j := lo; j < k; j++ {
			c[j-lo] = -u.a[j*u.stride+k]
		}
		rows.Substitute(k-lo, k-lo+1, width, rows.Triangle[T]{Data: c, Column: 1, Unit: true}, u.a, lo*u.stride+lo, u.stride, false)
		d := u.a[k*u.stride+k]
		if !(d > 0) {
			return k + 1
		}
		c[0] = T(math.Sqrt(float64(d)))
		rows.Substitute(0, 1, width, rows.Triangle[T]{Data: c[:1]}, u.a, k*u.stride+lo, 0, false)
		u.a[k*u.stride+k] = c[0]
	}
	return 0
}
