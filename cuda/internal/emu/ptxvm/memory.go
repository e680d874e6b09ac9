package ptxvm

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ErrNoMemory is the error of Memory.Alloc if the memory's limit would be exceeded.
var ErrNoMemory = errors.New("ptxvm: out of device memory")

// Bits of the shadow. Each byte of memory has one byte of shadow.
const (
	shAddressable = 1
	shInitialised = 2
	shReady       = shAddressable | shInitialised
	poison        = 0xFF // floats of any width that consist of these bytes are NaN
)

const (
	smallAlign = 512
	largeAlign = 2 << 20
	// guardGap is the least number of unmapped bytes after an allocation.
	guardGap = 1 << 20
)

// Memory is the global memory of one emulated device. Each byte has a shadow byte with two bits:
// addressable and initialised. All methods are safe for concurrent use, even while kernels run.
// Kernels may access disjoint bytes concurrently. An address is never allocated twice, so that use
// after Free is always found.
type Memory struct {
	mu     sync.Mutex
	next   uint64
	limit  uint64
	mapped uint64
	table  atomic.Pointer[[]*region] // regions sorted by base; changes replace the list
	peers  atomic.Pointer[[]Peer]
}

// region is one mapped range.
type region struct {
	base uint64
	size uint64
	data []byte
	// shadow has a byte for each byte of memory. It is nil in host memory, which is always
	// addressable and initialised.
	shadow []byte
	// home is the first address of the reserved range in which the region is mapped. It is 0 if
	// there is none.
	home   uint64
	mu     sync.Mutex
	blocks map[uint64]block // blocks of a pool in this region
}

// block is a part of a region that a pool has allocated.
type block struct {
	addr, requested, rounded uint64
	label                    string
	freed                    bool
}

// NewMemory returns an empty memory. Its addresses start at base, raised to a multiple of 2 MiB and
// to at least 2 MiB. It maps at most limit bytes at a time.
func NewMemory(base, limit uint64) *Memory {
	m := &Memory{next: roundUp(max(base, largeAlign), largeAlign), limit: limit}
	m.table.Store(&[]*region{})
	return m
}

func roundUp(n, align uint64) uint64 { return (n + align - 1) / align * align }

// Alloc maps size bytes. All of them are addressable, none is initialised, and floats in them are
// NaN. The address is a multiple of 512, or of 2 MiB if size is at least 2 MiB. The error is
// ErrNoMemory.
func (m *Memory) Alloc(size uint64) (uint64, error) {
	if size == 0 {
		return 0, fmt.Errorf("ptxvm: Alloc of 0 bytes")
	}
	m.mu.Lock()
	if size > m.limit-m.mapped || roundUp(size, smallAlign) > m.limit-m.mapped {
		m.mu.Unlock()
		return 0, ErrNoMemory
	}
	align := uint64(smallAlign)
	if size >= largeAlign {
		align = largeAlign
	}
	size = roundUp(size, smallAlign)
	m.mapped += size
	addr := roundUp(m.next, align)
	m.next = addr + size + guardGap
	m.mu.Unlock()
	r := &region{base: addr, size: size, data: make([]byte, size), shadow: make([]byte, size), blocks: map[uint64]block{}}
	fill(r.data, poison)
	fill(r.shadow, shAddressable)
	m.insert(r)
	return addr, nil
}

func fill(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

func (m *Memory) insert(r *region) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.table.Load()
	i := sort.Search(len(old), func(i int) bool { return old[i].base > r.base })
	t := make([]*region, 0, len(old)+1)
	t = append(append(append(t, old[:i]...), r), old[i:]...)
	m.table.Store(&t)
}

func (m *Memory) remove(addr uint64, host bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.table.Load()
	i := sort.Search(len(old), func(i int) bool { return old[i].base >= addr })
	if i == len(old) || old[i].base != addr || (old[i].shadow == nil) != host || old[i].home != 0 {
		return fmt.Errorf("ptxvm: %#x is not the start of a mapped range: %s", addr, m.describe(addr, 0))
	}
	if !host {
		m.mapped -= old[i].size
	}
	t := make([]*region, 0, len(old)-1)
	t = append(append(t, old[:i]...), old[i+1:]...)
	m.table.Store(&t)
	return nil
}

// Free unmaps the allocation that starts at addr.
func (m *Memory) Free(addr uint64) error { return m.remove(addr, false) }

