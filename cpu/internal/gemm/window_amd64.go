//go:build !noasm

package gemm

type windowFunc = func(a *float32, rows *[12]int, lines *int, n, cols int, b, c *float32, ldc int)
type piecesFunc = func(dst, src *float32, offs *int, k int, list *int, n int)

var windowKernels = map[string]*windowKernel{
	"avx2": {lanes: 8, window: []windowFunc{nil, window1AVX2, window2AVX2, window3AVX2, window4AVX2, window5AVX2, window6AVX2},
		half:   []windowFunc{nil, windowHalf1AVX2, windowHalf2AVX2, windowHalf3AVX2, windowHalf4AVX2, windowHalf5AVX2, windowHalf6AVX2},
		pieces: []piecesFunc{piecesAVX2, nil, pieces2AVX2, pieces3AVX2, pieces4AVX2}, taps: tapsAVX2, padRows: padRowsAVX2, halves: halvesAVX2},
	"avx512": {lanes: 16, window: []windowFunc{nil, window1AVX512, window2AVX512, window3AVX512, window4AVX512, window5AVX512, window6AVX512,
		window7AVX512, window8AVX512, window9AVX512, window10AVX512, window11AVX512, window12AVX512},
		half: []windowFunc{nil, windowHalf1AVX512, windowHalf2AVX512, windowHalf3AVX512, windowHalf4AVX512, windowHalf5AVX512, windowHalf6AVX512,
			windowHalf7AVX512, windowHalf8AVX512, windowHalf9AVX512, windowHalf10AVX512, windowHalf11AVX512, windowHalf12AVX512},
		pieces: []piecesFunc{piecesAVX512, nil, pieces2AVX512, pieces3AVX512, pieces4AVX512}, taps: tapsAVX512, padRows: padRowsAVX512, halves: halvesAVX2},
}
