// Package filelock locks whole files between processes, and between openings of a file in one
// process. A lock belongs to an opening and ends with it: the system drops it with the process too,
// however that ends. It binds only those who ask for it; reading and writing go on.
package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
)

// ErrHeld says that another opening of the file has the lock.
var ErrHeld = errors.New("another process has locked the file")

// Try locks f until it is closed. The error is [ErrHeld], or says that there are no locks here; of
// a system that has none it is [errors.ErrUnsupported].
func Try(f *os.File) error {
	if None.Load() {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: errors.ErrUnsupported}
	}
	return try(f)
}

// Open opens the file to lock, or makes it. What is no file is refused, by an [fs.PathError]: to
// follow a symbolic link would lock another file, which never is the one at path, and to open a
// pipe may wait for ever.
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
	// there may be something else meanwhile
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

// None is set by tests: there are no locks then.
var None atomic.Bool

// InPlace reports whether path still names f: who has waited for a lock may have that of a file
// that was removed meanwhile.
func InPlace(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(own, there)
}

// Remove gives up a lock together with its file, of which nobody else can then have the lock: who
// waits for it sees that it is gone, and makes another. A file that has taken its place is
// another's, and stays.
func Remove(f *os.File, path string) {
	if !InPlace(f, path) {
		f.Close()
		return
	}
	if os.Remove(path) == nil {
		f.Close()
		return
	}
	f.Close() // where an open file cannot be removed, one that somebody waits for cannot be either
	os.Remove(path)
}
