package filemap

import "unsafe"

// offset returns where b begins in mem.
func offset(mem, b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
