package cu

import "unsafe"

// Handles of graphs. The zero value refers to no object.
type (
	Graph uintptr
	// A GraphNode lives as long as its graph.
	GraphNode uintptr
	GraphExec uintptr
)

// Graphs builds graphs of work, and launches a whole graph with one call. NVIDIA's driver and the
// emulated driver satisfy it. A graph is made and used in the calling thread's current context. Its
// nodes run in any order that their dependencies allow.
type Graphs interface {
	// GraphCreate is cuGraphCreate: it returns an empty graph.
	GraphCreate() (Graph, error)
	// GraphDestroy is cuGraphDestroy. A GraphExec instantiated from the graph remains valid.
	GraphDestroy(g Graph) error
	// GraphAddKernelNode is cuGraphAddKernelNode in its CUDA 10 version. It adds a launch, which
	// waits for the nodes of deps. The parameters are laid out as for LaunchKernel, and copied
	// before the call returns.
	GraphAddKernelNode(g Graph, deps []GraphNode, l GraphKernel) (GraphNode, error)
	// GraphAddCopyNode is cuGraphAddMemcpyNode for a copy of a range of bytes. Host memory must be
	// page-locked. It is read or written each time the node runs.
	GraphAddCopyNode(g Graph, deps []GraphNode, c GraphCopy, ctx Context) (GraphNode, error)
	// GraphAddFillNode is cuGraphAddMemsetNode for n elements of width 1, 2 or 4 bytes. The
	// argument dst is aligned to width.
	GraphAddFillNode(g Graph, deps []GraphNode, dst DevicePtr, value uint32, width int, n uint64, ctx Context) (GraphNode, error)
	// GraphAddEmptyNode is cuGraphAddEmptyNode: a node that does nothing but wait for the nodes
	// before it.
	GraphAddEmptyNode(g Graph, deps []GraphNode) (GraphNode, error)
	// GraphAddChildGraphNode is cuGraphAddChildGraphNode: one node that runs a copy of child as it
	// is now.
	GraphAddChildGraphNode(g Graph, deps []GraphNode, child Graph) (GraphNode, error)
	// GraphAddDependencies is cuGraphAddDependencies in its CUDA 10 version: dst[i] runs after
	// src[i].
	GraphAddDependencies(g Graph, src, dst []GraphNode) error
	// GraphInstantiate is cuGraphInstantiateWithFlags without flags: it makes a GraphExec of the
	// graph as it is now.
	GraphInstantiate(g Graph) (GraphExec, error)
	// GraphExecKernelNodeSetParams is cuGraphExecKernelNodeSetParams. The argument n is a node of
	// the graph from which e was instantiated. The change affects later launches, but none that is
	// queued or running.
	GraphExecKernelNodeSetParams(e GraphExec, n GraphNode, l GraphKernel) error
	// GraphExecCopyNodeSetParams is cuGraphExecMemcpyNodeSetParams, with the rules of
	// GraphExecKernelNodeSetParams. Both ends of the copy must stay in their contexts.
	GraphExecCopyNodeSetParams(e GraphExec, n GraphNode, c GraphCopy, ctx Context) error
	// GraphExecDestroy is cuGraphExecDestroy. Launches that are queued still run.
	GraphExecDestroy(e GraphExec) error
	// GraphLaunch is cuGraphLaunch: it queues the whole graph on s. Launches of one GraphExec run
	// one after the other.
	GraphLaunch(e GraphExec, s Stream) error

	// StreamBeginCapture is cuStreamBeginCapture_v2 with CU_STREAM_CAPTURE_MODE_THREAD_LOCAL. Work
	// that is queued on s from now on does not run, but becomes nodes of a graph. In this way the
	// calls of a library are recorded.
	StreamBeginCapture(s Stream) error
	// StreamEndCapture is cuStreamEndCapture: it returns the captured graph, for
	// GraphAddChildGraphNode. It ends the capture even if a captured call has failed.
	StreamEndCapture(s Stream) (Graph, error)
}

// GraphMarker is satisfied by a [Checker] that can mark the beginning and the end of a pool's
// blocks by nodes of a graph. Each launch of the graph then allocates and frees these blocks anew,
// in the graph's order.
type GraphMarker interface {
	// GraphAddBlockNode adds a node that marks a block.
	GraphAddBlockNode(g Graph, after []GraphNode, ptr DevicePtr, requested, rounded uint64, label string, mark BlockMark) (GraphNode, error)
}

// BlockMark says what a node of a graph does with a block.
type BlockMark uint8

const (
	// The block begins at this node, as with a call of BlockAllocated.
	BlockBegins BlockMark = iota
	// The block ends at this node, as with a call of BlockFreed.
	BlockEnds
	// BlockTakesOver makes the requested bytes accessible as a new block. Bytes that were
	// accessible before keep their contents: a kernel may read the last values of the old block and
	// write the first values of the new one.
	BlockTakesOver
)

