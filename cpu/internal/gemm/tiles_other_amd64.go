//go:build !linux && !noasm

package gemm

// permitTiles returns false, because only Linux is known to permit the use of tiles.
func permitTiles() bool { return false }
