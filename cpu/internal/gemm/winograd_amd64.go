//go:build !noasm

package gemm

// winogradKernels holds the transforms by the names of package asm's variants.
var winogradKernels = map[string]*winogradKernel{
	"avx512": {winogradSourceAVX512, winogradWeightsAVX512, winogradResultAVX512},
}
