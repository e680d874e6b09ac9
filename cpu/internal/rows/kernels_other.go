//go:build !amd64 || noasm

package rows

var (
	kernels32 map[string]*kernels[float32]
	kernels64 map[string]*kernels[float64]
)
