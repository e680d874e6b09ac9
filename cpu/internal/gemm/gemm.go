// Package gemm multiplies matrices of float32, float64, bfloat16 and int8 on the CPU.
//
// These rules hold:
//
//   - C = A·B, or C += A·B, where A is m×k, B is k×n and C is m×n. Each matrix is given by a slice
//     that begins at its first element, and by the distances between rows and between columns, in
//     elements. Any distances are allowed (transposed operands, slices of larger matrices, distance
//     0 to repeat), but the elements of C must not coincide. C overlaps neither A nor B.
//   - The order of the sum over k is fixed. The sum is divided into blocks, which are computed one
//     after the other. The length of a block depends only on k. If A has few rows, each lane of a
//     vector sums a part of the products. The result's bits depend on the shape, the distances and
//     the variant (package asm's Active). They do not depend on the number of workers or on the
//     distribution of tasks. With AVX2 and AVX-512 each multiplication is fused with its addition.
//     In generic Go each product is rounded first. NaN and infinities behave as in the plain sum,
//     and k = 0 gives zeros.
//   - Factors of bfloat16 have sums in float32 ([BF16]). The instruction is VDPBF16PS of
//     AVX512_BF16. It adds two neighbouring products along k to a sum, the second product first. It
//     rounds to nearest even after each addition. It treats subnormal factors and sums as zeros,
//     and its results are never subnormal. Without the instruction, [BF16] cannot be used.
//   - With AMX, BF16 computes all but small products by TDPBF16PS, in steps of 32 elements along k.
//     A step computes two sums, one of the products of the even elements along k and one of the odd
//     elements. Both begin with zero, and each product is fused with its addition. The two sums are
//     added, and their sum is added to the result, which begins with zero, C or the bias. Zeros
//     fill the last step. Subnormal numbers are treated as by VDPBF16PS. So the bits of such a
//     product depend on k and on the elements, but not on blocks. Whether a product is small
//     depends on its shape alone, and it does not change if the product is transposed.
//   - Factors of int8 have sums in int32 ([Int8]), which wrap. So the result does not depend on the
//     order of the sum, and all variants give the same bits. The instructions are TDPBSSD of AMX,
//     VPDPBUSD of AVX512_VNNI, or VPMADDWD of AVX2. VPDPBUSD needs one unsigned factor. So panels
//     of B then hold each element plus 128, and 128 times the sum of a row of A is subtracted.
//   - Operands are packed into panels as in BLIS (Van Zee and van de Geijn, "BLIS: A Framework
//     for Rapidly Instantiating BLAS Functionality", 2015). The buffers are reused, so that
//     repeated calls allocate nothing. Panels of bfloat16 hold pairs of neighbours along k. The
//     tiles of AMX read A in place if its rows are contiguous. If A has few rows and the columns of
//     B are contiguous, they read B in place. With AVX-512 and AVX2, small and narrow products read
//     A in place, and B too if its rows are contiguous. Products of up to 256 rows also do this, if
//     the rows of A are contiguous. The bits are the same.
//   - Misuse (a negative size, a slice too short) panics with a message that names the operand.
//
// Convolutions of float32 ([Conv]) are products with a matrix of columns (im2col) that is never
// written as a whole. Forward packs panels of columns from the image, or from a copy with its
// padding that stays in the cache. The gradient of the input is computed in the same way, with
// flipped weights. The gradient of the weight reads the input in place, one element at a time. For
// many small images, the columns are not places but images. Each place of the result is then a sum
// of products, one for each element of the convolution's kernel. With AVX-512, weights of 3×3
// without stride use Winograd's form if it pays. If an element is very large beside the others, the
// product with columns is used. Otherwise the rules about the bits of a product also hold for
// convolutions.
//
// cpu/_gen/gemm writes the kernels in assembly.
package gemm

import "fmt"

// Parallel calls f(0) … f(n-1), in any order and on any number of goroutines, and returns when all
// calls have returned. n may be 0.
type Parallel func(n int, f func(i int))