// GraphKernel is a launch of a kernel with its arguments, as LaunchKernel takes them.
type GraphKernel struct {
	Func        Function
	Grid, Block Dim3
	Shared      uint32 // bytes of dynamic shared memory
	Params      []byte
}

// AttributeLauncher launches kernels with attributes. NVIDIA's driver and the emulated driver
// satisfy it.
type AttributeLauncher interface {
	// LaunchKernelEx is cuLaunchKernelEx: LaunchKernel with attributes. It returns ErrNotSupported
	// if the driver is older than CUDA 11.6, or if the device does not support an attribute. It
	// returns ErrInvalidClusterSize if the grid is not a multiple of the cluster.
	LaunchKernelEx(l GraphKernel, a LaunchAttributes, s Stream) error
}

// LaunchAttributes say how a kernel is launched. The zero value launches like LaunchKernel.
type LaunchAttributes struct {
	// number of blocks along each axis of a cluster, which run on neighbouring multiprocessors;
	// zero for no clusters
	Cluster Dim3
	// whether the kernel may start before earlier work on its stream has ended; it must wait for
	// that work itself
	Overlap bool
	// Priority is the launch's priority, on the same scale as a stream's priority. If it is 0, the
	// launch has the stream's priority.
	Priority int
}

// GraphCopy is a copy of N > 0 bytes. Its source and its destination are each an address of host or
// device memory. With Peer both are device memory, and the node's context belongs to one of the two
// devices. Without Peer, device memory belongs to the device of the node's context.
type GraphCopy struct {
	DstHost, SrcHost unsafe.Pointer
	Dst, Src         DevicePtr
	N                uint64
	Peer             bool
}

// MemHandle is a handle of physical device memory that MemCreate has allocated. The zero value
// refers to no memory.
type MemHandle uint64

// VirtualMemory is satisfied by implementations with the driver's virtual memory management. It
// reserves addresses without memory, allocates memory without addresses, and maps memory at
// addresses page by page. A device supports it if AttrVirtualMemoryManagement is 1. Sizes and
// addresses are multiples of MemGranularity.
type VirtualMemory interface {
	// MemGranularity is cuMemGetAllocationGranularity (minimum) for memory on the device: the size
	// of its pages, 2 MiB on hardware.
	MemGranularity(d Device) (uint64, error)
	// MemAddressReserve is cuMemAddressReserve: it reserves n bytes of addresses without memory,
	// for the current context's device.
	MemAddressReserve(n uint64) (DevicePtr, error)
	// MemAddressFree is cuMemAddressFree. It frees a whole reserved range in which nothing is
	// mapped.
	MemAddressFree(p DevicePtr, n uint64) error
	// MemCreate is cuMemCreate: it allocates n bytes of memory of the device, without an address.
	// It returns ErrOutOfMemory if there is too little.
	MemCreate(n uint64, d Device) (MemHandle, error)
	// MemRelease is cuMemRelease. Memory that is still mapped is freed when it is unmapped.
	MemRelease(h MemHandle) error
	// MemMap is cuMemMap: it maps all n bytes of the handle at p, in a reserved range. The bytes
	// can be accessed after MemSetAccess.
	MemMap(p DevicePtr, n uint64, h MemHandle) error
	// MemSetAccess is cuMemSetAccess: it lets device d read and write the mapped bytes.
	MemSetAccess(p DevicePtr, n uint64, d Device) error
	// MemUnmap is cuMemUnmap of whole mappings. The caller must make sure that no pending work uses
	// them.
	MemUnmap(p DevicePtr, n uint64) error
}

// Expandable is satisfied by an implementation that decides whether pools use VirtualMemory by
// default.
type Expandable interface {
	Expandable() bool
}

// Peers is satisfied by an implementation that can revoke CtxEnablePeerAccess. All implementations
// in this repository satisfy it.
type Peers interface {
	// CtxDisablePeerAccess is cuCtxDisablePeerAccess: the current context may no longer address
	// memory of peer's device. It returns ErrPeerAccessNotEnabled if access was not enabled.
	CtxDisablePeerAccess(peer Context) error
}

// Rated is satisfied by an implementation whose speed follows a cost model.
type Rated interface {
	// Rates returns how many warp instructions a device executes in a second, and how many bytes of
	// global memory it moves.
	Rates() (warpInstructions, memoryBytes float64)
}

// Sized is satisfied by an implementation that decides the size of the segments that a pool
// allocates.
type Sized interface {
	// Segment returns the size of segments in bytes. If it is 0, the pool chooses the size.
	Segment() uint64
}

// Scarce is satisfied by an implementation that can imitate a lack of memory, for tests.
type Scarce interface {
	// RefuseMemory makes requests for memory of dev fail with ErrOutOfMemory, until Relent is
	// called. The first request that fails is the n-th after this call, counted from 1. If n is 0,
	// no request fails.
	RefuseMemory(dev Device, n uint64)
	// Relent ends the failures that RefuseMemory has caused. If no request has failed yet, it has
	// no effect.
	Relent(dev Device)
}
