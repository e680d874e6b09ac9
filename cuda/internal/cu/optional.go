package cu

import "unsafe"

// Handles of graphs. The zero value is none.
type (
	Graph     uintptr
	GraphNode uintptr // lives as long as its graph
	GraphExec uintptr
)

// Graphs is satisfied by implementations that build graphs of work and launch them as one: both of
// this build. A graph is made in the calling thread's current context and used there. Its nodes run
// in any order that their dependencies allow.
type Graphs interface {
	// GraphCreate is cuGraphCreate: an empty graph.
	GraphCreate() (Graph, error)
	// GraphDestroy is cuGraphDestroy. What was instantiated from the graph stays.
	GraphDestroy(g Graph) error
	// GraphAddKernelNode is cuGraphAddKernelNode in its form of CUDA 10: a launch that runs after
	// the nodes of after. params is laid out as for LaunchKernel and copied before the call
	// returns.
	GraphAddKernelNode(g Graph, after []GraphNode, l GraphKernel) (GraphNode, error)
	// GraphAddCopyNode is cuGraphAddMemcpyNode for a copy of a range of bytes. Host memory is read
	// or written when the node runs, each time: it is page-locked.
	GraphAddCopyNode(g Graph, after []GraphNode, c GraphCopy, ctx Context) (GraphNode, error)
	// GraphAddFillNode is cuGraphAddMemsetNode of n elements of width 1, 2 or 4 bytes, dst being
	// aligned to them.
	GraphAddFillNode(g Graph, after []GraphNode, dst DevicePtr, value uint32, width int, n uint64, ctx Context) (GraphNode, error)
	// GraphAddEmptyNode is cuGraphAddEmptyNode: what joins others.
	GraphAddEmptyNode(g Graph, after []GraphNode) (GraphNode, error)
	// GraphAddChildGraphNode is cuGraphAddChildGraphNode: a copy of child, as it is now, runs as
	// one node.
	GraphAddChildGraphNode(g Graph, after []GraphNode, child Graph) (GraphNode, error)
	// GraphAddDependencies is cuGraphAddDependencies in its form of CUDA 10: to[i] runs after
	// from[i].
	GraphAddDependencies(g Graph, from, to []GraphNode) error
	// GraphInstantiate is cuGraphInstantiateWithFlags without flags: the graph as it is now, ready
	// to be launched.
	GraphInstantiate(g Graph) (GraphExec, error)
	// GraphExecKernelNodeSetParams is cuGraphExecKernelNodeSetParams for a node of the graph that e
	// was made from. It holds for later launches; those that are queued or run are not changed.
	GraphExecKernelNodeSetParams(e GraphExec, n GraphNode, l GraphKernel) error
	// GraphExecCopyNodeSetParams is cuGraphExecMemcpyNodeSetParams, as GraphExecKernelNodeSetParams
	// is. Both ends stay in the contexts where they were.
	GraphExecCopyNodeSetParams(e GraphExec, n GraphNode, c GraphCopy, ctx Context) error
	// GraphExecDestroy is cuGraphExecDestroy. Launches that are queued still run.
	GraphExecDestroy(e GraphExec) error
	// GraphLaunch is cuGraphLaunch: the whole graph in the order of s. Launches of one GraphExec
	// run one after the other.
	GraphLaunch(e GraphExec, s Stream) error

	// StreamBeginCapture is cuStreamBeginCapture_v2 with CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what
	// is queued on s from now on becomes nodes of a graph instead of running, which is how the
	// calls of a library are recorded.
	StreamBeginCapture(s Stream) error
	// StreamEndCapture is cuStreamEndCapture: the graph, for GraphAddChildGraphNode. It ends the
	// capture also when the capture had failed.
	StreamEndCapture(s Stream) (Graph, error)
}

// GraphMarker is satisfied by a [Checker] that takes the bounds of a pool's blocks as nodes of a
// graph: each launch allocates and frees them anew, in the graph's order.
type GraphMarker interface {
	// GraphAddBlockNode is BlockAllocated, or with freed BlockFreed, as a node.
	GraphAddBlockNode(g Graph, after []GraphNode, ptr DevicePtr, requested, rounded uint64, label string, freed bool) (GraphNode, error)
}

// GraphKernel is a launch: see LaunchKernel.
type GraphKernel struct {
	Func        Function
	Grid, Block Dim3
	Shared      uint32 // bytes of dynamic shared memory
	Params      []byte
}

