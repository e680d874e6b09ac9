package linalg

import (
	"math"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/cpu/internal/rows"
)

// LU is the factorisation P·A = L·U of an n×n matrix A with row exchanges. The diagonal of L is 1.
// One matrix holds both factors: U, and below the diagonal the elements of -L. Because of the
// sign, package gemm can add the products that elimination subtracts.
type LU[T Float] struct {
	n      int
	f      padded[T]
	order  []int // row i of P·A is row order[i] of A
	odd    bool  // the number of exchanges is odd
	zero   int   // number of the first pivot that is 0, counted from 1; 0 if there is none
	panels padded[T]
	above  [block]T // elements of U in a column of a panel
}

// Factor factors the n×n matrix a, which it does not change. The caller releases the result.
//
// The factorisation is recursive, like substitution. A panel of few columns is factored in
// transposed form, so that its columns are contiguous.
func Factor[T Float](par Parallel, n int, a Matrix[T]) *LU[T] {
	lu, _ := factorsOf[T]().Get().(*LU[T])
	if lu == nil {
		lu = new(LU[T])
	}
	lu.n, lu.f, lu.odd, lu.zero = n, rough[T](n, n), false, 0
	lu.f.load(n, a, nil)
	lu.order = slices.Grow(lu.order[:0], n)[:n]
	for i := range lu.order {
		lu.order[i] = i
	}
	if n <= block {
		lu.small()
		return lu
	}
	lu.panels = rough[T](block+1, n)
	lu.factor(par, 0, n)
	lu.panels.release()
	return lu
}

var factors32, factors64 sync.Pool // of *LU

func factorsOf[T Float]() *sync.Pool {
	if _, ok := any(T(0)).(float32); ok {
		return &factors32
	}
	return &factors64
}

// Release gives the memory of the factors back. The factorisation cannot be used any more.
func (lu *LU[T]) Release() {
	lu.f.release()
	factorsOf[T]().Put(lu)
}

// ZeroPivot returns the number, counted from 1, of the first pivot that is 0. It returns 0 if there
// is none.
func (lu *LU[T]) ZeroPivot() int { return lu.zero }

// Sign returns the sign of the permutation.
func (lu *LU[T]) Sign() float64 {
	if lu.odd {
		return -1
	}
	return 1
}

// Pivot returns element i of U's diagonal.
func (lu *LU[T]) Pivot(i int) T { return lu.f.a[i*lu.f.stride+i] }

func (lu *LU[T]) lower() triangle[T] {
	return triangle[T]{Matrix: lu.f.whole(), unit: true, negated: true}
}

func (lu *LU[T]) upper() triangle[T] { return triangle[T]{Matrix: lu.f.whole(), upper: true} }

// factor factors columns lo to hi-1, in the rows from lo on.
func (lu *LU[T]) factor(par Parallel, lo, hi int) {
	if hi-lo <= block {
		lu.panel(lo, hi)
		return
	}
	f := &lu.f
	h := lo + halved(hi-lo)
	lu.factor(par, lo, h)
	l, right, width := lu.lower(), f.a[h:], upTo(hi-h, rows.Width)
	l.substitute(par, lo, h, right, f.stride, width)
	l.apply(par, h, lu.n, lo, h, right, f.stride, width)
	lu.factor(par, h, hi)
}

// small factors a matrix of at most one panel, whose loops are too short for package rows.
func (lu *LU[T]) small() {
	n, stride := lu.n, lu.f.stride
	for k := range n {
		most, big := k, uint64(0)
		for i := k; i < n; i++ { // as in largest
			if v := math.Float64bits(float64(lu.f.a[i*stride+k])) &^ (1 << 63); v > big {
				most, big = i, v
			}
		}
		x := lu.f.row(k)
		if most != k {
			y := lu.f.row(most)
			for j, v := range x {
				x[j], y[j] = y[j], v
			}
			lu.order[k], lu.order[most] = lu.order[most], lu.order[k]
			lu.odd = !lu.odd
		}
		if x[k] == 0 {
			if lu.zero == 0 {
				lu.zero = k + 1
			}
			continue
		}
		from := x[k+1 : n]
		i := k + 1
		for ; i+2 <= n; i += 2 { // two rows at a time
			y, z := lu.f.a[i*stride+k:i*stride+n], lu.f.a[(i+1)*stride+k:(i+1)*stride+n]
			f, g := -y[0]/x[k], -z[0]/x[k]
			y[0], z[0] = f, g
			y, z = y[1:][:len(from)], z[1:][:len(from)]
			for j, v := range from {
				y[j] += T(f * v)
				z[j] += T(g * v)
			}
		}
		if i < n {
			y := lu.f.a[i*stride+k : i*stride+n]
			f := -y[0] / x[k]
			y[0] = f
			y = y[1:][:len(from)]
			for j, v := range from {
				y[j] += T(f * v)
			}
		}
	}
}

