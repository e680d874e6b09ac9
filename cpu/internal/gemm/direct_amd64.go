//go:build !noasm

package gemm

import "github.com/flambeau-go/flambeau/cpu/internal/asm"

func init() {
	one32 := []directKernel[float32]{nil, direct1x1F32AVX2, direct2x1F32AVX2, direct3x1F32AVX2, direct4x1F32AVX2,
		direct5x1F32AVX2, direct6x1F32AVX2, direct7x1F32AVX2, direct8x1F32AVX2}
	k, l := kernels32["avx512"], kernels64["avx512"]
	k.direct = (&direct[float32]{pool: &poolF32, kern: k, vector: 16, rowVectors: 16, narrow: 2, tallRows: 64, flatRows: 64, outer: true, add: asm.AddF32, row: direct1x16F32AVX512,
		one: []directKernel[float32]{nil, direct1x1F32AVX512, direct2x1F32AVX512, direct3x1F32AVX512, direct4x1F32AVX512,
			direct5x1F32AVX512, direct6x1F32AVX512, direct7x1F32AVX512, direct8x1F32AVX512},
		two: []directKernel[float32]{nil, direct1x2F32AVX512, direct2x2F32AVX512, direct3x2F32AVX512, direct4x2F32AVX512,
			direct5x2F32AVX512, direct6x2F32AVX512, direct7x2F32AVX512, direct8x2F32AVX512,
			direct9x2F32AVX512, direct10x2F32AVX512, direct11x2F32AVX512, direct12x2F32AVX512, direct13x2F32AVX512, direct14x2F32AVX512},
		half: one32,
	}).multiply
	l.direct = (&direct[float64]{pool: &poolF64, kern: l, vector: 8, rowVectors: 16, narrow: 2, add: asm.AddF64, row: direct1x16F64AVX512,
		one: []directKernel[float64]{nil, direct1x1F64AVX512, direct2x1F64AVX512, direct3x1F64AVX512, direct4x1F64AVX512,
			direct5x1F64AVX512, direct6x1F64AVX512, direct7x1F64AVX512, direct8x1F64AVX512},
		two: []directKernel[float64]{nil, direct1x2F64AVX512, direct2x2F64AVX512, direct3x2F64AVX512, direct4x2F64AVX512,
			direct5x2F64AVX512, direct6x2F64AVX512, direct7x2F64AVX512, direct8x2F64AVX512,
			direct9x2F64AVX512, direct10x2F64AVX512, direct11x2F64AVX512, direct12x2F64AVX512, direct13x2F64AVX512, direct14x2F64AVX512},
	}).multiply
	k.thin = 8
	k, l = kernels32["avx2"], kernels64["avx2"]
	k.direct = (&direct[float32]{pool: &poolF32, kern: k, vector: 8, rowVectors: 8, narrow: 4, tallRows: 64, flatRows: 64, crowded: 1024, add: asm.AddF32, row: direct1x8F32AVX2,
		one: one32,
		two: []directKernel[float32]{nil, direct1x2F32AVX2, direct2x2F32AVX2, direct3x2F32AVX2, direct4x2F32AVX2, direct5x2F32AVX2, direct6x2F32AVX2},
	}).multiply
	l.direct = (&direct[float64]{pool: &poolF64, kern: l, vector: 4, rowVectors: 8, narrow: 4, tallRows: 64, flatRows: 64, crowded: 512, add: asm.AddF64, row: direct1x8F64AVX2,
		one: []directKernel[float64]{nil, direct1x1F64AVX2, direct2x1F64AVX2, direct3x1F64AVX2, direct4x1F64AVX2,
			direct5x1F64AVX2, direct6x1F64AVX2, direct7x1F64AVX2, direct8x1F64AVX2},
		two: []directKernel[float64]{nil, direct1x2F64AVX2, direct2x2F64AVX2, direct3x2F64AVX2, direct4x2F64AVX2, direct5x2F64AVX2, direct6x2F64AVX2},
	}).multiply
	k.thin, l.thin = 8, 4
}
