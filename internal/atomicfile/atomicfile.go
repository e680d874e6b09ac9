// Package atomicfile replaces files as a whole. It writes a temporary file in the same directory,
// syncs it and renames it to the path. The path therefore holds either the old file or the complete
// new file, even after a crash or a power cut.
//
// The temporary file of dir/NAME is dir/.NAME.tmp-XXXXXXXXXXXXXXXX, with sixteen hexadecimal
// digits. A long NAME is truncated. The writer holds a lock on the temporary file, and the system
// releases the lock when the process ends. [Clean] removes temporary files without a lock.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/flambeau-go/flambeau/internal/filelock"
)

// A File is a temporary file that will replace another file. It has the methods of os.File (Write,
// WriteAt, Seek, Truncate, …). The caller must call Commit or Abort. Close does the same as Abort.
type File struct {
	*os.File
	path string
	mode fs.FileMode // permissions of the file that will be replaced; 0 if there is none
	done bool
}

// Create opens a temporary file that Commit renames to path. path must be a regular file, a
// symbolic link or absent. A symbolic link is replaced, not followed. The new file gets the
// permissions of the file that it replaces, or 0666 minus the umask.
func Create(path string) (*File, error) {
	f := &File{path: path}
	switch info, err := lstat(path); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err == nil && info.Mode().IsRegular():
		f.mode = info.Mode().Perm()
	case err == nil && info.Mode()&fs.ModeSymlink == 0:
		return nil, &fs.PathError{Op: "create", Path: path, Err: fmt.Errorf("there is a %s of that name, which cannot be replaced by a file", kind(info.Mode()))}
	}
	base := filepath.Base(path)
	if len(base) > maxBase {
		base = strings.ToValidUTF8(base[:maxBase], "")
	}
	for try := 0; ; try++ {
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.tmp-%016x", base, rand.Uint64()))
		file, err := open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) && try < 100 {
			continue
		}
		if err != nil {
			return nil, err
		}
		// Clean, in another process, may have removed the file before it was locked.
		if f.File = file; f.lockedInPlace() {
			return f, nil
		}
		file.Close()
		os.Remove(name)
		if try == 100 {
			return nil, &fs.PathError{Op: "lock", Path: name, Err: errors.New("another process removes it again and again")}
		}
	}
}

// maxBase limits the bytes of a file's name that are used in the name of its temporary file,
// because file systems allow only 255 bytes.
const maxBase = 200

func kind(m fs.FileMode) string {
	if m.IsDir() {
		return "directory"
	}
	return "device, pipe or socket"
}

// lockedInPlace reports whether the file still exists and its lock is held. A file system without
// locks needs no lock, because Clean removes nothing there.
func (f *File) lockedInPlace() bool {
	return filelock.Try(f.File) != filelock.ErrHeld && filelock.InPlace(f.File, f.Name())
}

// Path returns the path where Commit will put the file. Name returns the temporary path.
func (f *File) Path() string { return f.path }

// Commit syncs the file, renames it and syncs the directory. After an error the temporary file is
// gone and path is unchanged. There is one exception: if only the sync of the directory fails, path
// is the new file, but a power cut may restore the old file.
func (f *File) Commit() (err error) {
	if f.done {
		return &fs.PathError{Op: "commit", Path: f.path, Err: fs.ErrClosed}
	}
	defer f.Abort()
	if f.mode != 0 {
		if err := f.Chmod(f.mode); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	// Windows cannot rename an open file. Elsewhere, keep the file open and locked until after the
	// rename.
	early := runtime.GOOS == "windows"
	if early {
		if err := f.File.Close(); err != nil {
			return err
		}
	}
	if err := rename(f.Name(), f.path); err != nil {
		return err
	}
	f.done = true
	if !early {
		if err := f.File.Close(); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(f.path))
}

// Abort removes the temporary file and leaves path unchanged. After Commit it does nothing, so a
// caller can defer it.
func (f *File) Abort() {
	if f.done {
		return
	}
	f.done = true
	if runtime.GOOS == "windows" {
		f.File.Close()
		os.Remove(f.Name())
		return
	}
	// remove the file before its lock ends, or another process may remove it at the same time
	os.Remove(f.Name())
	f.File.Close()
}

// Close does the same as Abort, for callers that close their writers.
func (f *File) Close() error {
	f.Abort()
	return nil
}

var leftover = regexp.MustCompile(`^\..+\.tmp-[0-9a-f]{16}$`)

// Clean removes temporary files in dir that their writers left without Commit or Abort. It returns
// their names. It leaves files that this or another process is still writing. On systems without
// locks on whole files it removes nothing.
func Clean(dir string) (removed []string, err error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if !e.Type().IsRegular() || !leftover.MatchString(e.Name()) {
			continue
		}
		name := filepath.Join(dir, e.Name())
		switch ok, rerr := removeAbandoned(name); {
		case ok:
			removed = append(removed, name)
		case rerr != nil && !errors.Is(rerr, fs.ErrNotExist):
			err = errors.Join(err, rerr)
		}
	}
	return removed, err
}

// removeAbandoned removes a temporary file if no process holds its lock.
func removeAbandoned(name string) (bool, error) {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	if filelock.Try(file) != nil {
		return false, nil
	}
	if runtime.GOOS == "windows" {
		file.Close()
	}
	err = os.Remove(name)
	return err == nil, err
}
