//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"runtime"
	"unsafe"
)

var _ Graphs = (*driver)(nil)

// graphSymbols holds the addresses of the C functions for graphs. A driver of version Minimum has
// all of them.
type graphSymbols struct {
	graphCreate, graphDestroy, graphAddKernelNode, graphAddMemcpyNode, graphAddMemsetNode uintptr
	graphAddEmptyNode, graphAddChildGraphNode, graphAddDependencies, graphInstantiate     uintptr
	graphExecKernelNodeSetParams, graphExecMemcpyNodeSetParams, graphExecDestroy          uintptr
	graphLaunch, streamBeginCapture, streamEndCapture                                     uintptr
}

// graphTable lists the C functions for graphs as they are in version Minimum. From CUDA 12 on, the
// names in cuda.h stand for newer versions of the functions for kernel nodes and dependencies.
var graphTable = []symbol{
	{"cuGraphCreate", "", func(s *symbols) *uintptr { return &s.graphCreate }},
	{"cuGraphDestroy", "", func(s *symbols) *uintptr { return &s.graphDestroy }},
	{"cuGraphAddKernelNode", "", func(s *symbols) *uintptr { return &s.graphAddKernelNode }},
	{"cuGraphAddMemcpyNode", "", func(s *symbols) *uintptr { return &s.graphAddMemcpyNode }},
	{"cuGraphAddMemsetNode", "", func(s *symbols) *uintptr { return &s.graphAddMemsetNode }},
	{"cuGraphAddEmptyNode", "", func(s *symbols) *uintptr { return &s.graphAddEmptyNode }},
	{"cuGraphAddChildGraphNode", "", func(s *symbols) *uintptr { return &s.graphAddChildGraphNode }},
	{"cuGraphAddDependencies", "", func(s *symbols) *uintptr { return &s.graphAddDependencies }},
	{"cuGraphInstantiateWithFlags", "", func(s *symbols) *uintptr { return &s.graphInstantiate }},
	{"cuGraphExecKernelNodeSetParams", "", func(s *symbols) *uintptr { return &s.graphExecKernelNodeSetParams }},
	{"cuGraphExecMemcpyNodeSetParams", "", func(s *symbols) *uintptr { return &s.graphExecMemcpyNodeSetParams }},
	{"cuGraphExecDestroy", "", func(s *symbols) *uintptr { return &s.graphExecDestroy }},
	{"cuGraphLaunch", "", func(s *symbols) *uintptr { return &s.graphLaunch }},
	{"cuStreamBeginCapture", "cuStreamBeginCapture_v2", func(s *symbols) *uintptr { return &s.streamBeginCapture }},
	{"cuStreamEndCapture", "", func(s *symbols) *uintptr { return &s.streamEndCapture }},
}

func init() { symbolTable = append(symbolTable, graphTable...) }

// kernelNodeParams is CUDA_KERNEL_NODE_PARAMS_v1 of cuda.h.
type kernelNodeParams struct {
	fn          Function
	grid, block Dim3
	shared      uint32
	params      uintptr // the field kernelParams, which is not used
	extra       uintptr
}

// memcpy3D is CUDA_MEMCPY3D_v2 of cuda.h.
type memcpy3D struct {
	srcX, srcY, srcZ, srcLOD  uintptr
	srcType                   uint32
	srcHost                   uintptr
	srcDevice                 DevicePtr
	srcArray, reserved0       uintptr
	srcPitch, srcHeight       uintptr
	dstX, dstY, dstZ, dstLOD  uintptr
	dstType                   uint32
	dstHost                   uintptr
	dstDevice                 DevicePtr
	dstArray, reserved1       uintptr
	dstPitch, dstHeight       uintptr
	widthBytes, height, depth uintptr
}

// Kinds of memory: CUmemorytype of cuda.h.
const (
	memoryHost    = 1
	memoryDevice  = 2
	memoryUnified = 4 // memory of the device to which the address belongs
)

// memsetNodeParams is CUDA_MEMSET_NODE_PARAMS_v1 of cuda.h.
type memsetNodeParams struct {
	dst         DevicePtr
	pitch       uintptr
	value       uint32
	elementSize uint32
	width       uintptr
	height      uintptr
}

