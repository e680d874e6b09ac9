package emu

import (
	"fmt"
	"sort"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// metaMemory allocates addresses without memory. It has a limit, and rounds sizes like
// ptxvm.Memory.
type metaMemory struct {
	next, limit, mapped uint64
	ranges              []metaRange // ranges sorted by base
}

type metaRange struct {
	base, size uint64
	host       bool
	// home is the first address of the reserved range in which this range is mapped. It is 0 if
	// this range lies in no reserved range.
	home uint64
}

const (
	metaAlign = 512
	metaGap   = 1 << 20
)

func newMetaMemory(base, limit uint64) *metaMemory { return &metaMemory{next: base, limit: limit} }

func (m *metaMemory) add(size uint64, host bool) uint64 {
	addr := m.next
	m.ranges = append(m.ranges, metaRange{base: addr, size: size, host: host})
	m.next = (addr+size+metaAlign-1)/metaAlign*metaAlign + metaGap
	return addr
}

// alloc allocates addresses like the method Alloc of ptxvm.Memory.
func (m *metaMemory) alloc(size uint64) (uint64, error) {
	if size > m.limit {
		return 0, ptxvm.ErrNoMemory
	}
	size = (size + metaAlign - 1) / metaAlign * metaAlign
	if size > m.limit-m.mapped {
		return 0, ptxvm.ErrNoMemory
	}
	m.mapped += size
	return m.add(size, false), nil
}

// free removes the range that starts at addr.
func (m *metaMemory) free(addr uint64, host bool) error {
	i := sort.Search(len(m.ranges), func(i int) bool { return m.ranges[i].base >= addr })
	if i == len(m.ranges) || m.ranges[i].base != addr || m.ranges[i].host != host || m.ranges[i].home != 0 {
		return fmt.Errorf("emu: %#x is not the start of a range", addr)
	}
	if !host {
		m.mapped -= m.ranges[i].size
	}
	m.ranges = append(m.ranges[:i], m.ranges[i+1:]...)
	return nil
}

// check returns an error unless [addr, addr+n) lies in one range.
func (m *metaMemory) check(addr, n uint64) error {
	i := sort.Search(len(m.ranges), func(i int) bool { return m.ranges[i].base > addr }) - 1
	if i >= 0 {
		if r := m.ranges[i]; addr-r.base <= r.size && n <= r.size-(addr-r.base) {
			return nil
		}
	}
	return fmt.Errorf("emu: bytes [%#x,%#x) are not mapped", addr, addr+n)
}

// metaError returns the error of a call that would pass a value to the host in meta mode.
func metaError(call, what string) error {
	return &cu.Error{Call: call, Result: cu.ErrNotSupported, Detail: what, Cause: ErrMeta}
}

// unreservedMin is the least size of page-locked memory for which the system reserves no memory in
// meta mode. Its pages read as zeros, and take memory only after they were written.
const unreservedMin = 64 << 10
