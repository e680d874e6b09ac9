//go:build !amd64 || noasm

package rows

func kernels32(string) *kernels[float32] { return generic32 }

func kernels64(string) *kernels[float64] { return generic64 }
