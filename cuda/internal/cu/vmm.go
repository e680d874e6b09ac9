//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"runtime"
	"unsafe"
)

var _ VirtualMemory = (*driver)(nil)

// vmmSymbols are the functions of virtual memory management. A driver of version Minimum has all of
// them.
type vmmSymbols struct {
	memGetAllocationGranularity, memAddressReserve, memAddressFree, memCreate uintptr
	memRelease, memMap, memSetAccess, memUnmap                                uintptr
}

var vmmTable = []symbol{
	{"cuMemGetAllocationGranularity", "", func(s *symbols) *uintptr { return &s.memGetAllocationGranularity }},
	{"cuMemAddressReserve", "", func(s *symbols) *uintptr { return &s.memAddressReserve }},
	{"cuMemAddressFree", "", func(s *symbols) *uintptr { return &s.memAddressFree }},
	{"cuMemCreate", "", func(s *symbols) *uintptr { return &s.memCreate }},
	{"cuMemRelease", "", func(s *symbols) *uintptr { return &s.memRelease }},
	{"cuMemMap", "", func(s *symbols) *uintptr { return &s.memMap }},
	{"cuMemSetAccess", "", func(s *symbols) *uintptr { return &s.memSetAccess }},
	{"cuMemUnmap", "", func(s *symbols) *uintptr { return &s.memUnmap }},
}

func init() { symbolTable = append(symbolTable, vmmTable...) }

// memLocation is CUmemLocation.
type memLocation struct {
	kind int32
	id   int32
}

// memAllocationProp is CUmemAllocationProp.
type memAllocationProp struct {
	kind        int32
	handleTypes int32
	location    memLocation
	win32       uintptr
	compression uint8
	rdma        uint8
	usage       uint16
	reserved    [4]uint8
}

// memAccessDesc is CUmemAccessDesc.
type memAccessDesc struct {
	location memLocation
	flags    int32
}

// These are constants of cuda.h.
const (
	memAllocationPinned   = 1 // CU_MEM_ALLOCATION_TYPE_PINNED
	memLocationDevice     = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	memAccessReadWrite    = 3 // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	memGranularityMinimum = 0 // CU_MEM_ALLOC_GRANULARITY_MINIMUM
)

// onDevice returns the properties of memory of a device. They lie on the heap, because C functions
// need memory that does not move.
//
//go:noinline
func onDevice(d Device) *memAllocationProp {
	return &memAllocationProp{kind: memAllocationPinned, location: memLocation{memLocationDevice, int32(d)}}
}

func (d *driver) MemGranularity(dev Device) (uint64, error) {
	p := onDevice(dev)
	n, r := get1(d.fn.memGetAllocationGranularity, uintptr(unsafe.Pointer(p)), memGranularityMinimum)
	runtime.KeepAlive(p)
	return n, failf(r, "cuMemGetAllocationGranularity", "device %d", dev)
}

func (d *driver) MemAddressReserve(n uint64) (DevicePtr, error) {
	b := getBlock(d.fn.memAddressReserve)
	defer putBlock(b)
	b.out[0] = 0
	b.a[0], b.a[1], b.a[2], b.a[3], b.a[4] = b.outAddr(0), uintptr(n), 0, 0, 0
	r := b.call()
	return DevicePtr(b.out[0]), failf(r, "cuMemAddressReserve", "%d bytes", n)
}

func (d *driver) MemAddressFree(p DevicePtr, n uint64) error {
	return failf(call2(d.fn.memAddressFree, uintptr(p), uintptr(n)), "cuMemAddressFree", "%d bytes at %#x", n, uint64(p))
}

func (d *driver) MemCreate(n uint64, dev Device) (MemHandle, error) {
	p := onDevice(dev)
	h, r := get1(d.fn.memCreate, uintptr(n), uintptr(unsafe.Pointer(p)), 0)
	runtime.KeepAlive(p)
	return MemHandle(h), failf(r, "cuMemCreate", "%d bytes of device %d", n, dev)
}

func (d *driver) MemRelease(h MemHandle) error {
	return failf(call1(d.fn.memRelease, uintptr(h)), "cuMemRelease", "%#x", uint64(h))
}

func (d *driver) MemMap(p DevicePtr, n uint64, h MemHandle) error {
	b := getBlock(d.fn.memMap)
	defer putBlock(b)
	b.a[0], b.a[1], b.a[2], b.a[3], b.a[4] = uintptr(p), uintptr(n), 0, uintptr(h), 0
	r := b.call()
	return failf(r, "cuMemMap", "%d bytes at %#x", n, uint64(p))
}

//go:noinline
func readWrite(d Device) *memAccessDesc {
	return &memAccessDesc{memLocation{memLocationDevice, int32(d)}, memAccessReadWrite}
}

func (d *driver) MemSetAccess(p DevicePtr, n uint64, dev Device) error {
	a := readWrite(dev)
	r := call4(d.fn.memSetAccess, uintptr(p), uintptr(n), uintptr(unsafe.Pointer(a)), 1)
	runtime.KeepAlive(a)
	return failf(r, "cuMemSetAccess", "%d bytes at %#x, device %d", n, uint64(p), dev)
}

func (d *driver) MemUnmap(p DevicePtr, n uint64) error {
	return failf(call2(d.fn.memUnmap, uintptr(p), uintptr(n)), "cuMemUnmap", "%d bytes at %#x", n, uint64(p))
}
