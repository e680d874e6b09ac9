//go:build !amd64 || noasm

package gemm

var kernels32 map[string]*kernel32
var kernels64 map[string]*kernel64

var streams bool // this build has no kernels that stream

func activeBF16() *kernelBF16 { return nil }

// hasTiles reports whether this process may use the tiles of AMX.
func hasTiles() bool { return false }

// withoutTiles has no effect here, because this processor has no AMX.
var withoutTiles bool
