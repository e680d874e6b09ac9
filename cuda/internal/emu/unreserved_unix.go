//go:build linux || darwin

package emu

import "golang.org/x/sys/unix"

// mapUnreserved maps n bytes for which the system reserves no memory.
func mapUnreserved(n uint64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
}

func unmap(b []byte) error { return unix.Munmap(b) }
