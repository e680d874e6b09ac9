package cu

import (
	"time"
	"unsafe"
)

// API is the driver. Methods follow the driver's functions one to one where that makes sense; each
// says which function and adds only what a caller must know. "Current" means the calling thread's
// current context.
//
// What is not here (graphs, see [Graphs]; virtual memory, see [VirtualMemory]; clusters, tensor
// maps) comes as further interfaces that an implementation may satisfy in addition, not as methods
// that one of them cannot honour.
type API interface {
	// Init is cuInit. It is called by Open and may be called again.
	Init() error
	// DriverVersion is cuDriverGetVersion: the newest CUDA version that the driver supports.
	DriverVersion() (Version, error)

	// DeviceCount is cuDeviceGetCount: the GPUs of compute capability 2.0 or more that
	// CUDA_VISIBLE_DEVICES leaves visible.
	DeviceCount() (int, error)
	// DeviceGet is cuDeviceGet, the device of an ordinal. ErrInvalidDevice when there is none.
	DeviceGet(ordinal int) (Device, error)
	// DeviceName is cuDeviceGetName, such as "NVIDIA H200". An emulated device's name says that it
	// is emulated.
	DeviceName(d Device) (string, error)
	// DeviceAttribute is cuDeviceGetAttribute.
	DeviceAttribute(d Device, a DeviceAttr) (int, error)
	// DeviceTotalMem is cuDeviceTotalMem, in bytes.
	DeviceTotalMem(d Device) (uint64, error)
	// DeviceUUID is cuDeviceGetUuid_v2.
	DeviceUUID(d Device) (UUID, error)
	// DevicePCIBusID is cuDeviceGetPCIBusId, "domain:bus:device.function" in hexadecimal.
	DevicePCIBusID(d Device) (string, error)
	// DeviceCanAccessPeer is cuDeviceCanAccessPeer: whether kernels on d can address memory of
	// peer.
	DeviceCanAccessPeer(d, peer Device) (bool, error)

	// PrimaryCtxRetain is cuDevicePrimaryCtxRetain: the context that all libraries of the process
	// share. It is made by the first call (some 200 ms on hardware) and not made current. Each call
	// is paired with PrimaryCtxRelease.
	PrimaryCtxRetain(d Device) (Context, error)
	// PrimaryCtxRelease is cuDevicePrimaryCtxRelease. With the last one everything in the context
	// is gone.
	PrimaryCtxRelease(d Device) error
	// PrimaryCtxSetFlags is cuDevicePrimaryCtxSetFlags.
	PrimaryCtxSetFlags(d Device, f CtxFlags) error
	// CtxSetCurrent is cuCtxSetCurrent for the calling thread; 0 leaves it without one.
	CtxSetCurrent(c Context) error
	// CtxSynchronize is cuCtxSynchronize: waits for all work of the current context and reports
	// what went wrong in it.
	CtxSynchronize() error
	// CtxEnablePeerAccess is cuCtxEnablePeerAccess: the current context may address memory of
	// peer's device.
	CtxEnablePeerAccess(peer Context) error
	// CtxStreamPriorityRange is cuCtxGetStreamPriorityRange. Lower numbers run first, so greatest ≤
	// least.
	CtxStreamPriorityRange() (least, greatest int, err error)

	// ModuleLoadData is cuModuleLoadDataEx into the current context: image is PTX text (with or
	// without a final NUL) or a cubin. A failed compilation returns the compiler's words in
	// Error.Log.
	ModuleLoadData(image []byte, opts JITOptions) (Module, error)
	// ModuleUnload is cuModuleUnload. No kernel of it may be running or be launched again.
	ModuleUnload(m Module) error
	// ModuleGetFunction is cuModuleGetFunction. ErrNotFound when the module has no entry of that
	// name.
	ModuleGetFunction(m Module, name string) (Function, error)
	// LinkPTX compiles PTX text to a cubin for the current context's device (cuLinkCreate,
	// cuLinkAddData, cuLinkComplete, cuLinkDestroy). The result may be stored and given to
	// ModuleLoadData in another process on the same kind of device. name labels the text in the
	// compiler's messages.
	LinkPTX(name string, ptx []byte, opts JITOptions) ([]byte, error)

	// FuncAttribute is cuFuncGetAttribute.
	FuncAttribute(f Function, a FuncAttr) (int, error)
	// FuncSetAttribute is cuFuncSetAttribute.
	FuncSetAttribute(f Function, a FuncAttr, value int) error
	// OccupancyMaxActiveBlocks is cuOccupancyMaxActiveBlocksPerMultiprocessor: how many blocks of
	// blockThreads threads and dynShared bytes of dynamic shared memory fit on one multiprocessor
	// at once.
	OccupancyMaxActiveBlocks(f Function, blockThreads int, dynShared uint64) (int, error)
	// LaunchKernel is cuLaunchKernel on a stream of the current context. params holds the kernel's
	// parameters as its .param space lays them out (each at its own alignment); the driver copies
	// them before the call returns. dynShared is in bytes. An asynchronous failure of the kernel
	// shows up in a later call.
	LaunchKernel(f Function, grid, block Dim3, dynShared uint32, s Stream, params []byte) error

	// MemAlloc is cuMemAlloc in the current context: n > 0 bytes, aligned to at least 256. It may
	// synchronise the device.
	MemAlloc(n uint64) (DevicePtr, error)
	// MemFree is cuMemFree. It may synchronise the device; pending work that uses the memory is the
	// caller's error.
	MemFree(p DevicePtr) error
	// MemGetInfo is cuMemGetInfo of the current context's device, in bytes.
	MemGetInfo() (free, total uint64, err error)
	// MemHostAlloc is cuMemHostAlloc: n > 0 bytes of page-locked host memory, not managed by Go.
	MemHostAlloc(n uint64, f HostAllocFlags) (unsafe.Pointer, error)
	// MemFreeHost is cuMemFreeHost.
	MemFreeHost(p unsafe.Pointer) error
	// MemHostGetDevicePointer is cuMemHostGetDevicePointer: where the current context's device sees
	// memory that was allocated with HostDeviceMap.
	MemHostGetDevicePointer(p unsafe.Pointer) (DevicePtr, error)

	// MemcpyHtoDAsync is cuMemcpyHtoDAsync. The source is read when the stream gets there. A
	// pageable one may have been read when the call returns, which the driver does not promise.
	MemcpyHtoDAsync(dst DevicePtr, src unsafe.Pointer, n uint64, s Stream) error
	// MemcpyDtoHAsync is cuMemcpyDtoHAsync. The destination is written when the stream gets
	// there. A pageable one may have been written when the call returns, which the driver does
	// not promise.
	MemcpyDtoHAsync(dst unsafe.Pointer, src DevicePtr, n uint64, s Stream) error
	// MemcpyDtoDAsync is cuMemcpyDtoDAsync. The two ranges must not overlap.
	MemcpyDtoDAsync(dst, src DevicePtr, n uint64, s Stream) error
	// MemcpyPeerAsync is cuMemcpyPeerAsync: between the devices of two contexts, staged through the
	// host where there is no peer access.
	MemcpyPeerAsync(dst DevicePtr, dstCtx Context, src DevicePtr, srcCtx Context, n uint64, s Stream) error
	// MemsetD8Async is cuMemsetD8Async; n counts elements, here bytes.
	MemsetD8Async(dst DevicePtr, v uint8, n uint64, s Stream) error
	// MemsetD16Async is cuMemsetD16Async; n counts elements of 2 bytes, and dst is aligned to 2.
	MemsetD16Async(dst DevicePtr, v uint16, n uint64, s Stream) error
	// MemsetD32Async is cuMemsetD32Async; n counts elements of 4 bytes, and dst is aligned to 4.
	MemsetD32Async(dst DevicePtr, v uint32, n uint64, s Stream) error

	// StreamCreate is cuStreamCreateWithPriority in the current context. A priority outside of
	// CtxStreamPriorityRange is clamped.
	StreamCreate(f StreamFlags, priority int) (Stream, error)
	// StreamDestroy is cuStreamDestroy: pending work still completes.
	StreamDestroy(s Stream) error
	// StreamSynchronize is cuStreamSynchronize: waits, and reports what went wrong in the context.
	StreamSynchronize(s Stream) error
	// StreamQuery is cuStreamQuery: whether all work of the stream has completed.
	StreamQuery(s Stream) (done bool, err error)
	// StreamWaitEvent is cuStreamWaitEvent: work enqueued from now on waits for what e's last
	// record captured. An event that was never recorded is not waited for. The event may belong to
	// another device.
	StreamWaitEvent(s Stream, e Event) error

	// EventCreate is cuEventCreate in the current context.
	EventCreate(f EventFlags) (Event, error)
	// EventDestroy is cuEventDestroy; waits that were already enqueued keep their meaning.
	EventDestroy(e Event) error
	// EventRecord is cuEventRecord: captures the work in s so far. Event and stream belong to the
	// same context.
	EventRecord(e Event, s Stream) error
	// EventQuery is cuEventQuery: whether what the last record captured has completed; true when
	// there was none.
	EventQuery(e Event) (done bool, err error)
	// EventSynchronize is cuEventSynchronize.
	EventSynchronize(e Event) error
	// EventElapsed is cuEventElapsedTime: device time from start to end, with a resolution of about
	// 0.5 µs. ErrNotReady when one of them has not completed, ErrInvalidHandle when one was not
	// recorded or does not time.
	EventElapsed(start, end Event) (time.Duration, error)
}

// Checker is satisfied by an implementation that verifies memory accesses. A pool that hands out
// parts of a larger allocation tells it where blocks begin and end, so that an access beside a
// block is found although it stays inside of the allocation.
//
// Both calls take effect in the order of stream s, the one that owns the block: accesses enqueued
// before BlockFreed may still use the block, those enqueued after it may not. A pool that has
// waited for other streams before it frees needs nothing more.
type Checker interface {
	// BlockAllocated says that [ptr, ptr+requested) may be accessed from now on and that
	// [ptr+requested, ptr+rounded) may not. The contents count as uninitialised. label names the
	// owner in error messages.
	BlockAllocated(s Stream, ptr DevicePtr, requested, rounded uint64, label string)
	// BlockFreed says that [ptr, ptr+rounded) may no longer be accessed.
	BlockFreed(s Stream, ptr DevicePtr, rounded uint64)
}

// Emulated is satisfied by an implementation that may not be hardware.
type Emulated interface {
	// Emulated reports that devices, their results and their times are emulated.
	Emulated() bool
}
