package emu

import (
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// MemAlloc maps n bytes without defined contents. It returns ErrOutOfMemory if that exceeds the
// device's limit.
func (d *Driver) MemAlloc(n uint64) (cu.DevicePtr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemAlloc"
	ctx, err := d.currentContext(call)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, fail(call, cu.ErrInvalidValue, "0 bytes")
	}
	if ctx.dev.short.refuses() {
		return 0, fail(call, cu.ErrOutOfMemory, "%d bytes are refused on emulated device %d: a test has asked for that", n, ctx.dev.ordinal)
	}
	var p uint64
	if dev := ctx.dev; dev.mem != nil {
		p, err = dev.mem.Alloc(n)
	} else {
		p, err = dev.meta.alloc(n)
	}
	if err != nil {
		return 0, fail(call, cu.ErrOutOfMemory, "%d bytes, %d of %d bytes are in use on emulated device %d", n, ctx.dev.mapped(), d.cfg.Memory, ctx.dev.ordinal)
	}
	d.counters.Allocs++
	return cu.DevicePtr(p), nil
}

// mapped returns the number of bytes allocated on the device.
func (dev *device) mapped() uint64 {
	if dev.mem != nil {
		return dev.mem.Mapped()
	}
	return dev.meta.mapped
}

// MemFree unmaps an allocation immediately, without waiting. If pending work still uses the memory,
// that work ends its context when it runs.
func (d *Driver) MemFree(p cu.DevicePtr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemFree"
	dev := d.deviceAt(p)
	if dev == nil {
		return fail(call, cu.ErrInvalidValue, "%#x is not an address of an emulated device", uint64(p))
	}
	if dev.ctx != nil && dev.ctx.dead != nil {
		return dev.ctx.dead
	}
	var err error
	if dev.mem != nil {
		err = dev.mem.Free(uint64(p))
	} else {
		err = dev.meta.free(uint64(p), false)
	}
	if err != nil {
		return &cu.Error{Call: call, Result: cu.ErrInvalidValue, Detail: fmt.Sprintf("%#x", uint64(p)), Cause: err}
	}
	d.counters.Frees++
	return nil
}

// MemGetInfo returns the memory limit of the current device, and how much of it is free.
func (d *Driver) MemGetInfo() (free, total uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, err := d.currentContext("cuMemGetInfo")
	if err != nil {
		return 0, 0, err
	}
	return d.cfg.Memory - ctx.dev.mapped(), d.cfg.Memory, nil
}

// deviceAt returns the device in whose address range p lies, or nil.
func (d *Driver) deviceAt(p cu.DevicePtr) *device {
	i := uint64(p) / addressBase(0)
	if i < 1 || i > uint64(len(d.devices)) {
		return nil
	}
	return d.devices[i-1]
}

// hostBlock is a block of page-locked host memory. It is ordinary Go memory, which does not move.
// The driver keeps it alive.
type hostBlock struct {
	buf        []byte
	flags      cu.HostAllocFlags
	mapped     map[int]uint64 // the block's address on each device, by the device's ordinal
	freed      bool
	unreserved bool // whether the system reserves no memory for the block (meta mode)
}

const pageSize = 4096

func (h *hostBlock) base() uintptr { return uintptr(unsafe.Pointer(&h.buf[0])) }

