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

	"github.com/flambeau-go/flambeau/cpu/internal/rows"
)

// Float is the type of the elements.
type Float interface{ float32 | float64 }

// Parallel calls f(0) … f(n-1), in any order and on any number of goroutines, and returns when all
// have returned.
type Parallel func(n int, f func(i int))

// padded is a matrix in memory of the package. Its rows and columns are padded with zeros, as
// package rows needs them.
type padded[T Float] struct {
	a      []T
	rows   int // with padding
	stride int // the columns, with padding
	memory *[]T
}

func upTo(n, step int) int { return (n + step - 1) / step * step }

// lead returns the first column from which loops over columns i and later begin.
func lead(i int) int { return i &^ (rows.Width - 1) }

var memory32, memory64 = pool[float32](), pool[float64]()

func pool[T Float]() *sync.Pool { return &sync.Pool{New: func() any { return new([]T) }} }

func poolOf[T Float]() *sync.Pool {
	if _, ok := any(T(0)).(float32); ok {
		return memory32
	}
	return memory64
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

// transposeTo writes the transposed m×n matrix whose rows are the given rows of p: dst[j*ldd+i] is
// element j of row order[i].
func (p *padded[T]) transposeTo(dst []T, ldd int, order []int, n int) {
	const block = 16
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