// captureThreadLocal is CU_STREAM_CAPTURE_MODE_THREAD_LOCAL of cuda.h. During a capture, it forbids
// unsafe calls in the capturing thread, but not in other threads.
const captureThreadLocal = 1

// graphArgs is memory to which arguments of graph calls point. It must lie on the heap, because
// stacks may move. A call takes its address as a number, so the compiler would otherwise choose the
// stack.
type graphArgs struct {
	kernel kernelNodeParams
	extra  [5]uintptr
	size   uintptr
	copy   memcpy3D
	fill   memsetNodeParams
}

//go:noinline
func newGraphArgs() *graphArgs { return new(graphArgs) }

// launchOf fills a with the parameters of the launch l, and returns their address. The caller must
// keep l alive during the call.
func (a *graphArgs) launchOf(l *GraphKernel) uintptr {
	a.kernel = kernelNodeParams{fn: l.Func, grid: l.Grid, block: l.Block, shared: l.Shared}
	if len(l.Params) > 0 {
		a.size = uintptr(len(l.Params))
		a.extra = [5]uintptr{launchParamBufferPointer, uintptr(unsafe.Pointer(&l.Params[0])), launchParamBufferSize,
			uintptr(unsafe.Pointer(&a.size)), launchParamEnd}
		a.kernel.extra = uintptr(unsafe.Pointer(&a.extra[0]))
	}
	return uintptr(unsafe.Pointer(&a.kernel))
}

func (a *graphArgs) copyOf(c *GraphCopy) uintptr {
	m := memcpy3D{srcType: memoryDevice, srcDevice: c.Src, dstType: memoryDevice, dstDevice: c.Dst, widthBytes: uintptr(c.N), height: 1, depth: 1}
	if c.SrcHost != nil {
		m.srcType, m.srcHost, m.srcDevice = memoryHost, uintptr(c.SrcHost), 0
	}
	if c.DstHost != nil {
		m.dstType, m.dstHost, m.dstDevice = memoryHost, uintptr(c.DstHost), 0
	}
	if c.Peer {
		m.srcType, m.dstType = memoryUnified, memoryUnified
	}
	a.copy = m
	return uintptr(unsafe.Pointer(&a.copy))
}

// addNode calls a C function that adds a node, and returns the node's handle. The C function's
// arguments are a pointer to the handle, the graph, the nodes that precede the new one, their
// number, and the remaining arguments.
func addNode(fn uintptr, g Graph, after []GraphNode, rest ...uintptr) (GraphNode, Result) {
	b := getBlock(fn)
	defer putBlock(b)
	b.out[0] = 0
	b.a[0], b.a[1], b.a[2], b.a[3] = b.outAddr(0), uintptr(g), 0, uintptr(len(after))
	if len(after) > 0 {
		b.a[2] = uintptr(unsafe.Pointer(&after[0]))
	}
	copy(b.a[4:], rest)
	r := b.call()
	runtime.KeepAlive(after)
	return GraphNode(b.out[0]), r
}

func (d *driver) GraphCreate() (Graph, error) {
	g, r := get1(d.fn.graphCreate, 0)
	return Graph(g), fail(r, "cuGraphCreate")
}

func (d *driver) GraphDestroy(g Graph) error {
	return fail(call1(d.fn.graphDestroy, uintptr(g)), "cuGraphDestroy")
}

func (d *driver) GraphAddKernelNode(g Graph, after []GraphNode, l GraphKernel) (GraphNode, error) {
	args := newGraphArgs()
	n, r := addNode(d.fn.graphAddKernelNode, g, after, args.launchOf(&l))
	runtime.KeepAlive(args)
	runtime.KeepAlive(l.Params)
	return n, failf(r, "cuGraphAddKernelNode", "grid %v, block %v, %d bytes of dynamic shared memory, %d bytes of parameters", l.Grid, l.Block, l.Shared, len(l.Params))
}

func (d *driver) GraphAddCopyNode(g Graph, after []GraphNode, c GraphCopy, ctx Context) (GraphNode, error) {
	args := newGraphArgs()
	n, r := addNode(d.fn.graphAddMemcpyNode, g, after, args.copyOf(&c), uintptr(ctx))
	runtime.KeepAlive(args)
	return n, failf(r, "cuGraphAddMemcpyNode", "%d bytes", c.N)
}

