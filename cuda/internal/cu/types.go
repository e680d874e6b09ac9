package cu

import "fmt"

// Device is the driver's ordinal of a GPU, valid after Init: 0 ≤ Device < DeviceCount.
type Device int32

// Handles of the driver's objects. The zero value refers to no object, except for Stream. Stream 0
// is the legacy default stream of the current context. It waits for all streams that were not
// created with StreamNonBlocking, and they wait for it.
type (
	Context  uintptr
	Module   uintptr
	Function uintptr
	Stream   uintptr
	Event    uintptr
)

// DevicePtr is an address in a device's memory, or a device's address of mapped host memory. The
// host never dereferences it.
type DevicePtr uint64

// Version is a version of the driver API as the driver encodes it, 1000·major + 10·minor: 12040 is
// 12.4.
type Version int

// String returns the version as NVIDIA writes it, such as "12.4".
func (v Version) String() string { return fmt.Sprintf("%d.%d", int(v)/1000, int(v)%1000/10) }

// UUID identifies a GPU across processes and machines.
type UUID [16]byte

// String returns the form that nvidia-smi prints, "GPU-8-4-4-4-12" in hexadecimal.
func (u UUID) String() string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// Dim3 is the size of a grid in blocks, or of a block in threads. In a launch, each component is at
// least 1.
type Dim3 struct{ X, Y, Z uint32 }

// Count returns X·Y·Z.
func (d Dim3) Count() uint64 { return uint64(d.X) * uint64(d.Y) * uint64(d.Z) }

// String returns "(x, y, z)".
func (d Dim3) String() string { return fmt.Sprintf("(%d, %d, %d)", d.X, d.Y, d.Z) }

// DeviceAttr names a property of a device. Numbers are those of CUdevice_attribute in cuda.h.
type DeviceAttr int32

// Device attributes. Sizes are in bytes, clocks in kHz, and flags are 0 or 1.
const (
	AttrMaxThreadsPerBlock DeviceAttr = 1
	AttrMaxBlockDimX       DeviceAttr = 2
	AttrMaxBlockDimY       DeviceAttr = 3
	AttrMaxBlockDimZ       DeviceAttr = 4
	AttrMaxGridDimX        DeviceAttr = 5
	AttrMaxGridDimY        DeviceAttr = 6
	AttrMaxGridDimZ        DeviceAttr = 7
	// AttrMaxSharedPerBlock is the limit of a kernel unless FuncSetAttribute has raised it.
	AttrMaxSharedPerBlock        DeviceAttr = 8
	AttrTotalConstantMemory      DeviceAttr = 9
	AttrWarpSize                 DeviceAttr = 10
	AttrMaxRegistersPerBlock     DeviceAttr = 12
	AttrClockRate                DeviceAttr = 13
	AttrMultiprocessorCount      DeviceAttr = 16
	AttrKernelExecTimeout        DeviceAttr = 17
	AttrIntegrated               DeviceAttr = 18
	AttrCanMapHostMemory         DeviceAttr = 19
	AttrComputeMode              DeviceAttr = 20
	AttrConcurrentKernels        DeviceAttr = 31
	AttrECCEnabled               DeviceAttr = 32
	AttrPCIBusID                 DeviceAttr = 33
	AttrPCIDeviceID              DeviceAttr = 34
	AttrMemoryClockRate          DeviceAttr = 36
	AttrGlobalMemoryBusWidth     DeviceAttr = 37 // width of the bus in bits
	AttrL2CacheSize              DeviceAttr = 38
	AttrMaxThreadsPerSM          DeviceAttr = 39
	AttrAsyncEngineCount         DeviceAttr = 40
	AttrUnifiedAddressing        DeviceAttr = 41
	AttrPCIDomainID              DeviceAttr = 50
	AttrComputeCapabilityMajor   DeviceAttr = 75
	AttrComputeCapabilityMinor   DeviceAttr = 76
	AttrStreamPriorities         DeviceAttr = 78
	AttrMaxSharedPerSM           DeviceAttr = 81
	AttrMaxRegistersPerSM        DeviceAttr = 82
	AttrManagedMemory            DeviceAttr = 83
	AttrPageableMemoryAccess     DeviceAttr = 88
	AttrCooperativeLaunch        DeviceAttr = 95
	AttrMaxSharedPerBlockOptin   DeviceAttr = 97
	AttrVirtualMemoryManagement  DeviceAttr = 102
	AttrMaxBlocksPerSM           DeviceAttr = 106
	AttrReservedSharedPerBlock   DeviceAttr = 111
	AttrMemoryPools              DeviceAttr = 115
	AttrClusterLaunch            DeviceAttr = 120
	AttrTensorMapAccessSupported DeviceAttr = 127
)

