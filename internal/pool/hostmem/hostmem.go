// Package hostmem is where the CPU driver's pool gets its segments: host memory on pages as large
// as the system gives.
//
// A fresh segment reads as zeros and is not resident until it is touched. The first touch is where
// an out-of-place operation on large tensors spends its time, and 2 MiB pages make it several times
// faster than 4 KiB pages. Segments lie outside Go's heap where the system allows it: the collector
// neither scans nor counts them, and they must hold no Go pointers. Elsewhere (see System) they are
// Go memory that the Memory keeps alive.
//
// Alloc, Free and Capacity are these methods of pool.Backing; a driver embeds a *Memory and adds
// the events.
package hostmem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/internal/pool"
)

// HugePage is the alignment of segments of at least that size, bytes.
const HugePage = 2 << 20

// Memory hands out segments of host memory. The zero value is ready. Methods may be called from any
// goroutine.
type Memory struct {
	mu   sync.Mutex
	held map[uintptr]segment
	used atomic.Uint64
	huge atomic.Uint64
}

// segment is what Free needs: the mapping around the segment, or the Go memory.
type segment struct {
	size uint64
	huge bool
	mapping
}

// Alloc returns size bytes of zeros, aligned to HugePage from that size on, else to the page. Its
// errors wrap pool.ErrNoMemory when the system refuses for want of memory.
func (m *Memory) Alloc(size uint64) (uintptr, error) {
	if size == 0 || size > 1<<47 { // more than user space has
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

// Free returns a segment to the system. Using its memory afterwards is a fault. It panics when addr
// and size are not a segment of m.
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

// Used returns the bytes handed out, and how many of these the system agreed to back by huge pages.
func (m *Memory) Used() (bytes, huge uint64) { return m.used.Load(), m.huge.Load() }

// Capacity returns the memory that the process could still get and all that it may ever have, the
// control group's limits considered; zero where the system does not tell.
func (m *Memory) Capacity() (free, total uint64) { return capacity() }

// goMemory returns zeroed Go memory of at least size bytes and its address. It starts on a page of
// 8 KiB, because the runtime gives large objects pages of their own, and does not move. When there
// is none the runtime ends the program; a pool's Limit is the way to an error. It is used where the
// system's own calls are not (System says "go"), and compiled and tested everywhere.
func goMemory(size uint64) ([]uint64, uintptr) {
	const page, atLeast = 8 << 10, 64 << 10 // small objects would share pages
	n := max(size, atLeast)
	words := make([]uint64, (n+page-1)/page*page/8)
	return words, uintptr(unsafe.Pointer(unsafe.SliceData(words)))
}