// MemHostAlloc allocates page-aligned host memory.
func (d *Driver) MemHostAlloc(n uint64, f cu.HostAllocFlags) (unsafe.Pointer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemHostAlloc"
	if _, err := d.currentContext(call); err != nil {
		return nil, err
	}
	switch {
	case n == 0:
		return nil, fail(call, cu.ErrInvalidValue, "0 bytes")
	case f&^(cu.HostPortable|cu.HostDeviceMap|cu.HostWriteCombined) != 0:
		return nil, fail(call, cu.ErrInvalidValue, "flags %#x", uint32(f))
	case n > MaxMemory:
		return nil, fail(call, cu.ErrOutOfMemory, "%d bytes", n)
	case d.cfg.NoHost != nil && d.cfg.NoHost():
		return nil, fail(call, cu.ErrOutOfMemory, "%d bytes are refused: a test has asked for that", n)
	}
	h := &hostBlock{flags: f, mapped: map[int]uint64{}, unreserved: d.cfg.Meta && n >= unreservedMin}
	if h.unreserved {
		var err error
		if h.buf, err = mapUnreserved(n); err != nil {
			return nil, &cu.Error{Call: call, Result: cu.ErrOutOfMemory, Detail: fmt.Sprintf("%d bytes", n), Cause: err}
		}
	} else {
		raw := make([]byte, n+pageSize)
		skip := -uintptr(unsafe.Pointer(&raw[0])) % pageSize
		h.buf = raw[skip : uint64(skip)+n : uint64(skip)+n]
	}
	i := sort.Search(len(d.hosts), func(i int) bool { return d.hosts[i].base() > h.base() })
	d.hosts = slices.Insert(d.hosts, i, h)
	d.counters.HostAllocs++
	return unsafe.Pointer(&h.buf[0]), nil
}

// hostAt returns the page-locked block that contains all of [p, p+n), or nil for pageable memory.
// The caller holds d.mu.
func (d *Driver) hostAt(p unsafe.Pointer, n uint64) *hostBlock {
	a := uintptr(p)
	i := sort.Search(len(d.hosts), func(i int) bool { return d.hosts[i].base() > a }) - 1
	if i < 0 {
		return nil
	}
	h := d.hosts[i]
	if off := uint64(a - h.base()); off >= uint64(len(h.buf)) || n > uint64(len(h.buf))-off {
		return nil
	}
	return h
}

// MemFreeHost frees page-locked memory. If a pending copy uses the memory, the copy ends its
// context when it runs.
func (d *Driver) MemFreeHost(p unsafe.Pointer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.hostAt(p, 0)
	if h == nil || h.base() != uintptr(p) {
		return fail("cuMemFreeHost", cu.ErrInvalidValue, "%p is not the start of pinned memory", p)
	}
	for ordinal, addr := range h.mapped {
		dev := d.devices[ordinal]
		var err error
		if dev.mem != nil {
			err = dev.mem.UnmapHost(addr)
		} else {
			err = dev.meta.free(addr, true)
		}
		if err != nil {
			return &cu.Error{Call: "cuMemFreeHost", Result: cu.ErrInvalidValue, Cause: err}
		}
	}
	h.freed = true
	d.hosts = slices.DeleteFunc(d.hosts, func(o *hostBlock) bool { return o == h })
	if h.unreserved {
		if err := unmap(h.buf); err != nil {
			return &cu.Error{Call: "cuMemFreeHost", Result: cu.ErrInvalidValue, Cause: err}
		}
	}
	return nil
}

// MemHostGetDevicePointer maps page-locked memory that was allocated with HostDeviceMap into the
// current device. The device address differs from the host address.
func (d *Driver) MemHostGetDevicePointer(p unsafe.Pointer) (cu.DevicePtr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuMemHostGetDevicePointer"
	ctx, err := d.currentContext(call)
	if err != nil {
		return 0, err
	}
	h := d.hostAt(p, 0)
	switch {
	case h == nil:
		return 0, fail(call, cu.ErrInvalidValue, "%p is not pinned memory", p)
	case h.flags&cu.HostDeviceMap == 0:
		return 0, fail(call, cu.ErrInvalidValue, "the memory at %p was allocated without HostDeviceMap", p)
	}
	dev := ctx.dev
	addr, ok := h.mapped[dev.ordinal]
	if !ok {
		if dev.mem != nil {
			addr = dev.mem.MapHost(h.buf)
		} else {
			addr = dev.meta.add(uint64(len(h.buf)), true)
		}
		h.mapped[dev.ordinal] = addr
	}
	return cu.DevicePtr(addr + uint64(uintptr(p)-h.base())), nil
}
