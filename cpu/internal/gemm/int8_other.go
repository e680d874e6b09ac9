//go:build !amd64 || noasm

package gemm

// int8State is the part of a task's temporary memory that only the tiles of AMX need. Here it is
// empty.
type int8State struct{}

func activeInt8(m, k int) *int8Kernel { return &genericInt8 }

// hasInt8Tiles reports whether this process may multiply int8 by the tiles of AMX.
func hasInt8Tiles() bool { return false }