// Mapped returns the number of bytes that are allocated now, without host mappings.
func (m *Memory) Mapped() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mapped
}

// MapHost makes host memory visible to kernels and returns its device address. All of it counts as
// initialised. The caller must keep b alive and unmoved until UnmapHost. For atomics, b must start
// at a multiple of 8 bytes.
func (m *Memory) MapHost(b []byte) uint64 {
	m.mu.Lock()
	addr := roundUp(m.next, smallAlign)
	m.next = addr + uint64(len(b)) + guardGap
	m.mu.Unlock()
	m.insert(&region{base: addr, size: uint64(len(b)), data: b, blocks: map[uint64]block{}})
	return addr
}

// UnmapHost removes a mapping of MapHost.
func (m *Memory) UnmapHost(addr uint64) error { return m.remove(addr, true) }

func (m *Memory) find(addr uint64) *region {
	t := *m.table.Load()
	lo, hi := 0, len(t)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if t[mid].base <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil
	}
	if r := t[lo-1]; addr-r.base < r.size {
		return r
	}
	return nil
}

func (m *Memory) span(addr, size uint64) (*region, uint64, error) {
	r := m.find(addr)
	if r == nil || size > r.size-(addr-r.base) {
		return nil, 0, fmt.Errorf("ptxvm: bytes [%#x,%#x) are not mapped: %s", addr, addr+size, m.describe(addr, size))
	}
	return r, addr - r.base, nil
}

// Bytes returns the memory at [addr, addr+size) for host copies and fills. The whole range must lie
// in one mapped range. Otherwise the error names the address and the nearest allocation. Bytes does
// not change or check the shadow.
func (m *Memory) Bytes(addr, size uint64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	r, off, err := m.span(addr, size)
	if err != nil {
		return nil, err
	}
	return r.data[off : off+size : off+size], nil
}

// MarkAllocated is called by a pool that allocates a block inside of an allocation. The bytes
// [addr, addr+requested) become addressable, uninitialised and poisoned. The bytes [addr+requested,
// addr+rounded) become not addressable. MarkAllocated panics if the range is not mapped, which is a
// bug of the pool.
func (m *Memory) MarkAllocated(addr, requested, rounded uint64, label string) {
	r, off := m.mustSpan(addr, rounded)
	if requested > rounded {
		panic(fmt.Sprintf("ptxvm: MarkAllocated: requested %d > rounded %d", requested, rounded))
	}
	fill(r.data[off:off+rounded], poison)
	fill(r.shadow[off:off+requested], shAddressable)
	clear(r.shadow[off+requested : off+rounded])
	r.mu.Lock()
	r.blocks[addr] = block{addr: addr, requested: requested, rounded: rounded, label: label}
	r.mu.Unlock()
}

// MarkTakenOver is MarkAllocated, except that bytes that are already addressable keep their
// contents.
func (m *Memory) MarkTakenOver(addr, requested, rounded uint64, label string) {
	r, off := m.mustSpan(addr, rounded)
	for i := off; i < off+requested; i++ {
		if r.shadow[i]&shAddressable == 0 {
			r.data[i], r.shadow[i] = poison, shAddressable
		}
	}
	r.mu.Lock()
	r.blocks[addr] = block{addr: addr, requested: requested, rounded: rounded, label: label}
	r.mu.Unlock()
}

// MarkFreed is called by a pool that frees a block. None of its bytes is addressable until the next
// MarkAllocated.
func (m *Memory) MarkFreed(addr, rounded uint64) {
	r, off := m.mustSpan(addr, rounded)
	clear(r.shadow[off : off+rounded])
	r.mu.Lock()
	b, ok := r.blocks[addr]
	if !ok {
		b = block{addr: addr, requested: rounded, rounded: rounded}
	}
	b.freed = true
	r.blocks[addr] = b
	r.mu.Unlock()
}

func (m *Memory) mustSpan(addr, size uint64) (*region, uint64) {
	r, off, err := m.span(addr, size)
	if err != nil {
		panic(err.Error())
	}
	if r.shadow == nil {
		panic(fmt.Sprintf("ptxvm: %#x is host memory", addr))
	}
	return r, off
}

