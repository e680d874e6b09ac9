//go:build !noasm

package gemm

import "github.com/flambeau-go/flambeau/cpu/internal/asm"

// streams says whether large factors are packed by streaming stores. An ordinary store reads the
// line that it overwrites, and evicts another one, which may have to be written to memory. On a Zen
// 4, products of size 1024 took 0.96 of the time with streaming stores if other programs used the
// third-level cache, and 1.00 otherwise. On processors of other vendors they were not measured.
var streams = asm.AMD()

// init derives the kernels' streaming forms.
func init() {
	for isa, copyRows := range map[string]func(dst, src *byte, distance, k int){"avx2": streamCopyRows64AVX2, "avx512": streamCopyRows128AVX512} {
		rows := []func(dst, src *byte, distance, k int){2: copyRows}
		f32, f64 := *kernels32[isa], *kernels64[isa]
		f32.copyRows, f64.copyRows = rows, rows
		if isa == "avx512" { // a row of a transposed block of AVX2 is shorter than a line of the cache
			f32.transpose, f64.transpose = streamTranspose16F32, streamTranspose8F64
		}
		kernels32[isa].streaming, kernels64[isa].streaming = &f32, &f64
	}
	s := bf16
	s.transpose = streamTranspose16BF16
	s.interleave = []func(dst, src *uint16, ks, h, k int){2: streamInterleave32AVX512BF16}
	bf16.streaming = &s
}

func streamTranspose16F32(dst *float32, ldd int, src *float32, rs, h, k int) {
	rows := rowOffsets(rs, h)
	streamTranspose16F32AVX512(dst, ldd, src, &rows, k)
}

func streamTranspose8F64(dst *float64, ldd int, src *float64, rs, h, k int) {
	rows := rowOffsets(rs, h)
	streamTranspose8F64AVX512(dst, ldd, src, &rows, k)
}

func streamTranspose16BF16(dst *uint16, ldd int, src *uint16, rs, h, k int) {
	rows := rowOffsets(rs, h)
	streamTranspose16AVX512BF16(dst, ldd, src, &rows, k)
}
