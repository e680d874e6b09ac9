package cuda

import (
	"errors"
	"fmt"
	"os"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/internal/pool"
)

var _ pool.Expander = backing{}

// largePage is the page size for blocks above 1 MiB on a GPU with at least manyPages bytes of
// memory. With larger pages, the pool calls the driver less often. PyTorch uses the same size.
const (
	largePage = 20 << 20
	manyPages = 16 << 30
)

// virtualMemory returns the driver's virtual memory management and the size of its pages. The size
// is 0 if the GPU has no virtual memory.
func (d *Device) virtualMemory() (cu.VirtualMemory, uint64) {
	v, ok := d.api.(cu.VirtualMemory)
	if !ok {
		return nil, 0
	}
	if has, err := d.api.DeviceAttribute(d.h, cu.AttrVirtualMemoryManagement); err != nil || has == 0 {
		return nil, 0
	}
	page, err := v.MemGranularity(d.h)
	if err != nil {
		return nil, 0
	}
	return v, page
}

// wantsExpandable reports whether the pool starts with expandable segments.
func (d *Device) wantsExpandable() bool {
	e, ok := d.api.(cu.Expandable)
	return ok && e.Expandable() || os.Getenv("FLAMBEAU_CUDA_EXPANDABLE") == "1"
}

// SetExpandableSegments turns expandable segments on or off for memory that the pool takes from the
// driver later (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True). If enabled, each stream has one
// range of addresses for small blocks and one for large blocks. A range grows by pages of 2 MiB (20
// MiB for large blocks if the GPU has 16 GiB or more). [Device.Empty] gives whole free pages back.
// Before an allocation fails, the pool gives free pages back by itself. Programs whose sizes change
// from step to step need less memory with this setting. Without it, segments have fixed sizes, and
// their free blocks may be too small for later requests.
//
// The setting is off by default, as in PyTorch; FLAMBEAU_CUDA_EXPANDABLE=1 turns it on. So far it
// has only run on the emulated driver, not on hardware. If the GPU has no virtual memory
// management, the error says so.
func (d *Device) SetExpandableSegments(enabled bool) error {
	if !d.pool.SetExpandable(enabled) && enabled {
		return fmt.Errorf("%s: %w", d, errNoVirtualMemory)
	}
	return nil
}

// ExpandableSegments reports whether new memory is taken in expandable segments.
func (d *Device) ExpandableSegments() bool { return d.pool.Expandable() }

var errNoVirtualMemory = errors.New("the GPU or its driver has no virtual memory management (CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), which expandable segments need")

// Granularity returns the size of a page of virtual memory in bytes, or 0 without virtual memory.
func (b backing) Granularity() uint64 { return b.d.page }

func (b backing) Reserve(size uint64) (uintptr, error) {
	d := b.d
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	p, err := d.api.(cu.VirtualMemory).MemAddressReserve(size)
	if err != nil {
		return 0, d.fault("", err)
	}
	return uintptr(p), nil
}

func (b backing) Unreserve(addr uintptr, size uint64) {
	d := b.d
	if d.enter() != nil {
		return
	}
	defer d.leave()
	_ = d.fault("", d.api.(cu.VirtualMemory).MemAddressFree(cu.DevicePtr(addr), size))
}

// Map maps memory to a range of addresses. It creates a handle for each page, so that each page can
// be given back separately.
func (b backing) Map(addr uintptr, size, page uint64) error {
	d := b.d
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	v := d.api.(cu.VirtualMemory)
	at := cu.DevicePtr(addr)
	end := at + cu.DevicePtr(size)
	var err error
	for at < end && err == nil {
		var h cu.MemHandle
		if h, err = v.MemCreate(page, d.h); err != nil {
			break
		}
		if err = v.MemMap(at, page, h); err == nil {
			at += cu.DevicePtr(page)
		}
		if e := v.MemRelease(h); err == nil {
			err = e
		}
	}
	if err == nil {
		err = v.MemSetAccess(cu.DevicePtr(addr), size, d.h)
	}
	if err == nil {
		return nil
	}
	for p := cu.DevicePtr(addr); p < at; p += cu.DevicePtr(page) {
		_ = v.MemUnmap(p, page) // only the first error is reported
	}
	if errors.Is(err, cu.ErrOutOfMemory) {
		return fmt.Errorf("%w: %w", pool.ErrNoMemory, err)
	}
	return d.fault("", err)
}

func (b backing) Unmap(addr uintptr, size, page uint64) {
	d := b.d
	if d.enter() != nil {
		return
	}
	defer d.leave()
	v := d.api.(cu.VirtualMemory)
	for p := cu.DevicePtr(addr); p < cu.DevicePtr(addr)+cu.DevicePtr(size); p += cu.DevicePtr(page) {
		if d.fault("", v.MemUnmap(p, page)) != nil {
			return
		}
	}
}

// expandableOptions adds the options for expandable segments to the pool's options.
func (d *Device) expandableOptions(o *pool.Options) error {
	_, d.page = d.virtualMemory()
	o.Expandable = d.wantsExpandable()
	if int64(d.info.Memory) >= manyPages {
		o.LargePage = largePage
	}
	if o.Expandable && d.page == 0 {
		return fmt.Errorf("expandable segments were asked for (FLAMBEAU_CUDA_EXPANDABLE=1): %w", errNoVirtualMemory)
	}
	return nil
}
