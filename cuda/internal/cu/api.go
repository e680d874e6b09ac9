package cu

import (
	"time"
	"unsafe"
)

// API is the CUDA driver. Where it makes sense, one method corresponds to one function of the
// driver. Each comment names that function, and adds only what a caller must know. "Current" means
// the current context of the calling thread.
//
// Graphs ([Graphs]), virtual memory ([VirtualMemory]) and other optional parts have separate
// interfaces. So no implementation has a method that it cannot support.
type API interface {
	// Init is cuInit. Open calls it, and it may be called again.
	Init() error
	// DriverVersion is cuDriverGetVersion: the newest CUDA version that the driver supports.
	DriverVersion() (Version, error)

	// DeviceCount is cuDeviceGetCount: the number of GPUs of compute capability 2.0 or more that
	// CUDA_VISIBLE_DEVICES leaves visible.
	DeviceCount() (int, error)
	// DeviceGet is cuDeviceGet: the device with the given number, or ErrInvalidDevice if there is
	// none.
	DeviceGet(ordinal int) (Device, error)
	// DeviceName is cuDeviceGetName, such as "NVIDIA H200". An emulated device's name says that it
	// is emulated.
	DeviceName(d Device) (string, error)
	// DeviceAttribute is cuDeviceGetAttribute: it returns the value of an attribute.
	DeviceAttribute(d Device, a DeviceAttr) (int, error)
	// DeviceTotalMem is cuDeviceTotalMem: the size of the device's memory in bytes.
	DeviceTotalMem(d Device) (uint64, error)
	// DeviceUUID is cuDeviceGetUuid_v2.
	DeviceUUID(d Device) (UUID, error)
	// DevicePCIBusID is cuDeviceGetPCIBusId: the device's address on the PCI bus, as
	// "domain:bus:device.function" in hexadecimal.
	DevicePCIBusID(d Device) (string, error)
	// DeviceCanAccessPeer is cuDeviceCanAccessPeer: whether kernels on d can address the memory of
	// peer.
	DeviceCanAccessPeer(d, peer Device) (bool, error)

	// PrimaryCtxRetain is cuDevicePrimaryCtxRetain: it returns the context that all libraries of
	// the process share. The first call creates that context, which takes some 200 ms on hardware.
	// The context does not become current. Each call is paired with PrimaryCtxRelease.
	PrimaryCtxRetain(d Device) (Context, error)
	// PrimaryCtxRelease is cuDevicePrimaryCtxRelease. The last release destroys everything in the
	// context.
	PrimaryCtxRelease(d Device) error
	// PrimaryCtxSetFlags is cuDevicePrimaryCtxSetFlags: it configures a context that is not
	// retained yet.
	PrimaryCtxSetFlags(d Device, f CtxFlags) error
	// CtxSetCurrent is cuCtxSetCurrent for the calling thread. With context 0 the thread has no
	// current context.
	CtxSetCurrent(c Context) error
	// CtxSynchronize is cuCtxSynchronize: it waits for all work of the current context, and reports
	// errors of that work.
	CtxSynchronize() error
	// CtxEnablePeerAccess is cuCtxEnablePeerAccess: the current context may address memory of
	// peer's device.
	CtxEnablePeerAccess(peer Context) error
	// CtxStreamPriorityRange is cuCtxGetStreamPriorityRange. Lower numbers run first, so greatest ≤
	// least.
	CtxStreamPriorityRange() (least, greatest int, err error)

	// ModuleLoadData is cuModuleLoadDataEx: it loads image into the current context. The argument
	// image is PTX text (with or without a final NUL) or a cubin. If the compilation fails,
	// Error.Log has the compiler's messages.
	ModuleLoadData(image []byte, opts JITOptions) (Module, error)
	// ModuleUnload is cuModuleUnload. None of the module's kernels may be running or be launched
	// later.
	ModuleUnload(m Module) error
	// ModuleGetFunction is cuModuleGetFunction. It returns ErrNotFound if the module has no kernel
	// of that name.
	ModuleGetFunction(m Module, name string) (Function, error)
	// LinkPTX compiles PTX text to a cubin for the current context's device (cuLinkCreate,
	// cuLinkAddData, cuLinkComplete, cuLinkDestroy). The cubin may be stored, and be passed to
	// ModuleLoadData in another process on a device of this kind. The argument name labels the text
	// in the compiler's messages.
	LinkPTX(name string, ptx []byte, opts JITOptions) ([]byte, error)

	// FuncAttribute is cuFuncGetAttribute: it returns the value of a kernel's attribute.
	FuncAttribute(f Function, a FuncAttr) (int, error)
	// FuncSetAttribute is cuFuncSetAttribute: it sets an attribute of a kernel.
	FuncSetAttribute(f Function, a FuncAttr, value int) error
	// OccupancyMaxActiveBlocks is cuOccupancyMaxActiveBlocksPerMultiprocessor: the number of blocks
	// that fit on one multiprocessor at once. A block has blockThreads threads and dynShared bytes
	// of dynamic shared memory.
	OccupancyMaxActiveBlocks(f Function, blockThreads int, dynShared uint64) (int, error)
	// LaunchKernel is cuLaunchKernel on a stream of the current context. The argument params holds
	// the kernel's parameters as PTX lays out the .param space, each at its own alignment. The
	// driver copies the parameters before the call returns. The argument dynShared is in bytes. If
	// the kernel fails while it runs, a later call reports the failure.
	LaunchKernel(f Function, grid, block Dim3, dynShared uint32, s Stream, params []byte) error

	// MemAlloc is cuMemAlloc in the current context: n > 0 bytes, aligned to at least 256. The call
	// may synchronise the device.
	MemAlloc(n uint64) (DevicePtr, error)
	// MemFree is cuMemFree. The call may synchronise the device. The caller must make sure that no
	// pending work uses the memory.
	MemFree(p DevicePtr) error
	// MemGetInfo is cuMemGetInfo: the free and the total bytes of the current context's device.
	MemGetInfo() (free, total uint64, err error)
	// MemHostAlloc is cuMemHostAlloc: n > 0 bytes of page-locked host memory, not managed by Go.
	MemHostAlloc(n uint64, f HostAllocFlags) (unsafe.Pointer, error)
	// MemFreeHost is cuMemFreeHost.
	MemFreeHost(p unsafe.Pointer) error
	// MemHostGetDevicePointer is cuMemHostGetDevicePointer: the address, for the current context's
	// device, of host memory that was allocated with HostDeviceMap.
	MemHostGetDevicePointer(p unsafe.Pointer) (DevicePtr, error)

	// MemcpyHtoDAsync is cuMemcpyHtoDAsync. The source is read when the stream reaches the copy. A
	// pageable source may have been read before the call returns, but the driver does not promise
	// that.
	MemcpyHtoDAsync(dst DevicePtr, src unsafe.Pointer, n uint64, s Stream) error
	// MemcpyDtoHAsync is cuMemcpyDtoHAsync. The destination is written when the stream reaches the
	// copy. A pageable destination may have been written before the call returns, but the driver
	// does not promise that.
	MemcpyDtoHAsync(dst unsafe.Pointer, src DevicePtr, n uint64, s Stream) error
	// MemcpyDtoDAsync is cuMemcpyDtoDAsync. The two ranges must not overlap.
	MemcpyDtoDAsync(dst, src DevicePtr, n uint64, s Stream) error
	// MemcpyPeerAsync is cuMemcpyPeerAsync: a copy between the devices of two contexts. Without
	// peer access it goes through host memory.
	MemcpyPeerAsync(dst DevicePtr, dstCtx Context, src DevicePtr, srcCtx Context, n uint64, s Stream) error
	// MemsetD8Async is cuMemsetD8Async. The argument n counts bytes.
	MemsetD8Async(dst DevicePtr, v uint8, n uint64, s Stream) error
	// MemsetD16Async is cuMemsetD16Async. The argument n counts elements of 2 bytes, and dst is
	// aligned to 2.
	MemsetD16Async(dst DevicePtr, v uint16, n uint64, s Stream) error
	// MemsetD32Async is cuMemsetD32Async. The argument n counts elements of 4 bytes, and dst is
	// aligned to 4.
	MemsetD32Async(dst DevicePtr, v uint32, n uint64, s Stream) error

	// StreamCreate is cuStreamCreateWithPriority in the current context. A priority outside of
	// CtxStreamPriorityRange is clamped.
	StreamCreate(f StreamFlags, priority int) (Stream, error)
	// StreamDestroy is cuStreamDestroy. Pending work of the stream still completes.
	StreamDestroy(s Stream) error
	// StreamSynchronize is cuStreamSynchronize: it waits for the stream, and reports errors of the
	// context.
	StreamSynchronize(s Stream) error
	// StreamQuery is cuStreamQuery: whether all work of the stream has completed.
	StreamQuery(s Stream) (done bool, err error)
	// StreamWaitEvent is cuStreamWaitEvent: work enqueued from now on waits for the work that e's
	// last record captured. It does not wait if e was never recorded. The event may belong to
	// another device.
	StreamWaitEvent(s Stream, e Event) error

	// EventCreate is cuEventCreate in the current context.
	EventCreate(f EventFlags) (Event, error)
	// EventDestroy is cuEventDestroy. Waits that were enqueued earlier stay valid.
	EventDestroy(e Event) error
	// EventRecord is cuEventRecord: it captures the work in s so far. The event and the stream must
	// belong to one context.
	EventRecord(e Event, s Stream) error
	// EventQuery is cuEventQuery: whether the work that the last record captured has completed. It
	// is true for an event that was never recorded.
	EventQuery(e Event) (done bool, err error)
	// EventSynchronize is cuEventSynchronize: it waits for the work that the last record captured.
	EventSynchronize(e Event) error
	// EventElapsed is cuEventElapsedTime: the device time from start to end, with a resolution of
	// about 0.5 µs. It returns ErrNotReady if the GPU has not reached one of the events. It returns
	// ErrInvalidHandle if one of them was not recorded, or was created without timing.
	EventElapsed(start, end Event) (time.Duration, error)
}

// Checker is satisfied by an implementation that verifies memory accesses. A pool divides a large
// allocation into blocks, and tells the Checker where blocks begin and end. The Checker then also
// finds an access that is outside of a block but inside of the allocation.
//
// Both calls take effect in the order of stream s, which owns the block. Work enqueued before
// BlockFreed may still use the block, and work enqueued after it may not. So before a pool frees a
// block, it must wait for all other streams that use the block.
type Checker interface {
	// BlockAllocated says that [ptr, ptr+requested) may be accessed from now on and that
	// [ptr+requested, ptr+rounded) may not. The contents count as uninitialised. The argument label
	// names the owner in error messages.
	BlockAllocated(s Stream, ptr DevicePtr, requested, rounded uint64, label string)
	// BlockFreed says that [ptr, ptr+rounded) may no longer be accessed.
	BlockFreed(s Stream, ptr DevicePtr, rounded uint64)
}

// Emulated is satisfied by an implementation that says whether it is an emulator.
type Emulated interface {
	// Emulated reports whether devices, their results and their times are emulated.
	Emulated() bool
}
