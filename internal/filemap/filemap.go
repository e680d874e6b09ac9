// Package filemap maps files into memory: their bytes are read when they are touched, and what is
// written to the memory stays in the memory (copy on write), never in the file.
//
// A map goes when the collector finds that nothing refers to it any more, so that nothing can touch
// what is not there. A file that another program shortens while it is mapped takes pages away:
// touching them ends the process, on Unix by SIGBUS. Replacing a file (by rename) is safe.
package filemap

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

// ErrUnsupported is what [Open] returns where files cannot be mapped: on systems without it, file
// systems without it, or for files that exceed the address space. Read the file instead.
var ErrUnsupported = errors.New("files cannot be mapped here")

// A Map is a mapped file.
type Map struct {
	mem     []byte
	once    sync.Once
	cleanup runtime.Cleanup
}

// Open maps a file that has been opened; f may be closed afterwards. The empty file has the empty
// map.
func Open(f *os.File) (*Map, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: ErrUnsupported}
	}
	size := info.Size()
	if size == 0 {
		return &Map{}, nil
	}
	if int64(int(size)) != size {
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: ErrUnsupported}
	}
	mem, err := acquire(f, int(size))
	if err != nil {
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: errors.Join(ErrUnsupported, err)}
	}
	m := &Map{mem: mem}
	m.cleanup = runtime.AddCleanup(m, release, mem)
	return m, nil
}

// Bytes returns the contents of the file. It is memory outside of Go's heap: the caller keeps m
// reachable (runtime.KeepAlive) as long as it uses them.
func (m *Map) Bytes() []byte { return m.mem }

// Close unmaps at once, for a caller who knows that nobody uses the bytes. Without it the collector
// does.
func (m *Map) Close() {
	m.once.Do(func() {
		if m.mem != nil {
			m.cleanup.Stop()
			release(m.mem)
			m.mem = nil
		}
	})
}

// Drop gives back the physical memory of b, a part of m's bytes, page by page; what was written to
// it is lost, and is read from the file again when it is touched. It is a hint, which some systems
// do not take.
func (m *Map) Drop(b []byte) {
	page := os.Getpagesize()
	if len(b) < page || len(m.mem) == 0 {
		return
	}
	from := offset(m.mem, b)
	if from < 0 || from+len(b) > len(m.mem) {
		return
	}
	lo, hi := (from+page-1)/page*page, (from+len(b))/page*page
	if from+len(b) == len(m.mem) {
		hi = len(m.mem)
	}
	if lo < hi {
		drop(m.mem[lo:hi])
	}
	runtime.KeepAlive(m)
}

// offset returns where b begins in mem.
func offset(mem, b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
