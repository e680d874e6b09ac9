//go:build !nogpu && (amd64 || arm64)

package cu

import "golang.org/x/sys/windows"

// libraryDirs is empty. The driver installs its library in the system directory, and loading it
// from elsewhere would be unsafe.
var libraryDirs []string

// loadLibrary opens the library of this name in the system directory. If there is none, it returns
// the list of what it tried.
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

// systemDetail returns "", because Windows reports nothing about the driver.
func systemDetail() string { return "" }
