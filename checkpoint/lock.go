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

// lockName is the name of the lock file in a directory. The store that writes to the directory
// holds a lock on this file. The system releases the lock when the process ends, for whatever
// reason. If the process was killed, the file remains, and the next store locks it.
const lockName = ".lock"

// patience is how long Open waits for a lock. It has to wait because a killed process holds its
// lock until the system has released its memory.
const patience = time.Second

// An InUseError means that another training writes to the directory. The fields describe the
// process of that training. They are zero if they could not be read.
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

// holder is what a lock file contains.
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

// acquire locks the directory. If another process holds the lock, acquire waits for it, for at most
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
			// the lock is on a file that the previous holder has removed
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

// sign writes the process that holds the lock into the lock file, for the error of other processes.
// An error of writing, for example on a full disk, is ignored.
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

// inUse returns the error for a lock that another process holds. It reads from the file f which
// process that is.
func inUse(f *os.File) error {
	var h holder
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID <= 0 {
		return &InUseError{}
	}
	return &InUseError{h.PID, h.Host, h.Since}
}

// verify checks that the directory still belongs to this store. Somebody may have removed the
// directory, and another training may have created it again.
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

// lockOf returns a lock for a directory, not acquired yet.
func lockOf(dir string) *lock { return &lock{path: filepath.Join(dir, lockName)} }