func (d *driver) GraphAddFillNode(g Graph, after []GraphNode, dst DevicePtr, value uint32, width int, count uint64, ctx Context) (GraphNode, error) {
	args := newGraphArgs()
	args.fill = memsetNodeParams{dst: dst, value: value, elementSize: uint32(width), width: uintptr(count), height: 1}
	n, r := addNode(d.fn.graphAddMemsetNode, g, after, uintptr(unsafe.Pointer(&args.fill)), uintptr(ctx))
	runtime.KeepAlive(args)
	return n, failf(r, "cuGraphAddMemsetNode", "%d elements of %d bytes at %#x", count, width, uint64(dst))
}

func (d *driver) GraphAddEmptyNode(g Graph, after []GraphNode) (GraphNode, error) {
	n, r := addNode(d.fn.graphAddEmptyNode, g, after)
	return n, fail(r, "cuGraphAddEmptyNode")
}

func (d *driver) GraphAddChildGraphNode(g Graph, after []GraphNode, child Graph) (GraphNode, error) {
	n, r := addNode(d.fn.graphAddChildGraphNode, g, after, uintptr(child))
	return n, fail(r, "cuGraphAddChildGraphNode")
}

func (d *driver) GraphAddDependencies(g Graph, from, to []GraphNode) error {
	if len(from) != len(to) {
		return &Error{Call: "cuGraphAddDependencies", Result: ErrInvalidValue, Detail: "as many nodes are given before as after"}
	}
	if len(from) == 0 {
		return nil
	}
	r := call4(d.fn.graphAddDependencies, uintptr(g), uintptr(unsafe.Pointer(&from[0])), uintptr(unsafe.Pointer(&to[0])), uintptr(len(from)))
	runtime.KeepAlive(from)
	runtime.KeepAlive(to)
	return fail(r, "cuGraphAddDependencies")
}

func (d *driver) GraphInstantiate(g Graph) (GraphExec, error) {
	e, r := get1(d.fn.graphInstantiate, uintptr(g), 0)
	return GraphExec(e), fail(r, "cuGraphInstantiateWithFlags")
}

func (d *driver) GraphExecKernelNodeSetParams(e GraphExec, n GraphNode, l GraphKernel) error {
	args := newGraphArgs()
	r := call3(d.fn.graphExecKernelNodeSetParams, uintptr(e), uintptr(n), args.launchOf(&l))
	runtime.KeepAlive(args)
	runtime.KeepAlive(l.Params)
	return fail(r, "cuGraphExecKernelNodeSetParams")
}

func (d *driver) GraphExecCopyNodeSetParams(e GraphExec, n GraphNode, c GraphCopy, ctx Context) error {
	args := newGraphArgs()
	r := call4(d.fn.graphExecMemcpyNodeSetParams, uintptr(e), uintptr(n), args.copyOf(&c), uintptr(ctx))
	runtime.KeepAlive(args)
	return failf(r, "cuGraphExecMemcpyNodeSetParams", "%d bytes", c.N)
}

func (d *driver) GraphExecDestroy(e GraphExec) error {
	return fail(call1(d.fn.graphExecDestroy, uintptr(e)), "cuGraphExecDestroy")
}

func (d *driver) GraphLaunch(e GraphExec, s Stream) error {
	return fail(call2(d.fn.graphLaunch, uintptr(e), uintptr(s)), "cuGraphLaunch")
}

func (d *driver) StreamBeginCapture(s Stream) error {
	return fail(call2(d.fn.streamBeginCapture, uintptr(s), captureThreadLocal), "cuStreamBeginCapture")
}

func (d *driver) StreamEndCapture(s Stream) (Graph, error) {
	b := getBlock(d.fn.streamEndCapture)
	defer putBlock(b)
	b.out[0] = 0
	b.a[0], b.a[1] = uintptr(s), b.outAddr(0)
	r := b.call()
	return Graph(b.out[0]), fail(r, "cuStreamEndCapture")
}
