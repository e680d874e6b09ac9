package gemm

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// spanKernel holds the kernels for convolutions of many small images, which are computed place by
// place.
type spanKernel struct {
	// spans[h] computes, for r < h and j < the width of a panel, the sum over i < n and p < k of
	// a[list[2i]+p*lda+r]·b[list[2i+1]+p*ldb+j]. It stores the sum in c[r*ldc+j], or adds it to
	// this element if accumulate is not 0.
	spans []spansFunc
	group int // number of rows that turn transposes
}

type spansFunc = func(list *int, n, k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc, accumulate int)

func activeSpans() *spanKernel {
	if k := spanKernels[asm.Active()]; k != nil {
		return k
	}
	return &genericSpans
}

// genericSpans holds the kernels in plain Go.
var genericSpans = spanKernel{spans: spansGo(), group: 4}

func spansGo() (fs []spansFunc) {
	for h := range 5 {
		fs = append(fs, func(list *int, n, k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc, accumulate int) {
			var acc [16]float32
			l := unsafe.Slice(list, 2*n)
			for i := 0; i < len(l); i += 2 {
				for p := range k {
					x, y := unsafe.Slice(element(a, l[i]+p*lda), h), unsafe.Slice(element(b, l[i+1]+p*ldb), 4)
					for r, v := range x {
						z := acc[4*r : 4*r+4 : 4*r+4]
						z[0] += float32(v * y[0])
						z[1] += float32(v * y[1])
						z[2] += float32(v * y[2])
						z[3] += float32(v * y[3])
					}
				}
			}
			for i, v := range acc[:4*h] {
				to := element(c, i/4*ldc+i%4)
				if accumulate != 0 {
					v += *to
				}
				*to = v
			}
		})
	}
	return fs
}

func turnGo(dst *float32, ldd int, src *float32, rows *[16]int, k int) {
	for p := range k {
		for r, row := range rows[:4] {
			*element(dst, p*ldd+r) = *element(src, row+p)
		}
	}
}

// transposed sets dst[p*ldd+r] to src[rows[r]+p], for r < len(rows) and p < k. The length of rows
// is a multiple of group, and ldd is at least this length.
func (w *spanKernel) transposed(dst []float32, ldd int, src []float32, rows []int, k int) {
	whole := k &^ 3
	for r := 0; r < len(rows) && whole > 0; r += w.group {
		var list [16]int
		copy(list[:], rows[r:r+w.group])
		w.turn(&dst[r], ldd, &src[0], &list, whole)
		if k > whole { // the last four columns; some of them are written twice
			w.turn(&dst[(k-4)*ldd+r], ldd, &src[k-4], &list, 4)
		}
	}
	if whole > 0 {
		return
	}
	for p := range k {
		for r, row := range rows {
			dst[p*ldd+r] = src[row+p]
		}
	}
}
