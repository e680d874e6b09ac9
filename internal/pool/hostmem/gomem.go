package hostmem

import "unsafe"

// goMemory returns zeroed Go memory of at least size bytes and its address. It starts on a page of 8 KiB, because the runtime
// gives large objects pages of their own, and does not move. When there is none the runtime ends the program; a pool's
// Limit is the way to an error. It is used where the system's own calls are not (System says "go"), and compiled and
// tested everywhere.
func goMemory(size uint64) ([]uint64, uintptr) {
	const page, atLeast = 8 << 10, 64 << 10 // small objects would share pages
	n := max(size, atLeast)
	words := make([]uint64, (n+page-1)/page*page/8)
	return words, uintptr(unsafe.Pointer(unsafe.SliceData(words)))
}
