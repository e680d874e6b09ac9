package cu

// MemHandle is a piece of physical memory of a device, made by MemCreate. The zero value is none.
type MemHandle uint64

// VirtualMemory is satisfied by implementations with the driver's virtual memory management: ranges of addresses without memory, and
// memory without addresses, that are joined page by page. A device has it where AttrVirtualMemoryManagement is 1. Sizes and addresses are
// multiples of MemGranularity.
type VirtualMemory interface {
	// MemGranularity is cuMemGetAllocationGranularity (minimum) for memory on the device: the size of its pages, 2 MiB on hardware.
	MemGranularity(d Device) (uint64, error)
	// MemAddressReserve is cuMemAddressReserve: n bytes of addresses with nothing behind them, in the current context's device.
	MemAddressReserve(n uint64) (DevicePtr, error)
	// MemAddressFree is cuMemAddressFree of a whole reserved range in which nothing is mapped.
	MemAddressFree(p DevicePtr, n uint64) error
	// MemCreate is cuMemCreate: n bytes of memory of the device, at no address. ErrOutOfMemory where there are none.
	MemCreate(n uint64, d Device) (MemHandle, error)
	// MemRelease is cuMemRelease. Memory that is still mapped lives until it is unmapped.
	MemRelease(h MemHandle) error
	// MemMap is cuMemMap of all n bytes of the handle at p, in a reserved range. They cannot be accessed before MemSetAccess.
	MemMap(p DevicePtr, n uint64, h MemHandle) error
	// MemSetAccess is cuMemSetAccess: d may read and write the mapped bytes.
	MemSetAccess(p DevicePtr, n uint64, d Device) error
	// MemUnmap is cuMemUnmap of whole mappings. Pending work that uses them is the caller's error.
	MemUnmap(p DevicePtr, n uint64) error
}

// Expandable is satisfied by an implementation that says whether pools are to use VirtualMemory where nothing else does.
type Expandable interface {
	Expandable() bool
}