// panel factors columns lo to hi-1. It computes a column from the columns before it, as Crout
// does.
func (lu *LU[T]) panel(lo, hi int) {
	f, m, w := &lu.f, lu.n-lo, hi-lo
	p := padded[T]{a: lu.panels.a, rows: w, stride: upTo(m, rows.Width)}
	transpose(p.a, p.stride, f.from(lo, lo), f.stride, m, w)
	for k := range w {
		column := p.row(k)
		clear(column[m:])
		// the first k elements are those of U
		u := lu.above[:]
		for i := range k {
			v := column[i]
			for j := range i {
				v += T(p.a[j*p.stride+i] * u[j])
			}
			u[i] = v
		}
		rows.Substitute(k, k+1, p.stride, rows.Triangle[T]{Data: u, Column: 1, Unit: true}, p.a, 0, p.stride, false)
		most := k + largest(column[k:m])
		lu.exchange(&p, lo, k, most)
		u[k] = column[k]
		if u[k] != 0 {
			rows.Substitute(0, 1, p.stride, rows.Triangle[T]{Data: u[k : k+1]}, p.a, k*p.stride, 0, true)
		} else if lu.zero == 0 {
			lu.zero = lo + k + 1
		}
		copy(column[:k+1], u[:k+1])
	}
	transpose(f.from(lo, lo), f.stride, p.a, p.stride, w, m)
}

// exchange exchanges rows lo+i and lo+k of the matrix, and columns i and k of the panel p.
func (lu *LU[T]) exchange(p *padded[T], lo, i, k int) {
	if i == k {
		return
	}
	for j := range p.rows {
		row := p.row(j)
		row[i], row[k] = row[k], row[i]
	}
	x, y, spare := lu.f.row(lo+i), lu.f.row(lo+k), lu.panels.row(lu.panels.rows-1)
	copy(spare, x)
	copy(x, y)
	copy(y, spare)
	lu.order[lo+i], lu.order[lo+k] = lu.order[lo+k], lu.order[lo+i]
	lu.odd = !lu.odd
}

// largest returns the place of the first element of greatest magnitude. NaN counts as greater than
// numbers.
func largest[T Float](v []T) (at int) {
	if x, ok := any(v).([]float32); ok {
		most := uint32(0)
		for i, e := range x {
			if b := math.Float32bits(e) &^ (1 << 31); b > most {
				most, at = b, i
			}
		}
		return at
	}
	most := uint64(0)
	for i, e := range any(v).([]float64) {
		if b := math.Float64bits(e) &^ (1 << 63); b > most {
			most, at = b, i
		}
	}
	return at
}

// Solve sets x to the solution X of A·X = B. x is n×k and row-major. If a pivot is 0, X consists of
// infinities and NaN.
func (lu *LU[T]) Solve(par Parallel, k int, b Matrix[T], x []T) {
	if lu.n == 0 || k == 0 {
		return
	}
	l, u := lu.lower(), lu.upper()
	withRight(lu.n, k, b, lu.order, x, func(x []T, ldx int) {
		overColumns(par, ldx, func(par Parallel, from, width int) {
			l.substitute(par, 0, lu.n, x[from:], ldx, width)
			u.substitute(par, 0, lu.n, x[from:], ldx, width)
		})
	})
}

// Inverse sets x, n×n and row-major, to the inverse of A, which is U⁻¹·L⁻¹·P. Column j of L⁻¹
// begins at row j. For a group of columns from column j on, substitution begins at row j too.
func (lu *LU[T]) Inverse(par Parallel, x []T) {
	n := lu.n
	if n == 0 {
		return
	}
	l, u := lu.lower(), lu.upper()
	overColumns(par, lu.f.stride, func(par Parallel, from, width int) {
		y := rough[T](n, width)
		defer y.release()
		clear(y.a)
		count := min(width, n-from)
		for j := range count {
			y.a[(from+j)*y.stride+j] = 1
		}
		l.substitute(par, from, n, y.a, y.stride, width)
		u.substitute(par, 0, n, y.a, y.stride, width)
		order := lu.order[from : from+count]
		for i := range n {
			row, to := y.row(i), x[i*n:(i+1)*n]
			for j, at := range order {
				to[at] = -row[j]
			}
		}
	})
}
