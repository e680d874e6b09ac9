//go:build !linux && !darwin

package hostmem

import "unsafe"

// System says where segments come from.
const System = "go"

// mapping is Go memory, alive as long as the Memory holds it. Words, so that even small segments are aligned to 8.
type mapping struct{ words []uint64 }

// acquire takes Go memory: allocations of this size start on a page and do not move. When there is none the runtime ends
// the program; a pool's Limit is the way to an error.
func acquire(size uint64) (mapping, uintptr, bool, error) {
	const page = 8 << 10
	words := make([]uint64, (size+page-1)/page*page/8)
	return mapping{words}, uintptr(unsafe.Pointer(unsafe.SliceData(words))), false, nil
}

func release(mapping) {}

func capacity() (free, total uint64) { return 0, 0 }
