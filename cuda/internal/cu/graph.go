package cu

import "unsafe"

// Handles of graphs. The zero value is none.
type (
	Graph     uintptr
	GraphNode uintptr // lives as long as its graph
	GraphExec uintptr
)

// Graphs is satisfied by implementations that build graphs of work and launch them as one: both of this build. A graph is made in the
// calling thread's current context and used there. Its nodes run in any order that their dependencies allow.
type Graphs interface {
	// GraphCreate is cuGraphCreate: an empty graph.
	GraphCreate() (Graph, error)
	// GraphDestroy is cuGraphDestroy. What was instantiated from the graph stays.
	GraphDestroy(g Graph) error
	// GraphAddKernelNode is cuGraphAddKernelNode in its form of CUDA 10: a launch that runs after the nodes of after. params is laid out
	// as for LaunchKernel and copied before the call returns.
	GraphAddKernelNode(g Graph, after []GraphNode, l GraphKernel) (GraphNode, error)
	// GraphAddCopyNode is cuGraphAddMemcpyNode for a copy of a range of bytes. Host memory is read or written when the node runs, each time:
	// it is page-locked.
	GraphAddCopyNode(g Graph, after []GraphNode, c GraphCopy, ctx Context) (GraphNode, error)
	// GraphAddFillNode is cuGraphAddMemsetNode of n elements of width 1, 2 or 4 bytes, dst being aligned to them.
	GraphAddFillNode(g Graph, after []GraphNode, dst DevicePtr, value uint32, width int, n uint64, ctx Context) (GraphNode, error)
	// GraphAddEmptyNode is cuGraphAddEmptyNode: what joins others.
	GraphAddEmptyNode(g Graph, after []GraphNode) (GraphNode, error)
	// GraphAddChildGraphNode is cuGraphAddChildGraphNode: a copy of child, as it is now, runs as one node.
	GraphAddChildGraphNode(g Graph, after []GraphNode, child Graph) (GraphNode, error)
	// GraphAddDependencies is cuGraphAddDependencies in its form of CUDA 10: to[i] runs after from[i].
	GraphAddDependencies(g Graph, from, to []GraphNode) error
	// GraphInstantiate is cuGraphInstantiateWithFlags without flags: the graph as it is now, ready to be launched.
	GraphInstantiate(g Graph) (GraphExec, error)
	// GraphExecKernelNodeSetParams is cuGraphExecKernelNodeSetParams for a node of the graph that e was made from. It holds for later
	// launches; those that are queued or run are not changed.
	GraphExecKernelNodeSetParams(e GraphExec, n GraphNode, l GraphKernel) error
	// GraphExecCopyNodeSetParams is cuGraphExecMemcpyNodeSetParams, as GraphExecKernelNodeSetParams is. Both ends stay in the contexts
	// where they were.
	GraphExecCopyNodeSetParams(e GraphExec, n GraphNode, c GraphCopy, ctx Context) error
	// GraphExecDestroy is cuGraphExecDestroy. Launches that are queued still run.
	GraphExecDestroy(e GraphExec) error
	// GraphLaunch is cuGraphLaunch: the whole graph in the order of s. Launches of one GraphExec run one after the other.
	GraphLaunch(e GraphExec, s Stream) error

	// StreamBeginCapture is cuStreamBeginCapture_v2 with CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what is queued on s from now on becomes nodes
	// of a graph instead of running, which is how the calls of a library are recorded.
	StreamBeginCapture(s Stream) error
	// StreamEndCapture is cuStreamEndCapture: the graph, for GraphAddChildGraphNode. It ends the capture also when the capture had failed.
	StreamEndCapture(s Stream) (Graph, error)
}

// GraphMarker is satisfied by a [Checker] that takes the bounds of a pool's blocks as nodes of a graph: each launch allocates and
// frees them anew, in the graph's order.
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

// GraphCopy is a copy of N > 0 bytes. Of each end one address is given: a host's, or a device's.
type GraphCopy struct {
	DstHost, SrcHost unsafe.Pointer
	Dst, Src         DevicePtr
	N                uint64
}
