package filemap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func acquire(f *os.File, size int) ([]byte, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_WRITECOPY, 0, 0, nil)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(h) // the mapping stays until its view is unmapped
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_COPY, 0, 0, uintptr(size))
	if err != nil {
		return nil, err
	}
	// this conversion is valid, because the memory is outside of Go's heap
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	return unsafe.Slice((*byte)(p), size), nil
}

func release(mem []byte) { _ = windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// drop removes the pages of mem from the working set. VirtualUnlock removes pages that are not
// locked, and returns an error for them. drop ignores this error.
func drop(mem []byte) {
	_ = windows.VirtualUnlock(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)))
}
