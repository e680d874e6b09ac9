//go:build !noasm

package gemm

// winogradKernels holds the transforms by the name of the instruction set, as in package asm.
var winogradKernels = map[string]*winogradKernel{
	"avx512": {winogradSourceAVX512, winogradWeightsAVX512, winogradResultAVX512},
}
