//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filemap

import (
	"os"

	"golang.org/x/sys/unix"
)

func acquire(f *os.File, size int) ([]byte, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var mem []byte
	var merr error
	if err := c.Control(func(fd uintptr) {
		mem, merr = unix.Mmap(int(fd), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|noReserve)
	}); err != nil {
		return nil, err
	}
	return mem, merr
}

// release unmaps mem. It ignores the error, which is possible only if mem is not mapped.
func release(mem []byte) { _ = unix.Munmap(mem) }

// drop releases the pages of mem. The call is only a hint to the system, so its error does not
// matter.
func drop(mem []byte) { _ = unix.Madvise(mem, unix.MADV_DONTNEED) }