// AttributeLauncher is satisfied by implementations that take attributes of a launch: both of this
// build.
type AttributeLauncher interface {
	// LaunchKernelEx is cuLaunchKernelEx: LaunchKernel with attributes. ErrNotSupported where the
	// driver is older than CUDA 11.6 or the device lacks what is asked for, ErrInvalidClusterSize
	// where the grid is no multiple of the cluster.
	LaunchKernelEx(l GraphKernel, a LaunchAttributes, s Stream) error
}

// LaunchAttributes say how a kernel is launched. The zero value is LaunchKernel's way.
type LaunchAttributes struct {
	Cluster  Dim3 // blocks of a cluster, which run on neighbouring multiprocessors; zero: none
	Overlap  bool // it may start before what is queued ahead has ended, for which it waits itself
	Priority int  // as of a stream; 0: the stream's
}

// GraphCopy is a copy of N > 0 bytes. Of each end one address is given: a host's, or a device's.
// With Peer both are of devices, of which the node's context is one's; without it they are of that
// context's device.
type GraphCopy struct {
	DstHost, SrcHost unsafe.Pointer
	Dst, Src         DevicePtr
	N                uint64
	Peer             bool
}

// MemHandle is a piece of physical memory of a device, made by MemCreate. The zero value is none.
type MemHandle uint64

// VirtualMemory is satisfied by implementations with the driver's virtual memory management: ranges
// of addresses without memory, and memory without addresses, that are joined page by page. A device
// has it where AttrVirtualMemoryManagement is 1. Sizes and addresses are multiples of
// MemGranularity.
type VirtualMemory interface {
	// MemGranularity is cuMemGetAllocationGranularity (minimum) for memory on the device: the size
	// of its pages, 2 MiB on hardware.
	MemGranularity(d Device) (uint64, error)
	// MemAddressReserve is cuMemAddressReserve: n bytes of addresses with nothing behind them, in
	// the current context's device.
	MemAddressReserve(n uint64) (DevicePtr, error)
	// MemAddressFree is cuMemAddressFree of a whole reserved range in which nothing is mapped.
	MemAddressFree(p DevicePtr, n uint64) error
	// MemCreate is cuMemCreate: n bytes of memory of the device, at no address. ErrOutOfMemory
	// where there are none.
	MemCreate(n uint64, d Device) (MemHandle, error)
	// MemRelease is cuMemRelease. Memory that is still mapped lives until it is unmapped.
	MemRelease(h MemHandle) error
	// MemMap is cuMemMap of all n bytes of the handle at p, in a reserved range. They cannot be
	// accessed before MemSetAccess.
	MemMap(p DevicePtr, n uint64, h MemHandle) error
	// MemSetAccess is cuMemSetAccess: d may read and write the mapped bytes.
	MemSetAccess(p DevicePtr, n uint64, d Device) error
	// MemUnmap is cuMemUnmap of whole mappings. Pending work that uses them is the caller's error.
	MemUnmap(p DevicePtr, n uint64) error
}

// Expandable is satisfied by an implementation that says whether pools are to use VirtualMemory
// where nothing else does.
type Expandable interface {
	Expandable() bool
}

// Peers is satisfied by implementations that can end what CtxEnablePeerAccess has begun: both of
// this build.
type Peers interface {
	// CtxDisablePeerAccess is cuCtxDisablePeerAccess: the current context may no longer address
	// memory of peer's device. ErrPeerAccessNotEnabled where it could not.
	CtxDisablePeerAccess(peer Context) error
}

// Rated is satisfied by an implementation whose speed is a model's.
type Rated interface {
	// Rates returns the instructions of warps and the bytes of global memory a second.
	Rates() (warpInstructions, memoryBytes float64)
}

// Sized is satisfied by an implementation that says how large the segments are that a pool takes of
// a device's memory.
type Sized interface {
	// Segment returns their bytes; 0 leaves them to the pool.
	Segment() uint64
}

// Scarce is satisfied by an implementation that can be told to run out of memory, for tests of
// programs that are to survive it.
type Scarce interface {
	// RefuseMemory makes the n-th request for memory of dev from now on, counted from 1, and every
	// one after it fail with ErrOutOfMemory, until Relent. 0 takes that back.
	RefuseMemory(dev Device, n uint64)
	// Relent ends a refusal that has begun. One that has not is left as it is.
	Relent(dev Device)
}
