//go:build !amd64 || noasm

package gemm

var winogradKernels map[string]*winogradKernel
