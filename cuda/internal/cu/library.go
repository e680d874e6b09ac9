package cu

import "sync"

// Library is a C library that comes with the driver, such as its management library.
type Library struct {
	Path string

	lookup func(name string) uintptr
	mu     sync.Mutex
	found  map[string]uintptr
}

// NewLibrary returns a library. The function lookup returns the address of a symbol, or 0 for a
// symbol that the library lacks.
func NewLibrary(path string, lookup func(name string) uintptr) *Library {
	return &Library{Path: path, lookup: lookup, found: map[string]uintptr{}}
}

// Function returns the address of the first of the names that the library exports. It returns 0 if
// the library exports none of them.
func (l *Library) Function(names ...string) uintptr {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		p, known := l.found[name]
		if !known {
			p = l.lookup(name)
			l.found[name] = p
		}
		if p != 0 {
			return p
		}
	}
	return 0
}
