//go:build !noasm

package gemm

// winogradKernels holds the transforms by the name of the instruction set, as in package asm.
var winogradKernels = map[string]*winogradKernel{
	"avx512": {16, true, winogradSourceAVX512, winogradWeightsAVX512, winogradResultAVX512},
	"avx2":   {8, false, winogradSourceAVX2, winogradWeightsAVX2, winogradResultAVX2},
}
