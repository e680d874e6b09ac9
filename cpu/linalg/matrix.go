// Package linalg factors matrices of float32 and float64 on the CPU, for package tensor.
//
// Contract:
//
//   - A matrix is row-major. Operands are overwritten where a function says so.
//   - A factorisation computes in the type of its matrix. The iterations that find eigenvalues and
//     singular values compute in float64.
//   - Inner loops are those of packages gemm and rows. So the bits of a result depend on the
//     variant of instructions in use, as those of a product do. They do not depend on the number of
//     workers: work is divided by shapes alone.
//   - The caller checks that elements are finite where a function says so.
package linalg

import (
	"sync"

	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/cpu/internal/rows"
)

// Float is the type of the elements.
type Float interface{ float32 | float64 }

// Parallel calls f(0) … f(n-1), in any order and on any number of goroutines, and returns when all
// have returned.
type Parallel func(n int, f func(i int))

// Matrix is a matrix in the caller's memory. Element (i, j) is Data[i*Row+j*Column].
type Matrix[T Float] struct {
	Data        []T
	Row, Column int
}

// padded is a matrix in memory of the package. Its rows and columns are padded with zeros, as
// package rows requires.
type padded[T Float] struct {
	a      []T
	rows   int // number of rows, including padding
	stride int // number of columns, including padding
	memory *[]T
}

func upTo(n, step int) int { return (n + step - 1) / step * step }

// lead returns the column at which a loop over columns i and later begins: the last multiple of
// rows.Width up to i.
func lead(i int) int { return i &^ (rows.Width - 1) }

var memory32, memory64 = pool[float32](), pool[float64]()

func pool[T Float]() *sync.Pool { return &sync.Pool{New: func() any { return new([]T) }} }

func poolOf[T Float]() *sync.Pool {
	if _, ok := any(T(0)).(float32); ok {
		return memory32
	}
	return memory64
}

// serial is a Parallel that uses only the calling goroutine.
var serial = Parallel(gemm.Serial)

// block is a number of rows or columns. Recursive functions do not halve matrices up to this size.
const block = 16

// halved returns a multiple of block that is about half of n, for n > block.
func halved(n int) int { return max(1, n/2/block) * block }

// rough returns an m×n matrix whose columns are padded. Its elements are undefined. The caller
// releases it.
func rough[T Float](m, n int) padded[T] {
	p := padded[T]{rows: m, stride: upTo(n, rows.Width), memory: poolOf[T]().Get().(*[]T)}
	size := p.rows * p.stride
	if cap(*p.memory) < size {
		*p.memory = make([]T, size)
	}
	*p.memory = (*p.memory)[:size]
	p.a = *p.memory
	return p
}

// load sets row i to row order[i] of the matrix of n columns, and the padding to zeros. If order
// is nil, all rows keep their places.
func (p *padded[T]) load(n int, from Matrix[T], order []int) {
	for i := range p.rows {
		row, k := p.row(i), i
		if order != nil {
			k = order[i]
		}
		clear(row[n:])
		if n == 0 {
			continue
		}
		if from.Column == 1 {
			copy(row[:n], from.Data[k*from.Row:])
			continue
		}
		if order != nil || from.Row != 1 {
			for j := range row[:n] {
				row[j] = from.Data[k*from.Row+j*from.Column]
			}
		}
	}
	if n > 0 && from.Column != 1 && from.Row == 1 && order == nil {
		transpose(p.a, p.stride, from.Data, from.Column, n, p.rows)
	}
}

// whole returns p as a matrix for substitution.
func (p *padded[T]) whole() Matrix[T] { return Matrix[T]{p.a, p.stride, 1} }

// transpose sets dst[j*ldd+i] = src[i*rs+j] for i < m and j < n.
func transpose[T Float](dst []T, ldd int, src []T, rs, m, n int) {
	doneM, doneN := 0, 0
	if d, ok := any(dst).([]float32); ok {
		doneM, doneN = gemm.Transpose32(d, ldd, any(src).([]float32), rs, m, n)
	}
	for i := range m {
		from := 0
		if i < doneM {
			from = doneN
		}
		for j := from; j < n; j++ {
			dst[j*ldd+i] = src[i*rs+j]
		}
	}
}

// addProduct adds a·b to c. The m×k matrix a may have any distances between its elements.
func addProduct[T Float](par Parallel, m, n, k int, a Matrix[T], b []T, ldb int, c []T, ldc int) {
	if x, ok := any(a.Data).([]float32); ok {
		gemm.F32(gemm.Parallel(par), m, n, k, x, a.Row, a.Column, any(b).([]float32), ldb, 1, any(c).([]float32), ldc, 1, true)
		return
	}
	gemm.F64(gemm.Parallel(par), m, n, k, any(a.Data).([]float64), a.Row, a.Column, any(b).([]float64), ldb, 1, any(c).([]float64), ldc, 1, true)
}

// negate changes the sign of the elements, whose number is a multiple of rows.Width.
func negate[T Float](v []T) {
	rows.Substitute(0, 1, len(v), rows.Triangle[T]{Unit: true}, v, 0, 0, true)
}

// zeros returns a matrix of zeros, padded to whole groups of rows and columns. The caller releases
// it.
func zeros[T Float](m, n int) padded[T] {
	p := padded[T]{rows: upTo(m, rows.Group), stride: upTo(n, rows.Width), memory: poolOf[T]().Get().(*[]T)}
	if size := p.rows * p.stride; cap(*p.memory) < size {
		*p.memory = make([]T, size)
	} else {
		*p.memory = (*p.memory)[:size]
		clear(*p.memory)
	}
	p.a = *p.memory
	return p
}

func (p *padded[T]) release() { poolOf[T]().Put(p.memory) }

// row returns row i with its padding.
func (p *padded[T]) row(i int) []T { return p.a[i*p.stride : (i+1)*p.stride : (i+1)*p.stride] }

// from returns the part of the matrix that begins at row i and column j.
func (p *padded[T]) from(i, j int) []T { return p.a[i*p.stride+j:] }

// setIdentity sets the first n elements of the diagonal to 1.
func (p *padded[T]) setIdentity(n int) {
	for i := range n {
		p.a[i*p.stride+i] = 1
	}
}

// transposeTo transposes the rows of p that order lists, each with n elements. It sets dst[j*ldd+i]
// to element j of row order[i].
func (p *padded[T]) transposeTo(dst []T, ldd int, order []int, n int) {
	for lo := 0; lo < len(order); lo += block {
		hi := min(lo+block, len(order))
		for j := range n {
			to := dst[j*ldd+lo : j*ldd+hi]
			for i := range to {
				to[i] = p.a[order[lo+i]*p.stride+j]
			}
		}
	}
}
