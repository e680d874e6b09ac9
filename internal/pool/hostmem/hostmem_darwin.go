package hostmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge returns false, because macOS has no way to ask for huge pages.
func adviseHuge(unsafe.Pointer, uintptr) bool { return false }

// capacity returns the size of the machine's memory as total. It returns 0 for free, because macOS
// reports free memory only in Mach calls.
func capacity() (free, total uint64) {
	total, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0, 0
	}
	return 0, total
}
