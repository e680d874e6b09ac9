//go:build !nogpu && (amd64 || arm64)

package cu

import "golang.org/x/sys/windows"

// libraryDirs is empty: the driver installs its library in the system directory, and looking
// elsewhere would be unsafe.
var libraryDirs []string

// loadLibrary opens the library of this name from the system directory. If there is none, it
// returns what it tried.
func loadLibrary(name string, _ []string) (*library, []string) {
	h, err := windows.LoadLibraryEx(name, 0, windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	if err != nil {
		return nil, []string{"System32\\" + name + ": " + err.Error()}
	}
	return &library{path: name, lookup: func(fn string) uintptr {
		p, err := windows.GetProcAddress(h, fn)
		if err != nil {
			return 0
		}
		return p
	}}, nil
}

// systemDetail returns what the operating system reports about the driver: nothing.
func systemDetail() string { return "" }
