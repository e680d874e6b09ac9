// Package atomicfile replaces files as a whole. What is written goes to a temporary file in the
// same directory, which is synced and renamed. So a path holds either the old file or the whole new
// one, also after a crash or a power cut.
//
// The temporary file of dir/NAME is dir/.NAME.tmp-XXXXXXXXXXXXXXXX, sixteen hexadecimal digits; of
// a long NAME, its beginning. Its writer holds a lock on it, which the system drops with the
// process: [Clean] removes those that nobody holds.
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

// A File is being written. It has the methods of the temporary file (Write, WriteAt, Seek,
// Truncate, …), and must end with Commit or Abort; Close is Abort.
type File struct {
	*os.File
	path string
	mode fs.FileMode // of the file that is replaced, 0: there is none
	done bool
}

// Create begins the file that Commit puts at path. What stands there must be a file or nothing; a
// symbolic link is replaced and not followed. Permissions are those of the file that is replaced,
// or 0666 less the umask.
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
		// A Clean that runs at this moment may have taken the file for a leftover.
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

// maxBase is how many bytes of a name a temporary one repeats: file systems take 255.
const maxBase = 200

func kind(m fs.FileMode) string {
	if m.IsDir() {
		return "directory"
	}
	return "device, pipe or socket"
}

// lockedInPlace reports whether the file is ours: still there, and locked if the file system has
// locks (without, Clean removes nothing).
func (f *File) lockedInPlace() bool {
	return filelock.Try(f.File) != filelock.ErrHeld && filelock.InPlace(f.File, f.Name())
}

// Path returns where Commit will put the file; Name is that of the temporary one.
func (f *File) Path() string { return f.path }

// Commit syncs the file, gives it its name and syncs the directory. After an error the temporary
// file is gone and path is as it was. The exception is that only the directory could not be synced:
// then the new file is in place, and a power cut may undo that.
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
	// where an open file has no other name; elsewhere the lock is kept until it has
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

// Abort removes the temporary file; path stays as it is. After Commit it does nothing, so that it
// can be deferred.
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
	os.Remove(f.Name()) // under the lock: nobody else does
	f.File.Close()
}

// Close is Abort, for what closes a writer.
func (f *File) Close() error {
	f.Abort()
	return nil
}

var leftover = regexp.MustCompile(`^\..+\.tmp-[0-9a-f]{16}$`)

// Clean removes the temporary files in dir whose writers have ended without Commit or Abort, and
// returns their names. Files that are being written, by this process or another, stay. On systems
// without locks of whole files it removes nothing.
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

// removeAbandoned removes a file that nobody has locked.
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
