//go:build !linux && !noasm

package gemm

// permitTiles reports that tiles are not used, because only Linux is known to grant them.
func permitTiles() bool { return false }
