// Package filelock locks whole files against other processes and against other openings of the file
// in the same process. A lock belongs to one open file, and ends when that file is closed. It also
// ends with the process, for any reason. Locks are advisory: reading and writing the file remain
// possible.
package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
)

// ErrHeld means that another open file holds the lock.
var ErrHeld = errors.New("another process has locked the file")

// Try locks f until it is closed. The error is [ErrHeld] if the lock is taken. If the system or the
// file system has no locks, the error is another one: [errors.ErrUnsupported] if the system has
// none.
func Try(f *os.File) error {
	if None.Load() {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: errors.ErrUnsupported}
	}
	return try(f)
}

// Open opens or creates the file to lock. If path is not a regular file, the error is an
// [fs.PathError]. Following a symbolic link would lock another file, and opening a pipe may block
// for ever.
func Open(path string, mode fs.FileMode) (*os.File, error) {
	refused := func(m fs.FileMode) error {
		what := "no file"
		if m&fs.ModeSymlink != 0 {
			what = "a symbolic link"
		}
		return &fs.PathError{Op: "lock", Path: path, Err: fmt.Errorf("this is %s, where the lock file belongs: remove it", what)}
	}
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, refused(info.Mode())
	}
	// path may name something else by now
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|openFlags, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refused(info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// None is set by tests, to simulate a system without locks.
var None atomic.Bool

// InPlace reports whether path still names f. While a caller waits for the lock, the file may be
// removed, and perhaps replaced.
func InPlace(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(own, there)
}

// Remove removes a locked file and releases its lock. A process that waits for the lock then finds
// with [InPlace] that its file no longer exists, and creates a new one. If path already names
// another file, Remove does not remove it.
func Remove(f *os.File, path string) {
	if !InPlace(f, path) {
		f.Close()
		return
	}
	if os.Remove(path) == nil {
		f.Close()
		return
	}
	// Windows: an open file cannot be removed, here or by a process that waits for the lock
	f.Close()
	os.Remove(path)
}
