//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

const openFlags = 0

func try(*os.File) error { return errors.ErrUnsupported }
