package cpu

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// untouched gives the pages of mem back to the system, which provides zeros when they are used
// again. Go has written them if an object was there before. An error only leaves the pages in
// memory.
func untouched(mem []byte) {
	page := os.Getpagesize()
	if skip := -int(uintptr(unsafe.Pointer(&mem[0]))) & (page - 1); skip < len(mem) {
		whole := mem[skip:]
		_ = unix.Madvise(whole[:len(whole)/page*page], unix.MADV_DONTNEED)
	}
}
