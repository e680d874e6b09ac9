// Package filelock locks whole files. A lock belongs to one open file (os.File), and ends when the
// file is closed or the process ends. While it is held, no other open file can get the lock,
// whether in this process or in another. Locks are advisory: they do not prevent reading and
// writing the file.
package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
)

// ErrHeld means that another open file has the lock.
var ErrHeld = errors.New("another process has locked the file")

// Try locks f until f is closed. The error is [ErrHeld] if another open file has the lock. On a
// system without locks it is [errors.ErrUnsupported]. On a file system without locks it is another
// error.
func Try(f *os.File) error {
	if None.Load() {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: errors.ErrUnsupported}
	}
	return try(f)
}

// Open opens or creates the file to lock. If path is not a regular file, the error is an
// [fs.PathError]. A symbolic link would make Open lock another file, and a pipe might block it
// forever.
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
	// Since the call of Lstat, path may have become the name of another file.
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

// None makes the package behave as on a system without locks. Only tests set it.
var None atomic.Bool

// InPlace reports whether path still names f. Another process may have removed or replaced the file
// while the caller waited for the lock.
func InPlace(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(own, there)
}

// Remove removes a locked file and releases its lock. A process that waits for the lock then finds
// with [InPlace] that its file no longer exists, and creates a new file. If path names another file
// by then, Remove does not remove that file.
func Remove(f *os.File, path string) {
	if !InPlace(f, path) {
		f.Close()
		return
	}
	if os.Remove(path) == nil {
		f.Close()
		return
	}
	// Windows cannot remove a file while any process has it open
	f.Close()
	os.Remove(path)
}
