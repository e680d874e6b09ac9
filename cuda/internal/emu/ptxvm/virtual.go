package ptxvm

import (
	"fmt"
	"maps"
	"sort"
)

// Reserve reserves size bytes of addresses, at which Map can put memory, and returns the first
// address. The address is a multiple of align, a power of two. All addresses of the range are less
// than end. If there is no such range, ok is false.
func (m *Memory) Reserve(size, align, end uint64) (addr uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	addr = roundUp(m.next, align)
	if addr > end || size+guardGap > end-addr || size+guardGap < size {
		return 0, false
	}
	m.next = addr + size + guardGap
	return addr, true
}

// Commit counts size bytes against the limit, for memory that has no address yet. It returns
// ErrNoMemory if the limit would be exceeded. Uncommit undoes a Commit.
func (m *Memory) Commit(size uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > m.limit-m.mapped {
		return ErrNoMemory
	}
	m.mapped += size
	return nil
}

// Uncommit undoes Commit.
func (m *Memory) Uncommit(size uint64) {
	m.mu.Lock()
	m.mapped -= size
	m.mu.Unlock()
}

// Map puts memory at [addr, addr+size) of the reserved range that starts at home. The memory is
// uninitialised, and not addressable until SetAddressable. Accesses and copies may span
// neighbouring mappings of one range. If something is already mapped there, Map returns an error.
// No kernel may be running.
func (m *Memory) Map(home, addr, size uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.table.Load()
	i := sort.Search(len(old), func(i int) bool { return old[i].base >= addr })
	if i < len(old) && old[i].base < addr+size || i > 0 && old[i-1].base+old[i-1].size > addr {
		return fmt.Errorf("ptxvm: something is mapped in [%#x,%#x)", addr, addr+size)
	}
	r := &region{base: addr, home: home, blocks: map[uint64]block{}}
	from, to := i, i
	if i > 0 && old[i-1].home == home && old[i-1].base+old[i-1].size == addr {
		from--
		left := old[from]
		r.base, r.data, r.shadow = left.base, left.data, left.shadow
		maps.Copy(r.blocks, left.blocks)
	}
	r.data = append(r.data, make([]byte, size)...)
	r.shadow = append(r.shadow, make([]byte, size)...)
	fill(r.data[addr-r.base:], poison)
	clear(r.shadow[addr-r.base:]) // clears the marks of an earlier mapping
	if i < len(old) && old[i].home == home && old[i].base == addr+size {
		to++
		right := old[i]
		r.data, r.shadow = append(r.data, right.data...), append(r.shadow, right.shadow...)
		maps.Copy(r.blocks, right.blocks)
	}
	r.size = uint64(len(r.data))
	t := make([]*region, 0, len(old)+1)
	t = append(append(append(t, old[:from]...), r), old[to:]...)
	m.table.Store(&t)
	return nil
}

// SetAddressable makes mapped bytes accessible. All of them must lie in one mapped range.
func (m *Memory) SetAddressable(addr, size uint64) error {
	r, off, err := m.span(addr, size)
	if err != nil {
		return err
	}
	fill(r.shadow[off:off+size], shAddressable)
	return nil
}

// Unmap removes the memory at [addr, addr+size), which Map had mapped there. The addresses may be
// mapped again.
func (m *Memory) Unmap(addr, size uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.table.Load()
	i := sort.Search(len(old), func(i int) bool { return old[i].base > addr }) - 1
	if i < 0 || old[i].home == 0 || size > old[i].size || addr-old[i].base > old[i].size-size {
		return fmt.Errorf("ptxvm: bytes [%#x,%#x) are not mapped", addr, addr+size)
	}
	r := old[i]
	off := addr - r.base
	part := func(from, to uint64) *region {
		p := &region{base: r.base + from, size: to - from, home: r.home, data: r.data[from:to:to], shadow: r.shadow[from:to:to], blocks: map[uint64]block{}}
		for a, b := range r.blocks {
			if a >= p.base && a < p.base+p.size {
				p.blocks[a] = b
			}
		}
		return p
	}
	t := make([]*region, 0, len(old)+1)
	t = append(t, old[:i]...)
	if off > 0 {
		t = append(t, part(0, off))
	}
	if off+size < r.size {
		t = append(t, part(off+size, r.size))
	}
	t = append(t, old[i+1:]...)
	m.table.Store(&t)
	return nil
}