// MarkInitialised records that the host wrote [addr, addr+size). It does not make bytes
// addressable. It panics if the range is not mapped.
func (m *Memory) MarkInitialised(addr, size uint64) {
	if size == 0 {
		return
	}
	r, off, err := m.span(addr, size)
	if err != nil {
		panic(err.Error())
	}
	if r.shadow == nil {
		return
	}
	s := r.shadow[off : off+size]
	for len(s) >= 8 {
		p := (*uint64)(unsafe.Pointer(&s[0]))
		*p |= (*p & 0x0101010101010101) << 1
		s = s[8:]
	}
	for i := range s {
		s[i] |= (s[i] & shAddressable) << 1
	}
}

// CopyInitialised copies the record of which bytes are initialised, as part of a copy of the bytes
// themselves. The range [src, src+size) lies in the source memory, which is m or the memory of a
// second device. The range [dst, dst+size) lies in m. CopyInitialised panics if a range is not
// mapped.
func (m *Memory) CopyInitialised(dst uint64, from *Memory, src, size uint64) {
	if size == 0 {
		return
	}
	rd, od, err := m.span(dst, size)
	if err != nil {
		panic(err.Error())
	}
	rs, os, err := from.span(src, size)
	if err != nil {
		panic(err.Error())
	}
	if rs.shadow == nil || rd.shadow == nil {
		m.MarkInitialised(dst, size)
		return
	}
	d, s := rd.shadow[od:od+size], rs.shadow[os:os+size]
	if rd == rs && od > os && od < os+size {
		// The ranges may overlap, so the source is copied first.
		s = append([]byte(nil), s...)
	}
	for i := range d {
		d[i] = d[i]&shAddressable | s[i]&(d[i]<<1)&shInitialised
	}
}

// CheckAddressable returns an error for the first byte of [addr, addr+size) that is not mapped, or
// that belongs to no block of its pool.
func (m *Memory) CheckAddressable(addr, size uint64) error {
	return m.check(addr, size, shAddressable, "is not addressable")
}

// CheckInitialised returns an error for the first byte of [addr, addr+size) that was never written.
func (m *Memory) CheckInitialised(addr, size uint64) error {
	return m.check(addr, size, shReady, "is not initialised")
}

func (m *Memory) check(addr, size uint64, want byte, what string) error {
	if size == 0 {
		return nil
	}
	r, off, err := m.span(addr, size)
	if err != nil {
		return err
	}
	if r.shadow == nil {
		return nil
	}
	for i, s := range r.shadow[off : off+size] {
		if s&want != want {
			return fmt.Errorf("ptxvm: byte %#x %s: %s", addr+uint64(i), what, m.describe(addr+uint64(i), 1))
		}
	}
	return nil
}

// describe returns a text that says where [addr, addr+size) lies: in which allocation or block, or
// how far from the nearest one.
func (m *Memory) describe(addr, size uint64) string {
	if addr < smallAlign {
		return "a null pointer"
	}
	t := *m.table.Load()
	if len(t) == 0 {
		return "nothing is allocated"
	}
	var best *block
	dist := ^uint64(0)
	consider := func(b block) {
		var d uint64
		switch {
		case addr < b.addr:
			d = b.addr - addr
		case addr+size > b.addr+b.requested:
			d = addr + size - (b.addr + b.requested)
		}
		if d < dist || d == dist && best != nil && best.freed && !b.freed {
			dist, best = d, &b
		}
	}
	i := sort.Search(len(t), func(i int) bool { return t[i].base > addr })
	for j := max(i-1, 0); j <= min(i, len(t)-1); j++ {
		r := t[j]
		r.mu.Lock()
		any := false
		for _, b := range r.blocks {
			consider(b)
			any = true
		}
		r.mu.Unlock()
		if !any {
			consider(block{addr: r.base, requested: r.size, rounded: r.size})
		}
	}
	name := fmt.Sprintf("the allocation of %d bytes at %#x", best.requested, best.addr)
	if best.label != "" {
		name = fmt.Sprintf("%q (%d bytes at %#x)", best.label, best.requested, best.addr)
	}
	if best.freed {
		name += ", which is freed"
	}
	switch {
	case dist == 0:
		return fmt.Sprintf("%d bytes into %s", addr-best.addr, name)
	case addr < best.addr:
		return fmt.Sprintf("%d bytes before %s", dist, name)
	default:
		return fmt.Sprintf("%d bytes past the end of %s", dist, name)
	}
}
