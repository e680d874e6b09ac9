//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// openFlags prevent Open from following a link and from blocking on a pipe.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func try(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lerr error
	err = c.Control(func(fd uintptr) {
		for lerr = syscall.EINTR; errors.Is(lerr, syscall.EINTR); {
			lerr = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
		}
	})
	if err != nil {
		return err
	}
	if errors.Is(lerr, syscall.EWOULDBLOCK) {
		return ErrHeld
	}
	return lerr
}