// FuncAttr names a property of a kernel. Numbers are those of CUfunction_attribute in cuda.h.
type FuncAttr int32

// Function attributes. Only FuncMaxDynamicShared and FuncSharedCarveout can be set.
const (
	FuncMaxThreadsPerBlock FuncAttr = 0
	FuncSharedBytes        FuncAttr = 1 // statically allocated shared memory
	FuncConstBytes         FuncAttr = 2
	// bytes of local memory of a thread; spilled registers are stored here
	FuncLocalBytes FuncAttr = 3
	FuncNumRegs    FuncAttr = 4 // registers of a thread
	// FuncPTXVersion is the target of the PTX text, as 10·major + minor.
	FuncPTXVersion FuncAttr = 5
	// FuncBinaryVersion is the compute capability of the machine code, as 10·major + minor.
	FuncBinaryVersion FuncAttr = 6
	// largest dynamic shared memory of a launch in bytes; if a launch needs more than 48 KiB, this
	// attribute must be set first
	FuncMaxDynamicShared FuncAttr = 8
	// FuncSharedCarveout is a hint: the percentage of the L1 cache to use as shared memory.
	FuncSharedCarveout FuncAttr = 9
)

// CtxFlags configure a primary context before it is first retained.
type CtxFlags uint32

// Context flags: how a host thread waits in a synchronising call.
const (
	CtxSchedAuto         CtxFlags = 0
	CtxSchedSpin         CtxFlags = 1
	CtxSchedYield        CtxFlags = 2
	CtxSchedBlockingSync CtxFlags = 4 // sleep, which leaves the core to Go's scheduler
)

// StreamFlags configure a stream.
type StreamFlags uint32

// Stream flags.
const (
	StreamDefault     StreamFlags = 0 // the stream is ordered with the default stream
	StreamNonBlocking StreamFlags = 1 // the stream is independent of the default stream
)

// EventFlags configure an event.
type EventFlags uint32

// Event flags, combined by or.
const (
	EventDefault       EventFlags = 0 // the event records time; a waiting thread spins
	EventBlockingSync  EventFlags = 1 // EventSynchronize sleeps instead of spinning
	EventDisableTiming EventFlags = 2 // the event is cheaper, but EventElapsed refuses it
)

// HostAllocFlags configure page-locked host memory.
type HostAllocFlags uint32

// Flags of MemHostAlloc, combined by or.
const (
	HostPortable HostAllocFlags = 1 // the memory is page-locked for every context
	// kernels can access the memory at the address that MemHostGetDevicePointer returns
	HostDeviceMap HostAllocFlags = 2
	// The host can write this memory fast in order, but reads it very slowly.
	HostWriteCombined HostAllocFlags = 4
)

// JITOptions say how the driver compiles PTX. The zero value is the driver's default.
type JITOptions struct {
	MaxRegisters int  // registers of a thread; if 0, the compiler chooses
	LineInfo     bool // whether to keep source lines for profilers
	// Verbose adds each kernel's registers, spills and shared memory to the compiler's messages.
	Verbose bool

	// InfoLog, if not nil, receives the compiler's messages, on success and on failure.
	InfoLog *string
}
