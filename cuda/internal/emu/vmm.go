package emu

import (
	"fmt"
	"slices"
	"sort"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

var (
	_ cu.VirtualMemory = (*Driver)(nil)
	_ cu.Expandable    = (*Driver)(nil)
)

// virtual holds the state of a device's virtual memory management.
type virtual struct {
	// ranges holds the sizes of reserved ranges, by their address.
	ranges  map[uint64]uint64
	handles map[cu.MemHandle]*physical // memory that is not released yet, or still mapped
	mapped  map[uint64]*physical       // mapped memory, by its address
}

// physical is memory that MemCreate has allocated. It can be mapped at one address only.
type physical struct {
	handle   cu.MemHandle
	size     uint64
	addr     uint64 // address at which the memory is mapped; 0 if it is not mapped
	released bool
}

func newVirtual() *virtual {
	return &virtual{ranges: map[uint64]uint64{}, handles: map[cu.MemHandle]*physical{}, mapped: map[uint64]*physical{}}
}

// granularity returns the default page size. This is the page size of hardware, or a smaller one
// if a device would have fewer than 32 such pages.
func granularity(memory uint64) uint64 {
	g := uint64(2 << 20)
	for memory < 1<<30 && g > 64<<10 && g > memory/32 {
		g /= 2
	}
	return g
}

// Expandable reports whether the Config lets pools use virtual memory.
func (d *Driver) Expandable() bool { return d.cfg.Expandable }

// MemGranularity returns the page size in the Config.
func (d *Driver) MemGranularity(dev cu.Device) (uint64, error) {
	_, err := d.device("cuMemGetAllocationGranularity", dev)
	return d.cfg.Granularity, err
}

// pages returns an error unless an address and a size are multiples of the page size.
func (d *Driver) pages(call string, p cu.DevicePtr, n uint64) error {
	if g := d.cfg.Granularity; n == 0 || n%g != 0 || uint64(p)%g != 0 {
		return fail(call, cu.ErrInvalidValue, "%d bytes at %#x: pages have %d bytes", n, uint64(p), g)
	}
	return nil
}

// MemAddressReserve returns addresses that were never used before.
func (d *Driver) MemAddressReserve(n uint64) (cu.DevicePtr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemAddressReserve"
	ctx, err := d.currentContext(call)
	if err != nil {
		return 0, err
	}
	if err := d.pages(call, 0, n); err != nil {
		return 0, err
	}
	dev := ctx.dev
	var p uint64
	var ok bool
	if end := addressBase(dev.ordinal + 1); dev.mem != nil {
		p, ok = dev.mem.Reserve(n, d.cfg.Granularity, end)
	} else {
		p, ok = dev.meta.reserve(n, d.cfg.Granularity, end)
	}
	if !ok {
		return 0, fail(call, cu.ErrOutOfMemory, "%d bytes: the device has not so many addresses left", n)
	}
	dev.virtual.ranges[p] = n
	return cu.DevicePtr(p), nil
}

// virtualAt returns the device of an address and the reserved range that contains all of [p, p+n).
// If there is no such range, dev is nil. The caller holds d.mu.
func (d *Driver) virtualAt(p cu.DevicePtr, n uint64) (dev *device, home uint64) {
	dev = d.deviceAt(p)
	if dev == nil {
		return nil, 0
	}
	for a, size := range dev.virtual.ranges {
		if off := uint64(p) - a; uint64(p) >= a && off <= size && n <= size-off {
			return dev, a
		}
	}
	return nil, 0
}

// MemAddressFree removes a reserved range.
func (d *Driver) MemAddressFree(p cu.DevicePtr, n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemAddressFree"
	dev, home := d.virtualAt(p, n)
	if dev == nil || home != uint64(p) || dev.virtual.ranges[home] != n {
		return fail(call, cu.ErrInvalidValue, "%d bytes at %#x are no reserved range", n, uint64(p))
	}
	for a := range dev.virtual.mapped {
		if a >= home && a < home+n {
			return fail(call, cu.ErrInvalidValue, "memory is mapped at %#x of the range at %#x", a, home)
		}
	}
	delete(dev.virtual.ranges, home)
	return nil
}

// MemCreate allocates memory that has no address yet. The memory counts against the device's limit.
func (d *Driver) MemCreate(n uint64, o cu.Device) (cu.MemHandle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemCreate"
	dev, err := d.device(call, o)
	if err != nil {
		return 0, err
	}
	if dev.ctx != nil && dev.ctx.dead != nil {
		return 0, dev.ctx.dead
	}
	if err := d.pages(call, 0, n); err != nil {
		return 0, err
	}
	if dev.short.refuses() {
		return 0, fail(call, cu.ErrOutOfMemory, "%d bytes are refused on emulated device %d: a test has asked for that", n, dev.ordinal)
	}
	if dev.mem != nil {
		err = dev.mem.Commit(n)
	} else {
		err = dev.meta.commit(n)
	}
	if err != nil {
		return 0, fail(call, cu.ErrOutOfMemory, "%d bytes, %d of %d bytes are in use on emulated device %d", n, dev.mapped(), d.cfg.Memory, dev.ordinal)
	}
	h := &physical{handle: cu.MemHandle(d.handle()), size: n}
	dev.virtual.handles[h.handle] = h
	d.counters.Allocs++
	return h.handle, nil
}

// handleOf returns the memory with the given handle, and its device. The caller holds d.mu.
func (d *Driver) handleOf(call string, h cu.MemHandle) (*device, *physical, error) {
	for _, dev := range d.devices {
		if m := dev.virtual.handles[h]; m != nil && !m.released {
			return dev, m, nil
		}
	}
	return nil, nil, fail(call, cu.ErrInvalidValue, "there is no memory %#x", uint64(h))
}

// MemRelease frees memory. Memory that is still mapped is freed by MemUnmap.
func (d *Driver) MemRelease(h cu.MemHandle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dev, m, err := d.handleOf("cuMemRelease", h)
	if err != nil {
		return err
	}
	m.released = true
	d.dropMemory(dev, m)
	return nil
}

// dropMemory frees memory to which neither a handle nor a mapping refers any more.
func (d *Driver) dropMemory(dev *device, m *physical) {
	if !m.released || m.addr != 0 {
		return
	}
	delete(dev.virtual.handles, m.handle)
	if dev.mem != nil {
		dev.mem.Uncommit(m.size)
	} else {
		dev.meta.mapped -= m.size
	}
	d.counters.Frees++
}

// MemMap maps all of a handle's memory at an address. Its contents are uninitialised after each
// mapping.
func (d *Driver) MemMap(p cu.DevicePtr, n uint64, h cu.MemHandle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemMap"
	if err := d.pages(call, p, n); err != nil {
		return err
	}
	owner, m, err := d.handleOf(call, h)
	if err != nil {
		return err
	}
	dev, home := d.virtualAt(p, n)
	switch {
	case dev == nil:
		return fail(call, cu.ErrInvalidValue, "%d bytes at %#x lie in no reserved range", n, uint64(p))
	case dev != owner:
		return fail(call, cu.ErrInvalidValue, "memory of device %d at an address of device %d is not emulated", owner.ordinal, dev.ordinal)
	case m.size != n:
		return fail(call, cu.ErrInvalidValue, "%d bytes of a memory of %d", n, m.size)
	case m.addr != 0:
		return fail(call, cu.ErrInvalidValue, "the memory is mapped at %#x; a second place is not emulated", m.addr)
	}
	if dev.mem != nil {
		err = dev.mem.Map(home, uint64(p), n)
	} else {
		err = dev.meta.mapPages(home, uint64(p), n)
	}
	if err != nil {
		return &cu.Error{Call: call, Result: cu.ErrInvalidValue, Cause: err}
	}
	m.addr = uint64(p)
	dev.virtual.mapped[m.addr] = m
	return nil
}

// mappings returns the mappings that make up [p, p+n). If there is a gap, or if a mapping exceeds
// the range, it returns an error. The caller holds d.mu.
func (d *Driver) mappings(call string, p cu.DevicePtr, n uint64) (*device, []*physical, error) {
	if err := d.pages(call, p, n); err != nil {
		return nil, nil, err
	}
	dev := d.deviceAt(p)
	if dev == nil {
		return nil, nil, fail(call, cu.ErrInvalidValue, "%#x is not an address of an emulated device", uint64(p))
	}
	var list []*physical
	at := uint64(p)
	for at < uint64(p)+n {
		m := dev.virtual.mapped[at]
		if m == nil || m.size > uint64(p)+n-at {
			return nil, nil, fail(call, cu.ErrInvalidValue, "%d bytes at %#x are not whole mappings: no mapping that ends in them starts at %#x", n, uint64(p), at)
		}
		list = append(list, m)
		at += m.size
	}
	return dev, list, nil
}

// MemSetAccess makes mapped memory accessible to kernels and copies of its own device.
func (d *Driver) MemSetAccess(p cu.DevicePtr, n uint64, o cu.Device) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemSetAccess"
	dev, list, err := d.mappings(call, p, n)
	if err != nil {
		return err
	}
	if int(o) != dev.ordinal {
		return fail(call, cu.ErrInvalidValue, "access of device %d to memory of device %d is not emulated", o, dev.ordinal)
	}
	if dev.mem == nil {
		return nil
	}
	for _, m := range list {
		if err := dev.mem.SetAddressable(m.addr, m.size); err != nil {
			return &cu.Error{Call: call, Result: cu.ErrInvalidValue, Cause: err}
		}
	}
	return nil
}

