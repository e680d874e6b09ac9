//go:build !noasm

package rows

func kernels32(variant string) *kernels[float32] {
	switch variant {
	case "avx512":
		return &avx512F32
	case "avx2":
		return &avx2F32
	}
	return generic32
}

func kernels64(variant string) *kernels[float64] {
	switch variant {
	case "avx512":
		return &avx512F64
	case "avx2":
		return &avx2F64
	}
	return generic64
}

var (
	avx2F32   = kernels[float32]{updateF32AVX2, addF32AVX2, combineF32AVX2, dotsF32AVX2, rotateF32AVX2, substituteF32AVX2}
	avx2F64   = kernels[float64]{updateF64AVX2, addF64AVX2, combineF64AVX2, dotsF64AVX2, rotateF64AVX2, substituteF64AVX2}
	avx512F32 = kernels[float32]{updateF32AVX512, addF32AVX512, combineF32AVX512, dotsF32AVX512, rotateF32AVX512, substituteF32AVX512}
	avx512F64 = kernels[float64]{updateF64AVX512, addF64AVX512, combineF64AVX512, dotsF64AVX512, rotateF64AVX512, substituteF64AVX512}
)
