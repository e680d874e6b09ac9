package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

const openFlags = 0

// try locks one byte far behind the end of f. Other processes can then still read and write the
// contents.
func try(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrHeld
	}
	return err
}
