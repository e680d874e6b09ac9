// Package filelock locks whole files between processes, and between openings of a file in one process. A lock belongs to an opening and ends with
// it: the system drops it with the process too, however that ends. It binds only those who ask for it; reading and writing go on.
package filelock

import (
	"errors"
	"os"
	"sync/atomic"
)

// ErrHeld says that another opening of the file has the lock.
var ErrHeld = errors.New("another process has locked the file")

// Try locks f until it is closed. The error is [ErrHeld], or says that there are no locks here; of a system that has none it is
// [errors.ErrUnsupported].
func Try(f *os.File) error {
	if None.Load() {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: errors.ErrUnsupported}
	}
	return try(f)
}

// None is set by tests: there are no locks then.
var None atomic.Bool

// InPlace reports whether path still names f: who has waited for a lock may have that of a file that was removed meanwhile.
func InPlace(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(own, there)
}

// Remove gives up a lock together with its file, of which nobody else can then have the lock: who waits for it sees that it is gone, and makes another.
// A file that has taken its place is another's, and stays.
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
