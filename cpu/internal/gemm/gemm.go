// Package gemm multiplies matrices of float32 and float64 on the CPU.
//
// Contract:
//
//   - C = A·B, or C += A·B, where A is m×k, B is k×n and C is m×n. Each is given by a slice that
//     begins at its first element, the distance between rows and the distance between columns, in
//     elements. Any distances will do (transposed operands, slices of larger matrices, distance 0
//     to repeat); those of C must not let elements coincide. C overlaps neither A nor B.
//   - The order of the sum over k is fixed: blocks of a length that depends on k alone, one after
//     the other, or for few rows the lanes of a vector. The bits of the result depend on the shape,
//     the distances and the variant (package asm's Active), not on the number of workers or on who
//     does what. With AVX2 and AVX-512 products are fused with their addition, in generic Go they
//     are rounded. NaN and infinities behave as in the plain sum; k = 0 gives zeros.
//   - Operands are packed into panels as in BLIS (Van Zee and van de Geijn, "BLIS: A Framework for
//     Rapidly Instantiating BLAS Functionality", 2015). The buffers are reused; in the steady state
//     nothing is allocated.
//   - Misuse (a negative size, a slice too short) panics with a message that names the operand.
//
// Convolutions of float32 ([Conv]) are products with a matrix of columns that is never written.
// Forward, and for the input's gradient with the weights turned round, panels of columns are packed
// from the picture, or from a copy with its padding that stays in the cache. For the weight's
// gradient an operand is read where it is, an element at a time. The same holds of their bits as of
// a product's.
//
// The kernels in assembly are written by cpu/_gen/gemm.
package gemm

import "fmt"

// Parallel calls f(0) … f(n-1), in any order and on any number of goroutines, and returns when all
// have returned.
type Parallel func(n int, f func(i int))

// Serial is the [Parallel] without goroutines.
func Serial(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// F32 computes C = A·B, or C += A·B if accumulate is true. The element (i, j) of A is
// a[i*ars+j*acs], and so on.
func F32(par Parallel, m, n, k int, a []float32, ars, acs int, b []float32, brs, bcs int, c []float32, crs, ccs int, accumulate bool) {
	multiply(par, &poolF32, active32(), m, n, k, operand[float32]{a, ars, acs}, operand[float32]{b, brs, bcs}, operand[float32]{c, crs, ccs}, accumulate)
}

// F64 is [F32] for float64.
func F64(par Parallel, m, n, k int, a []float64, ars, acs int, b []float64, brs, bcs int, c []float64, crs, ccs int, accumulate bool) {
	multiply(par, &poolF64, active64(), m, n, k, operand[float64]{a, ars, acs}, operand[float64]{b, brs, bcs}, operand[float64]{c, crs, ccs}, accumulate)
}

type float interface{ float32 | float64 }

// An operand is a matrix in memory: element (i, j) is data[i*rs+j*cs].
type operand[T float] struct {
	data   []T
	rs, cs int
}

func (o operand[T]) transposed() operand[T] { return operand[T]{o.data, o.cs, o.rs} }

func (o operand[T]) check(name string, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	if o.rs < 0 || o.cs < 0 {
		panic(fmt.Sprintf("gemm: negative distance between elements of %s: rows %d, columns %d", name, o.rs, o.cs))
	}
	if last := (rows-1)*o.rs + (cols-1)*o.cs; last >= len(o.data) {
		panic(fmt.Sprintf("gemm: %s holds %d elements, too few for %d×%d with distances %d and %d", name, len(o.data), rows, cols, o.rs, o.cs))
	}
}

func multiply[T float](par Parallel, pool *pool[T], kern *kernel[T], m, n, k int, a, b, c operand[T], accumulate bool) {
	if m < 0 || n < 0 || k < 0 {
		panic(fmt.Sprintf("gemm: negative size: m %d, n %d, k %d", m, n, k))
	}
	a.check("A", m, k)
	b.check("B", k, n)
	c.check("C", m, n)
	if m == 0 || n == 0 || k == 0 {
		if !accumulate {
			for i := range m {
				for j := range n {
					c.data[i*c.rs+j*c.cs] = 0
				}
			}
		}
		return
	}
	// The tiles are written row by row: a C whose columns are contiguous is computed as Cᵀ = Bᵀ·Aᵀ.
	// So is a product with a vector, which then has m = 1, and one so narrow that most of a tile
	// would be empty.
	narrow := n < kern.width && m > n && k >= 64 && 2*m*kern.width > 3*n*ceil(m, kern.width)*kern.width
	if c.cs != 1 && c.rs == 1 || n == 1 && m > 1 || narrow {
		m, n, a, b, c = n, m, b.transposed(), a.transposed(), c.transposed()
	}
	if m*n*k < parallelWork {
		par = Serial
	}
	switch {
	case m*n*k <= plainWork:
		plain(m, n, k, a, b, c, accumulate)
	case m <= fewRows && k >= dotDepth*m && a.cs == 1 && b.rs == 1 && kern.dots != nil:
		dots(par, pool, kern, m, n, k, a, b, c, accumulate)
	default:
		packed(par, pool, kern, m, n, k, a, b, c, accumulate)
	}
}

const (
	plainWork = 64 // multiplications up to which packing does not pay
	// multiplications from which several goroutines pay: some microseconds on one core
	parallelWork = 250000
	// rows of A up to which B is read in place, if both are contiguous along k
	fewRows  = 16
	dotDepth = 16 // k to the row from which it pays: the lanes of each sum must be added up
)

// plain is the definition, for tiny products.
func plain[T float](m, n, k int, a, b, c operand[T], accumulate bool) {
	for i := range m {
		for j := range n {
			var s T
			for p := range k {
				s += T(a.data[i*a.rs+p*a.cs] * b.data[p*b.rs+j*b.cs])
			}
			put(c.data, i*c.rs+j*c.cs, s, accumulate)
		}
	}
}

func put[T float](c []T, at int, s T, accumulate bool) {
	if accumulate {
		s += c[at]
	}
	c[at] = s
}
