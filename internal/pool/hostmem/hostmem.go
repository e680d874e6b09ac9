// Package hostmem allocates the segments of the CPU driver's pool, and its buffers for packed
// matrices. They are host memory with the largest pages that the system provides.
//
// A new segment reads as zeros. The system provides the memory of a page when the page is first
// accessed. An operation on large tensors that allocates its result spends most of its time on
// first accesses. They are several times faster with 2 MiB pages than with 4 KiB pages. On most
// systems segments lie outside of Go's heap. The garbage collector neither scans nor counts them,
// and they must not hold Go pointers. On other systems (see System) segments are Go memory that the
// Memory keeps alive.
//
// Memory has the methods Alloc, Free and Capacity of pool.Backing. A driver embeds a *Memory and
// adds the methods for events.
package hostmem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/internal/pool"
)

// HugePage is the size of a huge page in bytes. Segments of at least this size are aligned to it.
const HugePage = 2 << 20

// Memory allocates segments of host memory. The zero value is ready to use. Several goroutines may
// call its methods at the same time.
type Memory struct {
	mu   sync.Mutex
	held map[uintptr]segment
	used atomic.Uint64
	huge atomic.Uint64
}

// segment holds what Free needs: the mapping that contains the segment, or the Go memory.
type segment struct {
	size uint64
	huge bool
	mapping
}

// Alloc returns the address of size bytes, all of them zero. The address is aligned to HugePage if
// size is at least HugePage, else to a page. If the system has too little memory, the error wraps
// pool.ErrNoMemory.
func (m *Memory) Alloc(size uint64) (uintptr, error) {
	if size == 0 || size > 1<<47 { // no machine has this much memory
		return 0, fmt.Errorf("hostmem: segment of %d bytes: %w", size, pool.ErrNoMemory)
	}
	mp, addr, huge, err := acquire(size)
	if err != nil {
		return 0, fmt.Errorf("hostmem: segment of %d bytes: %w", size, err)
	}
	m.mu.Lock()
	if m.held == nil {
		m.held = map[uintptr]segment{}
	}
	m.held[addr] = segment{size, huge, mp}
	m.mu.Unlock()
	m.used.Add(size)
	if huge {
		m.huge.Add(size)
	}
	return addr, nil
}

// Free returns a segment to the system. Any later access to the segment is a fault. Free panics if
// addr and size do not describe a segment of m.
func (m *Memory) Free(addr uintptr, size uint64) {
	m.mu.Lock()
	s, ok := m.held[addr]
	if !ok || s.size != size {
		m.mu.Unlock()
		panic(fmt.Errorf("hostmem: Free of %#x, %d bytes, which is not a segment", addr, size))
	}
	delete(m.held, addr)
	m.mu.Unlock()
	m.used.Add(-size)
	if s.huge {
		m.huge.Add(-size)
	}
	release(s.mapping)
}

// Used returns the number of allocated bytes. The second result counts those for which the system
// accepted the advice to use huge pages.
func (m *Memory) Used() (bytes, huge uint64) { return m.used.Load(), m.huge.Load() }

// Capacity returns how much memory the process can still get, and how much it can have in total,
// within the limits of its control groups. Both are 0 if the system does not report them.
func (m *Memory) Capacity() (free, total uint64) { return capacity() }

// goMemory returns zeroed Go memory of at least size bytes, and its address. The memory does not
// move. Its address is a multiple of 8 KiB, because the runtime places large objects on pages of
// their own. When memory is exhausted, the runtime ends the program. The limit of a pool prevents
// this. Only systems whose System is "go" use goMemory. It is compiled and tested on all systems.
func goMemory(size uint64) ([]uint64, uintptr) {
	// the runtime may put objects smaller than atLeast on a shared page
	const page, atLeast = 8 << 10, 64 << 10
	n := max(size, atLeast)
	words := make([]uint64, (n+page-1)/page*page/8)
	return words, uintptr(unsafe.Pointer(unsafe.SliceData(words)))
}
