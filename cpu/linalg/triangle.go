package linalg

import "github.com/flambeau-go/flambeau/cpu/internal/rows"

// triangle is a triangle of a matrix, for substitution. Substitution only adds products, because
// package gemm does not subtract. So its result is -X, where X is the solution. If negated is true,
// the elements off the diagonal have the opposite sign, and the result is X.
type triangle[T Float] struct {
	Matrix[T]
	upper   bool
	unit    bool // the diagonal is 1, and is not read
	negated bool // the elements off the diagonal are those of the negative matrix
}

// columnsOfTask is the number of columns of a right-hand side that a task solves.
const columnsOfTask = 64

// overColumns calls f for groups of at most columnsOfTask columns. width must be a multiple of
// rows.Width, and so is the number of columns in each group. If there is only one group, f may
// use par.
func overColumns(par Parallel, width int, f func(par Parallel, from, width int)) {
	if width <= columnsOfTask {
		f(par, 0, width)
		return
	}
	par(upTo(width, columnsOfTask)/columnsOfTask, func(i int) {
		from := i * columnsOfTask
		f(serial, from, min(columnsOfTask, width-from))
	})
}

// substitute replaces rows lo to hi-1 of the right-hand side x by the solution, or by its
// negative. It is recursive (S. Toledo, Locality of Reference in LU Decomposition with Partial
// Pivoting, 1997): the triangle is halved, so that most of the work is products. Row i of x begins
// at i*ldx.
func (t *triangle[T]) substitute(par Parallel, lo, hi int, x []T, ldx, width int) {
	diagonal := t.Row + t.Column
	if hi-lo <= 2*block {
		a := rows.Triangle[T]{Data: t.Data, First: lo * diagonal, Row: t.Row, Column: t.Column, Unit: t.unit}
		first, step := lo*ldx, ldx
		if t.upper { // from the last row to the first one
			a.First, a.Row, a.Column = (hi-1)*diagonal, -t.Row, -t.Column
			first, step = (hi-1)*ldx, -ldx
		}
		rows.Substitute(0, hi-lo, width, a, x, first, step, !t.negated)
		return
	}
	h := lo + halved(hi-lo)
	if t.upper {
		t.substitute(par, h, hi, x, ldx, width)
		t.apply(par, lo, h, h, hi, x, ldx, width)
		t.substitute(par, lo, h, x, ldx, width)
		return
	}
	t.substitute(par, lo, h, x, ldx, width)
	t.apply(par, h, hi, lo, h, x, ldx, width)
	t.substitute(par, h, hi, x, ldx, width)
}

// apply multiplies rows r0 to r1-1 of t, in columns c0 to c1-1, by rows c0 to c1-1 of x. It adds
// the product to rows r0 to r1-1 of x.
func (t *triangle[T]) apply(par Parallel, r0, r1, c0, c1 int, x []T, ldx, width int) {
	a := Matrix[T]{t.Data[r0*t.Row+c0*t.Column:], t.Row, t.Column}
	addProduct(par, r1-r0, width, c1-c0, a, x[c0*ldx:], ldx, x[r0*ldx:], ldx)
}

// SolveTriangle sets x to the solution X of A·X = B, where A is a triangle of the n×n matrix a. x
// is n×k and row-major. If unit is true, the diagonal counts as 1 and is not read.
func SolveTriangle[T Float](par Parallel, n, k int, a Matrix[T], upper, unit bool, b Matrix[T], x []T) {
	if n == 0 || k == 0 {
		return
	}
	t := triangle[T]{Matrix: a, upper: upper, unit: unit}
	withRight(n, k, b, nil, x, func(x []T, ldx int) {
		overColumns(par, ldx, func(par Parallel, from, width int) {
			t.substitute(par, 0, n, x[from:], ldx, width)
		})
	})
}

// withRight calls f on a copy of the n×k right-hand side b whose columns are padded. Row i of the
// copy is row order[i] of b, or row i if order is nil. f replaces the copy by the negative of the
// solution. withRight sets x to the solution.
func withRight[T Float](n, k int, b Matrix[T], order []int, x []T, f func(x []T, ldx int)) {
	p := padded[T]{a: x, rows: n, stride: k}
	if k%rows.Width != 0 {
		p = rough[T](n, k)
		defer p.release()
	}
	p.load(k, b, order)
	f(p.a, p.stride)
	negate(p.a[:n*p.stride])
	if p.stride != k {
		for i := range n {
			copy(x[i*k:(i+1)*k], p.row(i))
		}
	}
}
