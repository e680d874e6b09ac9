//go:build !noasm

package rows

var kernels32 = map[string]*kernels[float32]{
	"avx2":   {updateF32AVX2, addF32AVX2, combineF32AVX2, dotsF32AVX2, rotateF32AVX2},
	"avx512": {updateF32AVX512, addF32AVX512, combineF32AVX512, dotsF32AVX512, rotateF32AVX512},
}

var kernels64 = map[string]*kernels[float64]{
	"avx2":   {updateF64AVX2, addF64AVX2, combineF64AVX2, dotsF64AVX2, rotateF64AVX2},
	"avx512": {updateF64AVX512, addF64AVX512, combineF64AVX512, dotsF64AVX512, rotateF64AVX512},
}
