//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

// OpenLibrary opens a library that comes with the driver, looked for as the driver's own is, or returns nil and what was tried.
func OpenLibrary(name string) (*Library, []string) {
	l, tried := loadLibrary(name, libraryDirs)
	if l == nil {
		return nil, tried
	}
	return NewLibrary(l.path, l.lookup), tried
}

// Call calls the C function at fn with up to 12 integers or pointers and returns the lower 32 bits of its result, which is what a C enum
// is. What pointers point to lies on the heap: Go moves stacks.
func Call(fn uintptr, args ...uintptr) uint32 {
	b := getBlock(fn)
	copy(b.a[:], args)
	r := b.call()
	putBlock(b)
	return uint32(r)
}
