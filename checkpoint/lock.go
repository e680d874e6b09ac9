package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/flambeau-go/flambeau/internal/filelock"
)

// lockName is the file in a directory that the store which writes there has locked. The lock ends
// with the process, however that ends; the file of one that was killed stays and is taken over by
// the next.
const lockName = ".lock"

// patience is how long Open waits for a lock: a process that was killed holds it until the system
// has taken its memory away.
const patience = time.Second

// An InUseError says that another training writes to the directory. What it is told of that process
// is not there if it could not be read.
type InUseError struct {
	PID   int       // of the process
	Host  string    // that it runs on
	Since time.Time // when it opened the directory
}

func (e *InUseError) Error() string {
	who := "another training"
	if e.PID != 0 {
		who = fmt.Sprintf("the training of process %d", e.PID)
		if e.PID == os.Getpid() {
			who = fmt.Sprintf("another training of this process (%d)", e.PID)
		}
		who += fmt.Sprintf(" on %s, since %s,", e.Host, e.Since.Local().Format("2006-01-02 15:04:05"))
	}
	return who + " keeps its checkpoints here; wait for its end or end it, or take another directory: two would mix their files"
}

// A holder is what a lock file says.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// A lock is a directory's.
type lock struct {
	path string
	f    *os.File // nil: the file system has no locks
	none error    // why
}

// take locks the directory, or waits for that a while.
func (l *lock) take(patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		f, err := filelock.Open(l.path, 0o666)
		if err != nil {
			return err
		}
		err = filelock.Try(f)
		switch {
		case err == filelock.ErrHeld && time.Now().After(end):
			defer f.Close()
			return inUse(f)
		case err == filelock.ErrHeld:
			f.Close()
			continue
		case err == nil && !filelock.InPlace(f, l.path):
			// whoever had the lock removed the file with it
			f.Close()
			if time.Now().After(end) {
				return &fs.PathError{Op: "lock", Path: l.path, Err: errors.New("another process removes it again and again")}
			}
			continue
		case err != nil: // there are none here
			filelock.Remove(f, l.path)
			l.none = err
			return nil
		}
		l.f = f
		l.sign()
		return nil
	}
}

// sign writes who has the lock, which is for people alone: that it cannot be written, as to a full
// disk, does not matter.
func (l *lock) sign() {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	text, err := json.Marshal(holder{os.Getpid(), host, time.Now().Truncate(time.Second)})
	if err == nil && l.f.Truncate(0) == nil {
		_, _ = l.f.WriteAt(text, 0)
	}
}

// inUse reads who has the lock.
func inUse(f *os.File) error {
	var h holder
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID <= 0 {
		return &InUseError{}
	}
	return &InUseError{h.PID, h.Host, h.Since}
}

// keep sees to it that the directory is still ours: somebody may have removed it, and another
// training may have made it anew.
func (l *lock) keep() error {
	if l.f == nil || filelock.InPlace(l.f, l.path) {
		return nil
	}
	old := l.f
	if err := l.take(0); err != nil {
		return err
	}
	return old.Close()
}

// free gives the lock up.
func (l *lock) free() {
	if l.f != nil {
		filelock.Remove(l.f, l.path)
		l.f = nil
	}
}

// lockOf is the lock of a directory, which nobody has yet.
func lockOf(dir string) *lock { return &lock{path: filepath.Join(dir, lockName)} }
