package cpu

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// untouched gives the pages of mem back to the system, which provides zeros when they are used
// again. If an object was there before, Go has written to these pages, and they are in memory. If
// the call fails, the only harm is that they stay in memory.
func untouched(mem []byte) {
	page := os.Getpagesize()
	if skip := -int(uintptr(unsafe.Pointer(&mem[0]))) & (page - 1); skip < len(mem) {
		whole := mem[skip:]
		_ = unix.Madvise(whole[:len(whole)/page*page], unix.MADV_DONTNEED)
	}
}
