//go:build nogpu || !(linux || windows) || !(amd64 || arm64)

package cu

import "runtime"

// Open reports that this program cannot use a driver. The error is always an [*Unavailable].
func Open() (API, error) {
	return nil, NewUnavailable(absent, "built for "+runtime.GOOS+"/"+runtime.GOARCH)
}

// OpenLibrary returns nil, because this program calls no C library.
func OpenLibrary(name string) (*Library, []string) {
	return nil, []string{name + ": this program was built without GPU support"}
}

// Call is never called, because no library can be opened.
func Call(uintptr, ...uintptr) uint32 {
	panic("cu: a C function is called in a program built without GPU support")
}

// CallWord is never called, because no library can be opened.
func CallWord(uintptr, ...uintptr) uintptr {
	panic("cu: a C function is called in a program built without GPU support")
}
