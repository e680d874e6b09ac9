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

// lockName is the name of the file that a store locks, in the store's directory. The system
// releases the lock when the process ends, for whatever reason. If the process was killed, the file
// remains, and the next store locks it.
const lockName = ".lock"

// patience is how long Open waits for a lock. A killed process keeps its lock until the system has
// released the process's memory.
const patience = time.Second

// An InUseError means that another training writes to the directory. The fields describe that
// training's process. They are zero if they could not be read.
type InUseError struct {
	PID   int       // process id of the other training
	Host  string    // name of that process's machine
	Since time.Time // when that process opened the directory
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

// holder is the contents of a lock file.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// A lock is the lock of a directory.
type lock struct {
	path        string
	f           *os.File // open lock file; nil if the file system has no locks
	unavailable error    // reason why there is no lock; nil if there is one
}

// acquire locks the directory. If another process has the lock, acquire waits for it, at most for
// the duration patience.
func (l *lock) acquire(patience time.Duration) error {
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
			// This file is no longer in the directory: the previous store has removed it.
			f.Close()
			if time.Now().After(end) {
				return &fs.PathError{Op: "lock", Path: l.path, Err: errors.New("another process removes it again and again")}
			}
			continue
		case err != nil: // the file system has no locks
			filelock.Remove(f, l.path)
			l.unavailable = err
			return nil
		}
		l.f = f
		l.sign()
		return nil
	}
}

// sign records in the lock file that this process has the lock. The errors of other processes can
// then name it. If the write fails, for example on a full disk, the error is ignored.
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

// inUse returns the error for a lock that another process has. The file f says which process that
// is.
func inUse(f *os.File) error {
	var h holder
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID <= 0 {
		return &InUseError{}
	}
	return &InUseError{h.PID, h.Host, h.Since}
}

// verify returns an error if the directory no longer belongs to this store. It may have been
// removed, and another training may have created it again.
func (l *lock) verify() error {
	if l.f == nil || filelock.InPlace(l.f, l.path) {
		return nil
	}
	old := l.f
	if err := l.acquire(0); err != nil {
		return err
	}
	return old.Close()
}

func (l *lock) release() {
	if l.f != nil {
		filelock.Remove(l.f, l.path)
		l.f = nil
	}
}

// lockOf returns the lock of a directory, without acquiring it.
func lockOf(dir string) *lock { return &lock{path: filepath.Join(dir, lockName)} }
