package gemm

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// kernel holds the functions and sizes for products with one set of instructions.
type kernel[E factor, T float] struct {
	height, width int // number of rows and columns of a tile of C
	// distance in a packed panel of A between neighbours along k, in elements; at least height
	stride int
	block  int // greatest length of a block of k
	masked bool
	// If pairs is true, packed panels hold pairs of neighbours along k and not single elements. It
	// is true for uint16. Distances and k then count pairs, except in the functions of dots. If k
	// is odd, the second half of the last pair is zero.
	pairs bool
	// micro[h] computes a tile of h rows of C over a block of k: c[r*ldc+j] (+)= Σ
	// a[p*stride+r]·b[p*ldb+j], for p < k and j < w. If masked is false, w must be width. The
	// kernel may prefetch memory from next on.
	micro []func(k int, a, b *E, ldb int, c *T, ldc, w, accumulate int, next *E)
	// shares is the number of equal parts, called shares, of a panel of B. One call of micro
	// prefetches one share. If micro prefetches nothing, shares is 0.
	shares int
	// transpose packs h rows that are contiguous along k. It sets dst[p*ldd+r] to
	// src[min(r,h-1)*rs+p], for r < group and p < k. The argument k must be a multiple of step.
	// transpose may be nil.
	transpose   func(dst *E, ldd int, src *E, rs, h, k int)
	group, step int
	// interleave[n] packs k pairs of rows of h elements each, in panels that are n vectors wide.
	// Only kernels with pairs have it.
	interleave []func(dst, src *E, ks, h, k int)
	// copyRows[n], for n = 1 and 2, copies k rows of n vectors each to contiguous memory. The list
	// may be nil.
	copyRows []func(dst, src *byte, distance, k int)
	vector   int // size of a vector in bytes
	// streaming packs as this kernel does, but by stores that bypass the caches. The address of dst
	// must be a multiple of the vector's size. streaming may be nil.
	streaming *kernel[E, T]
	// dots[h] computes the dot products of h rows with dotWidth columns, and dots1[h] those of h
	// rows with one column. The lists may be nil.
	dots, dots1 []dotKernel[E, T]
	dotWidth    int
	// rowDots computes the dot products of one row with n columns, where n is a multiple of 4. It
	// may be nil.
	rowDots func(k int, a, b *E, ldb, n int, out *T)
	// direct computes a batch of products without packing A, if that is faster. Otherwise it
	// returns false. It may be nil.
	direct func(par Parallel, batch int, apart [3]int, m, n, k int, a, b operand[E], c operand[T], accumulate bool) bool
	// If a product has at most thin columns, and all rows are contiguous, direct is faster than
	// computing the transposed product.
	thin int
	// tiled computes a product by the tiles of AMX. It may be nil.
	tiled func(par Parallel, m, n, k int, a, b operand[E], c result[T])
}

type (
	kernel32   = kernel[float32, float32]
	kernel64   = kernel[float64, float64]
	kernelBF16 = kernel[uint16, float32]
)

// even rounds k up to an even number if panels hold pairs.
func (kern *kernel[E, T]) even(k int) int {
	if kern.pairs {
		k += k & 1
	}
	return k
}

// steps returns the number of elements that a packed panel has along k. If panels hold pairs, it
// counts pairs.
func (kern *kernel[E, T]) steps(k int) int {
	if kern.pairs {
		return (k + 1) / 2
	}
	return k
}

var generic32 = kernel32{height: 4, width: 4, stride: 4, block: 256, masked: true, micro: microGo[float32]()}
var generic64 = kernel64{height: 4, width: 4, stride: 4, block: 256, masked: true, micro: microGo[float64]()}

func active32() *kernel32 {
	if k := kernels32[asm.Active()]; k != nil {
		return k
	}
	return &generic32
}

func active64() *kernel64 {
	if k := kernels64[asm.Active()]; k != nil {
		return k
	}
	return &generic64
}

// microGo returns the kernels of tiles in plain Go. The index is the number of rows.
func microGo[T float]() (fs []func(k int, a, b *T, ldb int, c *T, ldc, w, accumulate int, next *T)) {
	for h := range 5 {
		fs = append(fs, func(k int, a, b *T, ldb int, c *T, ldc, w, accumulate int, _ *T) {
			tile4x4(h, k, a, b, ldb, c, ldc, w, accumulate != 0)
		})
	}
	return fs
}

func tile4x4[T float](h, k int, a, b *T, ldb int, c *T, ldc, w int, accumulate bool) {
	var acc [16]T
	pa, pb := unsafe.Slice(a, 4*k), unsafe.Slice(b, (k-1)*ldb+4)
	for p := range k {
		x, y := pa[4*p:4*p+4:4*p+4], pb[p*ldb:p*ldb+4:p*ldb+4]
		y0, y1, y2, y3 := y[0], y[1], y[2], y[3]
		for r := range 4 {
			z := acc[4*r : 4*r+4 : 4*r+4]
			z[0] += T(x[r] * y0)
			z[1] += T(x[r] * y1)
			z[2] += T(x[r] * y2)
			z[3] += T(x[r] * y3)
		}
	}
	dst := unsafe.Slice(c, (h-1)*ldc+w)
	for r := range h {
		for j := range w {
			put(dst, r*ldc+j, acc[4*r+j], accumulate)
		}
	}
}
