package tensor

import (
	"slices"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Factorisations and triangular equations are recursive (S. Toledo, Locality of Reference in LU
// Decomposition with Partial Pivoting, 1997). A matrix is halved, so most of the work is products.
// The CPU device computes the products with SIMD. gonum's routines process the blocks of at most
// hostBlock columns.

const (
	hostBlock = 16
	// products of at least this many multiplications are computed by the CPU device
	hostProduct = 4 << 10
)

// submatrix returns the rows×cols block of a that begins at row i and column j.
func submatrix(a blas64.General, i, j, rows, cols int) blas64.General {
	p := blas64.General{Rows: rows, Cols: cols, Stride: a.Stride}
	if rows > 0 && cols > 0 {
		p.Data = a.Data[i*a.Stride+j : (i+rows-1)*a.Stride+j+cols]
	}
	return p
}

// subtractProduct subtracts a·b from c, or a·bᵀ if transposed is true.
func subtractProduct(c, a, b blas64.General, transposed bool) {
	n := c.Rows * c.Cols
	if n*a.Cols < hostProduct {
		t := blas.NoTrans
		if transposed {
			t = blas.Trans
		}
		blas64.Gemm(blas.NoTrans, t, -1, a, b, 1, c)
		return
	}
	p := hostNumbers.Get().(*[]float64)
	defer hostNumbers.Put(p)
	*p = slices.Grow((*p)[:0], n)[:n]
	m := &device.MatMul{Out: hostView(general(c.Rows, c.Cols, *p)), A: hostView(a), B: hostView(b)}
	if transposed {
		m.B.Layout = m.B.Transpose(1, 2)
	}
	if err := device.Run(hostDevice(), nil, m); err != nil {
		panic(err)
	}
	for i := range c.Rows {
		row := c.Data[i*c.Stride:][:c.Cols]
		for j, v := range (*p)[i*c.Cols:][:c.Cols] {
			row[j] -= v
		}
	}
}

// hostView returns a as an operand of the host's device, a batch of one matrix.
func hostView(a blas64.General) device.View {
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(a.Data))), 8*len(a.Data))
	return device.View{Buf: hostDevice().(device.Borrower).Borrow(mem, nil), Type: dtype.F64,
		Layout: shape.Layout{Shape: shape.Of(1, a.Rows, a.Cols), Strides: shape.Of(0, a.Stride, 1)}}
}

// solveTriangle replaces b by the X for which a·X = b. It reads one triangle of a. If unit is true,
// it takes the diagonal as 1 and does not read it.
func solveTriangle(a, b blas64.General, upper, unit bool) {
	n := a.Rows
	if n <= hostBlock {
		t := blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Stride: a.Stride, Data: a.Data}
		if upper {
			t.Uplo = blas.Upper
		}
		if unit {
			t.Diag = blas.Unit
		}
		blas64.Trsm(blas.Left, blas.NoTrans, 1, t, b)
		return
	}
	h := halved(n)
	first, last := submatrix(b, 0, 0, h, b.Cols), submatrix(b, h, 0, n-h, b.Cols)
	a11, a22 := submatrix(a, 0, 0, h, h), submatrix(a, h, h, n-h, n-h)
	if upper {
		solveTriangle(a22, last, upper, unit)
		subtractProduct(first, submatrix(a, 0, h, h, n-h), last, false)
		solveTriangle(a11, first, upper, unit)
		return
	}
	solveTriangle(a11, first, upper, unit)
	subtractProduct(last, submatrix(a, h, 0, n-h, h), first, false)
	solveTriangle(a22, last, upper, unit)
}

// halved returns about half of n, rounded to a multiple of hostBlock.
func halved(n int) int { return max(1, n/2/hostBlock) * hostBlock }

// factorRows sets a, which has at least as many rows as columns, to its LU factorisation with row
// exchanges. It returns false if a pivot is 0.
func factorRows(a blas64.General, pivots []int) bool {
	n := a.Cols
	if n <= hostBlock {
		return lapack64.Getrf(a, pivots)
	}
	h := halved(n)
	left, right := submatrix(a, 0, 0, a.Rows, h), submatrix(a, 0, h, a.Rows, n-h)
	whole := factorRows(left, pivots[:h])
	exchange(right, pivots[:h])
	top, bottom := submatrix(right, 0, 0, h, n-h), submatrix(right, h, 0, a.Rows-h, n-h)
	below := submatrix(left, h, 0, a.Rows-h, h)
	solveTriangle(submatrix(left, 0, 0, h, h), top, false, true)
	subtractProduct(bottom, below, top, false)
	whole = factorRows(bottom, pivots[h:]) && whole
	exchange(below, pivots[h:])
	for i := range pivots[h:] {
		pivots[h+i] += h
	}
	return whole
}

// exchange exchanges row i of a with row pivots[i], for each i in order.
func exchange(a blas64.General, pivots []int) {
	for i, p := range pivots {
		if p != i && a.Cols > 0 {
			x, y := a.Data[i*a.Stride:][:a.Cols], a.Data[p*a.Stride:][:a.Cols]
			for j, v := range x {
				x[j], y[j] = y[j], v
			}
		}
	}
}

// factorSymmetric sets the lower triangle of a to the lower Cholesky factor, and overwrites the
// rest. It returns false if a is not positive definite.
func factorSymmetric(a blas64.General) bool {
	n := a.Rows
	if n <= hostBlock {
		_, ok := lapack64.Potrf(blas64.Symmetric{Uplo: blas.Lower, N: n, Stride: a.Stride, Data: a.Data})
		return ok
	}
	h := halved(n)
	l, below, rest := submatrix(a, 0, 0, h, h), submatrix(a, h, 0, n-h, h), submatrix(a, h, h, n-h, n-h)
	if !factorSymmetric(l) {
		return false
	}
	solveRight(l, below)
	subtractProduct(rest, below, below, true)
	return factorSymmetric(rest)
}

// solveRight replaces b by the X for which X·lᵀ = b. It reads the lower triangle of l.
func solveRight(l, b blas64.General) {
	n := l.Rows
	if n <= hostBlock {
		blas64.Trsm(blas.Right, blas.Trans, 1, blas64.Triangular{Uplo: blas.Lower, Diag: blas.NonUnit, N: n, Stride: l.Stride, Data: l.Data}, b)
		return
	}
	h := halved(n)
	first, last := submatrix(b, 0, 0, b.Rows, h), submatrix(b, 0, h, b.Rows, n-h)
	solveRight(submatrix(l, 0, 0, h, h), first)
	subtractProduct(last, first, submatrix(l, h, 0, n-h, h), true)
	solveRight(submatrix(l, h, h, n-h, n-h), last)
}
