//go:build !linux && !darwin

package hostmem

import (
	"runtime"

	"github.com/flambeau-go/flambeau/internal/pool"
)

// System says where the memory of segments comes from.
const System = "go"

// mapping is Go memory. A [Memory] keeps it alive until Free.
type mapping struct{ words []uint64 }

func acquire(size uint64) (mapping, uintptr, bool, error) {
	if free, total := capacity(); total > 0 && size > free {
		return mapping{}, 0, false, pool.ErrNoMemory
	}
	words, addr := goMemory(size)
	return mapping{words}, addr, false, nil
}

func release(mapping) {}

// capacity returns only the limit of WebAssembly, whose addresses have 32 bits.
func capacity() (free, total uint64) {
	if runtime.GOARCH != "wasm" {
		return 0, 0
	}
	const space = 1 << 32
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return space - min(space, m.Sys-m.HeapIdle), space
}
