package atomicfile

import (
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// intercept is a function that runs before each call of the operating system. Only tests set it.
var intercept atomic.Pointer[func(op, path string) error]

// Intercept makes this package call f before each of its calls of the operating system, until
// restore is called. The argument op is lstat, open, chmod, write, sync, rename or remove. If f
// returns an error, the call fails with that error and does nothing, except that a write writes the
// first half of its bytes. Tests use it to see how callers behave when the system fails.
func Intercept(f func(op, path string) error) (restore func()) {
	old := intercept.Swap(&f)
	return func() { intercept.Store(old) }
}

// allowed calls the function that Intercept has set, if any, and returns its error.
func allowed(op, path string) error {
	if f := intercept.Load(); f != nil {
		if err := (*f)(op, path); err != nil {
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
	}
	return nil
}

// Remove removes a file, like [os.Remove], but first calls the function that [Intercept] has set.
// It is for a file that new files have made obsolete.
func Remove(path string) error {
	if err := allowed("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

func lstat(path string) (fs.FileInfo, error) {
	if err := allowed("lstat", path); err != nil {
		return nil, err
	}
	return os.Lstat(path)
}

func open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	if err := allowed("open", path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flag, mode)
}

func rename(from, to string) error {
	if err := allowed("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// written passes p to the function write. If the function that Intercept has set returns an error,
// it passes only the first half of p.
func (f *File) written(p []byte, write func(p []byte) (int, error)) (int, error) {
	if err := allowed("write", f.Name()); err != nil {
		n, _ := write(p[:len(p)/2])
		return n, err
	}
	return write(p)
}

// Write writes p to the temporary file.
func (f *File) Write(p []byte) (int, error) { return f.written(p, f.File.Write) }

// WriteString writes the bytes of s to the temporary file.
func (f *File) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

// WriteAt writes p to the temporary file, at an offset in bytes.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	return f.written(p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

// ReadFrom copies r to the temporary file until r ends.
func (f *File) ReadFrom(r io.Reader) (int64, error) {
	if err := allowed("write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.ReadFrom(r)
}

// Chmod sets the permissions of the temporary file.
func (f *File) Chmod(mode fs.FileMode) error {
	if err := allowed("chmod", f.Name()); err != nil {
		return err
	}
	return f.File.Chmod(mode)
}

// Sync waits until the written bytes are on the disk.
func (f *File) Sync() error {
	if err := allowed("sync", f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}
