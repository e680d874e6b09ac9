//go:build !amd64 || noasm

package gemm

var kernels32 map[string]*kernel[float32]
var kernels64 map[string]*kernel[float64]
