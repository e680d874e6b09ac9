//go:build !amd64 || noasm

package gemm

var spanKernels map[string]*spanKernel
