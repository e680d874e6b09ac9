package hostmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge: the system has no such advice.
func adviseHuge(unsafe.Pointer, uintptr) bool { return false }

// capacity knows the machine's memory; what is free of it the system tells only through Mach calls.
func capacity() (free, total uint64) {
	total, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0, 0
	}
	return 0, total
}
