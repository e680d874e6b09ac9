package gemm

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// windowKernel holds the kernels that only convolutions use. Their panels have the same width as
// those of the kernel for matrix products.
type windowKernel struct {
	lanes int // number of elements of a vector
	// window[h] adds to c[r*ldc+j], for r < h and j < width, the sum over i < n and q < cols of
	// a[rows[r]+lines[i]+q]·b[(i*cols+q)*width+j]. The width is that of a panel.
	window []func(a *float32, rows *[12]int, lines *int, n, cols int, b, c *float32, ldc int)
	// half[h] is like window[h], but its width is lanes. The list may be nil.
	half []func(a *float32, rows *[12]int, lines *int, n, cols int, b, c *float32, ldc int)
	// pieces[n] copies one vector for each p < k and i < n, from src[offs[p]+list[2i]] to
	// dst[p*width+list[2i+1]]. The outer loop is over p. pieces[0] accepts any n.
	pieces []func(dst, src *float32, offs *int, k int, list *int, n int)
	// taps sets dst[i] to Σ w[p]·src[offs[p]+i] over p < k, for i < n, a multiple of lanes.
	taps func(dst, src *float32, offs *int, w *float32, k, n int)
	// padRows sets dst[r*width+left+i] to src[r*distance+i] for r < rows and i < n. It sets a
	// vector of elements after these to 0, and at most a vector of elements before them. It reads
	// less than a vector past the end of a row of src.
	padRows func(dst, src *float32, rows, width, left, n, distance int)
	// halves sets even[i] to src[2i] and odd[i] to src[2i+1], for i < n. n is a multiple of 8. The
	// function may be nil.
	halves func(even, odd, src *float32, n int)
}

func activeWindows() *windowKernel {
	if k := windowKernels[asm.Active()]; k != nil {
		return k
	}
	return &genericWindows
}

// genericWindows holds the kernels in plain Go.
var genericWindows = windowKernel{
	lanes:  4,
	window: windowsGo(),
	pieces: []func(dst, src *float32, offs *int, k int, list *int, n int){piecesGo},
	taps:   tapsGo,
	padRows: func(dst, src *float32, rows, width, left, n, distance int) {
		for r := range rows {
			row := unsafe.Slice(element(dst, r*width), left+n+4)
			clear(row[:left])
			copy(row[left:], unsafe.Slice(element(src, r*distance), n))
			clear(row[left+n:])
		}
	},
}

// element returns the address of p[i].
func element(p *float32, i int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), 4*i))
}

func windowsGo() (fs []func(a *float32, rows *[12]int, lines *int, n, cols int, b, c *float32, ldc int)) {
	for h := range 5 {
		fs = append(fs, func(a *float32, rows *[12]int, lines *int, n, cols int, b, c *float32, ldc int) {
			var acc [16]float32
			for i, line := range unsafe.Slice(lines, n) {
				for q := range cols {
					y := unsafe.Slice(element(b, (i*cols+q)*4), 4)
					for r := range h {
						x, z := *element(a, rows[r]+line+q), acc[4*r:4*r+4:4*r+4]
						z[0] += float32(x * y[0])
						z[1] += float32(x * y[1])
						z[2] += float32(x * y[2])
						z[3] += float32(x * y[3])
					}
				}
			}
			for r := range h {
				for j, v := range acc[4*r : 4*r+4] {
					*element(c, r*ldc+j) += v
				}
			}
		})
	}
	return fs
}

func piecesGo(dst, src *float32, offs *int, k int, list *int, n int) {
	l := unsafe.Slice(list, 2*n)
	for p, off := range unsafe.Slice(offs, k) {
		for i := 0; i < len(l); i += 2 {
			*(*[4]float32)(unsafe.Pointer(element(dst, 4*p+l[i+1]))) = *(*[4]float32)(unsafe.Pointer(element(src, off+l[i])))
		}
	}
}

func tapsGo(dst, src *float32, offs *int, w *float32, k, n int) {
	d, o, ws := unsafe.Slice(dst, n), unsafe.Slice(offs, k), unsafe.Slice(w, k)
	clear(d)
	for p, off := range o {
		for i, v := range unsafe.Slice(element(src, off), n) {
			d[i] += float32(v * ws[p])
		}
	}
}
