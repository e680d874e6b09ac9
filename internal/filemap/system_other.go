//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filemap

import "os"

func acquire(*os.File, int) ([]byte, error) { return nil, ErrUnsupported }

func release([]byte) {}

func drop([]byte) {}
