//go:build linux || darwin

package hostmem

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/flambeau-go/flambeau/internal/pool"
)

// System says where the memory of segments comes from.
const System = "mmap"

// mapping is a range of mapped pages.
type mapping struct {
	base   unsafe.Pointer
	length uintptr
}

// acquire maps pages. Linux before 6.7 does not align large mappings to huge pages. Therefore
// acquire maps one huge page more than necessary, and unmaps the excess at both ends.
func acquire(size uint64) (mapping, uintptr, bool, error) {
	page := uint64(unix.Getpagesize())
	length := uintptr((size + page - 1) &^ (page - 1))
	extra := uintptr(0)
	if size >= HugePage {
		extra = HugePage
	}
	base, err := unix.MmapPtr(-1, 0, nil, length+extra, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EAGAIN) {
			return mapping{}, 0, false, fmt.Errorf("mmap: %w: %w", err, pool.ErrNoMemory)
		}
		return mapping{}, 0, false, fmt.Errorf("mmap: %w", err)
	}
	if extra > 0 {
		head := -uintptr(base) & (HugePage - 1)
		start := unsafe.Add(base, head)
		tail := extra - head
		if head > 0 {
			unmap(base, head)
		}
		if tail > 0 {
			unmap(unsafe.Add(start, length), tail)
		}
		base = start
	}
	huge := size >= HugePage && adviseHuge(base, length)
	return mapping{base, length}, uintptr(base), huge, nil
}

func release(m mapping) { unmap(m.base, m.length) }

// unmap unmaps pages. It panics if that fails. Possible reasons are a range that is not aligned to
// pages, and the system's limit on the number of mappings.
func unmap(base unsafe.Pointer, length uintptr) {
	if err := unix.MunmapPtr(base, length); err != nil {
		panic(fmt.Errorf("hostmem: munmap of %p, %d bytes: %w", base, length, err))
	}
}
