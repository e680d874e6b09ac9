//go:build !amd64 || noasm

package gemm

var windowKernels map[string]*windowKernel
