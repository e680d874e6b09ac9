//go:build !noasm

package gemm

var spanKernels = map[string]*spanKernel{
	"avx2": {group: 8, spans: []spansFunc{nil, spans1AVX2, spans2AVX2, spans3AVX2, spans4AVX2, spans5AVX2, spans6AVX2}},
	"avx512": {group: 16, spans: []spansFunc{nil, spans1AVX512, spans2AVX512, spans3AVX512, spans4AVX512, spans5AVX512,
		spans6AVX512, spans7AVX512, spans8AVX512, spans9AVX512, spans10AVX512, spans11AVX512, spans12AVX512, spans13AVX512, spans14AVX512}},
}

// turn transposes: it sets dst[p*ldd+r] to src[rows[r]+p], for r < group and p < k. It writes in
// ascending order of p. k is a multiple of 4. turn is a method, because a call through a function
// variable would move rows to the heap.
func (w *spanKernel) turn(dst *float32, ldd int, src *float32, rows *[16]int, k int) {
	switch w.group {
	case 8:
		transpose8F32AVX2(dst, ldd, src, rows, k)
	case 16:
		transpose16F32AVX512(dst, ldd, src, rows, k)
	default:
		turnGo(dst, ldd, src, rows, k)
	}
}
