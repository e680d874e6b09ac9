//go:build !linux && !noasm

package gemm

// permitTiles returns false. Only Linux is known to give this permission.
func permitTiles() bool { return false }
