// Package rows has the inner loops of matrix factorisations on the CPU: sums, updates, rotations
// and substitutions of rows.
//
// These rules hold:
//
//   - A matrix is a slice that begins at its first element, with the distance between rows. Its
//     number of rows is a multiple of [Group], and its number of columns a multiple of [Width]. The
//     caller pads matrices and vectors with zeros. Without rows or columns, a kernel does nothing.
//   - Operands do not overlap.
//   - With AVX2 and AVX-512 each multiplication is fused with its addition. In generic Go each
//     product is rounded first. A sum over rows is in the order of the rows. A sum along a row has
//     as many parts as a vector has lanes. So the bits depend on the variant (package asm's
//     Active), as those of package gemm do, and on nothing else.
//   - Kernels run on the calling goroutine and allocate nothing.
//
// cpu/_gen/rows writes the kernels in assembly.
package rows

import (
	"math"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

const (
	Group = 4  // the number of rows is a multiple of this
	Width = 16 // the number of columns is a multiple of this
)

// Float is the type of the elements.
type Float interface{ float32 | float64 }

// kernels holds the loops of a variant. Their sizes are positive.
type kernels[T Float] struct {
	update  func(rows, n int, a *T, lda int, p, y, q, x, r, sum *T)
	add     func(rows, n int, a *T, lda int, p, y *T)
	combine func(rows, n int, a *T, lda int, r, sum *T)
	dots    func(rows, n int, a *T, lda int, x, out *T)
	rotate  func(count, n int, a *T, lda int, cos, sin *T)

	substitute func(first, m, n int, a *T, ars, acs int, x *T, ldx, unit int, sign T)
}

// active returns the kernels of the variant in use.
func active[T Float]() *kernels[T] {
	var k any
	if _, ok := any(T(0)).(float32); ok {
		k = kernels32(asm.Active())
	} else {
		k = kernels64(asm.Active())
	}
	return k.(*kernels[T])
}

var generic32, generic64 = genericOf[float32](), genericOf[float64]()

func genericOf[T Float]() *kernels[T] {
	return &kernels[T]{updateGo[T], addGo[T], combineGo[T], dotsGo[T], rotateGo[T], substituteGo[T]}
}

// matrix checks that a holds m rows of n columns. It reports whether the matrix has elements.
func matrix[T Float](m, n int, a []T, lda int) bool {
	if m%Group != 0 || n%Width != 0 || m < 0 || n < 0 {
		panic("rows: the size of a matrix is not padded")
	}
	if m == 0 || n == 0 {
		return false
	}
	_ = a[:(m-1)*lda+n]
	return true
}

// Update computes a[i*lda+j] += p[i]*y[j] + q[i]*x[j], and then sum[j] += r[i]*a[i*lda+j], for i <
// m and j < n.
func Update[T Float](m, n int, a []T, lda int, p, y, q, x, r, sum []T) {
	if matrix(m, n, a, lda) {
		p, q, r, y, x, sum = p[:m], q[:m], r[:m], y[:n], x[:n], sum[:n]
		active[T]().update(m, n, &a[0], lda, &p[0], &y[0], &q[0], &x[0], &r[0], &sum[0])
	}
}

// Add computes a[i*lda+j] += p[i]*y[j], for i < m and j < n.
func Add[T Float](m, n int, a []T, lda int, p, y []T) {
	if matrix(m, n, a, lda) {
		p, y = p[:m], y[:n]
		active[T]().add(m, n, &a[0], lda, &p[0], &y[0])
	}
}

// Combine computes sum[j] += r[i]*a[i*lda+j], for i < m and j < n.
func Combine[T Float](m, n int, a []T, lda int, r, sum []T) {
	if matrix(m, n, a, lda) {
		r, sum = r[:m], sum[:n]
		active[T]().combine(m, n, &a[0], lda, &r[0], &sum[0])
	}
}

// Dots computes out[i] = Σ a[i*lda+j]*x[j] over j < n, for i < m.
func Dots[T Float](m, n int, a []T, lda int, x, out []T) {
	if matrix(m, n, a, lda) {
		x, out = x[:n], out[:m]
		active[T]().dots(m, n, &a[0], lda, &x[0], &out[0])
	}
}

// Rotate applies rotations one after the other to rows of n columns. Rotation i replaces x, the row
// that begins at first+i*step, and y, the next one at first+(i+1)*step, by cos[i]*x + sin[i]*y and
// cos[i]*y - sin[i]*x. n is a multiple of Width, and step may be negative.
func Rotate[T Float](n int, a []T, first, step int, cos, sin []T) {
	count := len(cos)
	if n%Width != 0 {
		panic("rows: the width of rotated rows is not padded")
	}
	if count == 0 || n == 0 {
		return
	}
	last := first + count*step
	_, _ = a[min(first, last)], a[max(first, last)+n-1]
	active[T]().rotate(count, n, &a[first], step, &cos[0], &sin[:count][0])
}

// Triangle is the lower triangle of a matrix whose element (i, k) is Data[First+i*Row+k*Column].
// The distances Row and Column may be negative.
type Triangle[T Float] struct {
	Data               []T
	First, Row, Column int
	Unit               bool // the diagonal is 1, and is not read
}

// Substitute computes, for lo <= i < hi, in order, and j < n,
//
//	x[i][j] = ±(x[i][j] + Σ a[i][k]*x[k][j]) / a[i][i]   (sum over k < i)
//
// with minus if negate is true. Row i of x begins at first+i*step. n is a multiple of Width, and
// step may be negative. If lo is hi-1, row lo is the only row of a that is read.
func Substitute[T Float](lo, hi, n int, a Triangle[T], x []T, first, step int, negate bool) {
	if n%Width != 0 || lo < 0 {
		panic("rows: the width of substituted rows is not padded")
	}
	if lo >= hi || n == 0 {
		return
	}
	last := first + (hi-1)*step
	_, _ = x[min(first, last)], x[max(first, last)+n-1]
	diagonal, below := a.First+(hi-1)*(a.Row+a.Column), a.First+(hi-1)*a.Row
	if !a.Unit {
		_, _ = a.Data[a.First+lo*(a.Row+a.Column)], a.Data[diagonal]
	}
	if hi > 1 {
		_, _, _ = a.Data[a.First+max(lo, 1)*a.Row], a.Data[below], a.Data[diagonal-a.Column]
	}
	unit, sign := 0, T(0)
	if a.Unit {
		unit = 1
	}
	if negate {
		sign = T(math.Copysign(0, -1))
	}
	active[T]().substitute(lo, hi, n, start(a.Data, a.First), a.Row, a.Column, &x[first], step, unit, sign)
}

// start returns the address of v[i], or nil if v is empty. A unit triangle of one row may be empty.
func start[T Float](v []T, i int) *T {
	if len(v) == 0 {
		return nil
	}
	return &v[i]
}
