// Package filemap maps files into memory. The bytes of a file are read when they are accessed.
// Writes change only the memory (copy on write), never the file.
//
// The garbage collector unmaps a file when its Map is unreachable. If another program truncates a
// mapped file, access to the lost pages ends the process, on Unix with SIGBUS. Replacing a file (by
// rename) is safe.
package filemap

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

// ErrUnsupported is the error of [Open] if a file cannot be mapped. The system or the file system
// may not support mapping, or the file may exceed the address space. Read the file instead.
var ErrUnsupported = errors.New("files cannot be mapped here")

// A Map is a mapped file.
type Map struct {
	mem     []byte
	once    sync.Once
	cleanup runtime.Cleanup
}

// Open maps the file f. The caller may close f afterwards. The map of an empty file is empty.
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

// Bytes returns the contents of the file. They are outside of Go's heap. The caller must keep m
// reachable (runtime.KeepAlive) as long as it uses the bytes.
func (m *Map) Bytes() []byte { return m.mem }

// Close unmaps the file immediately. The caller must know that nothing uses the bytes any more.
// Without Close, the garbage collector unmaps the file later.
func (m *Map) Close() {
	m.once.Do(func() {
		if m.mem != nil {
			m.cleanup.Stop()
			release(m.mem)
			m.mem = nil
		}
	})
}

// Drop releases the physical memory of b, a part of m's bytes, in whole pages. Writes to these
// pages are lost, and the next access reads the file again. Some systems ignore the call.
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

// offset returns the index in mem of b's first byte.
func offset(mem, b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