// MemUnmap unmaps memory immediately. Like MemFree, it does not wait for work.
func (d *Driver) MemUnmap(p cu.DevicePtr, n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemUnmap"
	dev, list, err := d.mappings(call, p, n)
	if err != nil {
		return err
	}
	if dev.mem != nil {
		err = dev.mem.Unmap(uint64(p), n)
	} else {
		err = dev.meta.unmapPages(uint64(p), n)
	}
	if err != nil {
		return &cu.Error{Call: call, Result: cu.ErrInvalidValue, Cause: err}
	}
	for _, m := range list {
		delete(dev.virtual.mapped, m.addr)
		m.addr = 0
		d.dropMemory(dev, m)
	}
	return nil
}

// reserve reserves addresses like the method Reserve of ptxvm.Memory.
func (m *metaMemory) reserve(size, align, end uint64) (addr uint64, ok bool) {
	addr = (m.next + align - 1) / align * align
	if addr > end || size+metaGap > end-addr || size+metaGap < size {
		return 0, false
	}
	m.next = addr + size + metaGap
	return addr, true
}

func (m *metaMemory) commit(size uint64) error {
	if size > m.limit-m.mapped {
		return ptxvm.ErrNoMemory
	}
	m.mapped += size
	return nil
}

// mapPages maps addresses like the method Map of ptxvm.Memory.
func (m *metaMemory) mapPages(home, addr, size uint64) error {
	i := sort.Search(len(m.ranges), func(i int) bool { return m.ranges[i].base >= addr })
	if i < len(m.ranges) && m.ranges[i].base < addr+size || i > 0 && m.ranges[i-1].base+m.ranges[i-1].size > addr {
		return fmt.Errorf("emu: something is mapped in [%#x,%#x)", addr, addr+size)
	}
	r := metaRange{base: addr, size: size, home: home}
	from, to := i, i
	if i > 0 && m.ranges[i-1].home == home && m.ranges[i-1].base+m.ranges[i-1].size == addr {
		from--
		r.base, r.size = m.ranges[from].base, r.size+m.ranges[from].size
	}
	if i < len(m.ranges) && m.ranges[i].home == home && m.ranges[i].base == addr+size {
		to++
		r.size += m.ranges[i].size
	}
	m.ranges = slices.Replace(m.ranges, from, to, r)
	return nil
}

// unmapPages unmaps addresses like the method Unmap of ptxvm.Memory.
func (m *metaMemory) unmapPages(addr, size uint64) error {
	i := sort.Search(len(m.ranges), func(i int) bool { return m.ranges[i].base > addr }) - 1
	if i < 0 || m.ranges[i].home == 0 || size > m.ranges[i].size || addr-m.ranges[i].base > m.ranges[i].size-size {
		return fmt.Errorf("emu: bytes [%#x,%#x) are not mapped", addr, addr+size)
	}
	r := m.ranges[i]
	var parts []metaRange
	if addr > r.base {
		parts = append(parts, metaRange{base: r.base, size: addr - r.base, home: r.home})
	}
	if end := r.base + r.size; addr+size < end {
		parts = append(parts, metaRange{base: addr + size, size: end - addr - size, home: r.home})
	}
	m.ranges = slices.Replace(m.ranges, i, i+1, parts...)
	return nil
}
