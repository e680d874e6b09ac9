//go:build !noasm

package gemm

import "golang.org/x/sys/unix"

// permitTiles asks Linux for permission to use tiles, the state component XTILEDATA (Linux, "Using
// XSTATE features in user space applications"). The request fails if the system does not know AMX,
// or if the signal stack of a thread is too small for the tiles.
func permitTiles() bool {
	const archReqXCompPerm, xTileData = 0x1023, 18
	_, _, err := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archReqXCompPerm, xTileData, 0)
	return err == 0
}