// Serial is a [Parallel] that uses only the calling goroutine.
func Serial(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// F32 computes C = A·B, or C += A·B if accumulate is true. The element (i, j) of A is
// a[i*ars+j*acs], and so on.
func F32(par Parallel, m, n, k int, a []float32, ars, acs int, b []float32, brs, bcs int, c []float32, crs, ccs int, accumulate bool) {
	multiply(par, &poolF32, active32(), plain[float32], m, n, k, operand[float32]{a, ars, acs}, operand[float32]{b, brs, bcs}, result[float32]{c: operand[float32]{c, crs, ccs}, accumulate: accumulate})
}

// F64 is [F32] for float64.
func F64(par Parallel, m, n, k int, a []float64, ars, acs int, b []float64, brs, bcs int, c []float64, crs, ccs int, accumulate bool) {
	multiply(par, &poolF64, active64(), plain[float64], m, n, k, operand[float64]{a, ars, acs}, operand[float64]{b, brs, bcs}, result[float64]{c: operand[float64]{c, crs, ccs}, accumulate: accumulate})
}

// F32Batch computes a batch of products as [F32] does, one after the other on the calling
// goroutine. Element (i, j) of matrix x of A is a[x*apart[0]+i*ars+j*acs], and so on.
func F32Batch(batch int, apart [3]int, m, n, k int, a []float32, ars, acs int, b []float32, brs, bcs int, c []float32, crs, ccs int, accumulate bool) {
	multiplyBatch(Serial, &poolF32, active32(), plain[float32], batch, apart, m, n, k, operand[float32]{a, ars, acs}, operand[float32]{b, brs, bcs}, result[float32]{c: operand[float32]{c, crs, ccs}, accumulate: accumulate})
}

// F64Batch is [F32Batch] for float64.
func F64Batch(batch int, apart [3]int, m, n, k int, a []float64, ars, acs int, b []float64, brs, bcs int, c []float64, crs, ccs int, accumulate bool) {
	multiplyBatch(Serial, &poolF64, active64(), plain[float64], batch, apart, m, n, k, operand[float64]{a, ars, acs}, operand[float64]{b, brs, bcs}, result[float64]{c: operand[float64]{c, crs, ccs}, accumulate: accumulate})
}

// BF16 is [F32] for factors of bfloat16, whose bits are the elements of a and b, with sums in
// float32. It may be called only if [HasBF16] returns true.
func BF16(par Parallel, m, n, k int, a []uint16, ars, acs int, b []uint16, brs, bcs int, c []float32, crs, ccs int, accumulate bool) {
	multiply(par, &poolBF16, activeBF16(), nil, m, n, k, operand[uint16]{a, ars, acs}, operand[uint16]{b, brs, bcs}, result[float32]{c: operand[float32]{c, crs, ccs}, accumulate: accumulate})
}

// BF16Rounded computes C = A·B + bias for matrices of bfloat16. The sums are computed as by [BF16],
// but begin with the bias. Each sum is rounded once, to nearest even. The slice bias has an element
// for each column of C, or is nil.
func BF16Rounded(par Parallel, m, n, k int, a []uint16, ars, acs int, b []uint16, brs, bcs int, bias []float32, c []uint16, crs, ccs int) {
	r := result[float32]{low: operand[uint16]{c, crs, ccs}, rounds: true}
	if bias != nil {
		r.bias, r.accumulate = operand[float32]{bias, 0, 1}, true
		r.bias.check("the bias", 1, n)
	}
	multiply(par, &poolBF16, activeBF16(), nil, m, n, k, operand[uint16]{a, ars, acs}, operand[uint16]{b, brs, bcs}, r)
}

// HasBF16 reports whether products of bfloat16 can be computed, with the instructions in use on
// this processor.
func HasBF16() bool { return activeBF16() != nil }

type float interface{ float32 | float64 }

// factor is the type of the elements of a factor. uint16 holds the bits of a bfloat16.
type factor interface{ float | uint16 }

// operand is a matrix in memory: element (i, j) is data[i*rs+j*cs].
type operand[E any] struct {
	data   []E
	rs, cs int
}

func (o operand[E]) transposed() operand[E] { return operand[E]{o.data, o.cs, o.rs} }

// last returns the last matrix of a batch. apart is the distance in elements between neighbouring
// matrices.
func (o operand[E]) last(batch, apart int) operand[E] {
	o.data = o.data[min((batch-1)*apart, len(o.data)):]
	return o
}

func (o operand[E]) check(name string, rows, cols int) {
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

// multiply computes a product. If tiny is not nil, tiny computes products of few multiplications.
func multiply[E factor, T float](par Parallel, pool *pool[E, T], kern *kernel[E, T], tiny func(m, n, k int, a, b operand[E], c result[T]),
	m, n, k int, a, b operand[E], c result[T]) {
	multiplyBatch(par, pool, kern, tiny, 1, [3]int{}, m, n, k, a, b, c)
}

// multiplyBatch computes a batch of products, one after the other. apart holds the distances
// between neighbouring matrices A, B and C. Only a batch of one product may have a result that is
// rounded.
func multiplyBatch[E factor, T float](par Parallel, pool *pool[E, T], kern *kernel[E, T], tiny func(m, n, k int, a, b operand[E], c result[T]),
	batch int, apart [3]int, m, n, k int, a, b operand[E], c result[T]) {
	if m < 0 || n < 0 || k < 0 || batch < 1 || min(apart[0], apart[1], apart[2]) < 0 {
		panic(fmt.Sprintf("gemm: negative size: m %d, n %d, k %d, batch %d at %v", m, n, k, batch, apart))
	}
	a.last(batch, apart[0]).check("A", m, k)
	b.last(batch, apart[1]).check("B", k, n)
	if c.rounds {
		c.low.check("C", m, n)
	} else {
		c.c.last(batch, apart[2]).check("C", m, n)
	}
	// A tile of C is written row by row. If the columns of C are contiguous, and not its rows,
	// compute Cᵀ = Bᵀ·Aᵀ. Do the same if B is a vector, and for a very narrow C, which would leave
	// most of each tile empty.
	tiled := kern.tiled != nil && min(m, n) >= tiledRows && m*n >= tiledResult && k >= tiledDepth
	narrow := !tiled && n < kern.width && m > n && k >= 64 && 2*m*kern.width > 3*n*ceil(m, kern.width)*kern.width
	narrow = narrow && !(n > 1 && n <= kern.thin && a.cs == 1 && b.cs == 1)
	if rs, cs := c.distances(); cs != 1 && rs == 1 || n == 1 && m > 1 || narrow {
		m, n, a, b, c = n, m, b.transposed(), a.transposed(), c.transposed()
		apart[0], apart[1] = apart[1], apart[0]
	}
	if m*n*k < parallelWork {
		par = Serial
	}
	few := m <= fewRows && k >= dotDepth*m && a.cs == 1 && b.rs == 1 && kern.dots != nil
	simple := m == 0 || n == 0 || k == 0 || tiny != nil && m*n*k <= plainWork
	if !few && !simple && !c.rounds && kern.direct != nil &&
		kern.direct(par, batch, apart, m, n, k, a, b, c.c, c.accumulate) {
		return
	}
	if few && !simple && !tiled && batch > 1 {
		dotBatch(pool, kern, batch, apart, m, n, k, a, b, &c)
		return
	}
	for i := range batch {
		if i > 0 {
			a, b, c.c = a.last(2, apart[0]), b.last(2, apart[1]), c.c.last(2, apart[2])
		}
		switch {
		case m == 0 || n == 0 || k == 0:
			for i := range m {
				for j := range n {
					c.put(i, j, 0)
				}
			}
		case simple:
			tiny(m, n, k, a, b, c)
		case tiled:
			kern.tiled(par, m, n, k, a, b, c)
		case few:
			dots(par, pool, kern, m, n, k, a, b, &c)
		default:
			packed(par, pool, kern, m, n, k, a, b, &c)
		}
	}
}

const (
	plainWork = 64 // up to this number of multiplications, packing takes longer than it saves
	// From this number of multiplications on, several goroutines are faster than one. One core
	// needs some microseconds for this number.
	parallelWork = 250000
	// number of rows of A up to which a product is computed as dot products, if A and B are
	// contiguous along k
	fewRows = 16
	// Tiles of AMX are used if the product has at least tiledRows rows and columns, tiledResult
	// elements in the result, and tiledDepth elements along k. For smaller products, packing B
	// takes too long.
	tiledRows, tiledResult, tiledDepth = 4, 128, 16
	// A product by tiles is turned if A has at most turnedRows rows, and B has at least turnedRatio
	// times as many columns as A has rows. Turned means that Cᵀ = Bᵀ·Aᵀ is computed instead.
	turnedRows, turnedRatio = 32, 4
	// A factor of bfloat16 with this number of elements no longer stays in the second-level cache.
	// For a smaller factor, another order of reading is no faster.
	largeFactor = 1 << 20
	// Dot products are used if k is at least this number times the number of rows of A. For a
	// smaller k, adding up the lanes of each sum takes too long.
	dotDepth = 16
)

// plain computes a product of few multiplications by the definition.
func plain[T float](m, n, k int, a, b operand[T], c result[T]) {
	for i := range m {
		for j := range n {
			var s T
			for p := range k {
				s += T(a.data[i*a.rs+p*a.cs] * b.data[p*b.rs+j*b.cs])
			}
			c.put(i, j, s)
		}
	}
}
