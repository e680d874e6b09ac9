package emu

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

var (
	_ cu.Graphs      = (*Driver)(nil)
	_ cu.GraphMarker = (*Driver)(nil)
)

// work is what a node of a graph does each time it runs.
type work struct {
	Op
	// ctx is the context of the work. If it is nil, it is the graph's context.
	ctx *context
	// run does the work and returns its virtual time. It is nil if the work does nothing.
	run func() (time.Duration, error)
	// count adds to the counters of launches. It is nil for work that is not a launch.
	count func()
	child *graph // copy of a child graph, whose nodes run before the end of this node
}

type graphs struct {
	graphs map[cu.Graph]*graph
	execs  map[cu.GraphExec]*graphExec
}

func (g *graphs) dismantle(ctx *context) {
	deleteIf(g.graphs, func(g *graph) bool { return g.uses(ctx) })
	deleteIf(g.execs, func(e *graphExec) bool { return slices.Contains(e.contexts(), ctx) })
}

// graph is a graph of work. Its nodes are in the order in which they were added.
type graph struct {
	ctx   *context
	nodes []*graphNode
}

type graphNode struct {
	handle cu.GraphNode
	after  []*graphNode
	work   work
}

// uses reports whether the graph or one of its nodes belongs to ctx.
func (g *graph) uses(ctx *context) bool {
	return g.ctx == ctx || slices.ContainsFunc(g.nodes, func(n *graphNode) bool {
		return n.work.ctx == ctx || n.work.child != nil && n.work.child.uses(ctx)
	})
}

// graphExec is a graph that can be launched. Its child graphs are expanded, and its nodes are in an
// order in which they can run.
type graphExec struct {
	ctx    *context
	nodes  []execNode
	index  map[cu.GraphNode]int
	lastOp *op // last operation of the latest launch, for which the next launch of this graph waits
}

type execNode struct {
	after []int // indices of the earlier nodes on which this node depends
	work  work
}

// GraphCreate creates a graph in the current context.
func (d *Driver) GraphCreate() (cu.Graph, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, err := d.currentContext("cuGraphCreate")
	if err != nil {
		return 0, err
	}
	return d.addGraph(&graph{ctx: ctx}), nil
}

func (d *Driver) addGraph(g *graph) cu.Graph {
	h := cu.Graph(d.handle())
	if d.graphs.graphs == nil {
		d.graphs.graphs = map[cu.Graph]*graph{}
	}
	d.graphs.graphs[h] = g
	return h
}

// GraphDestroy removes a graph and its nodes.
func (d *Driver) GraphDestroy(h cu.Graph) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	g, err := d.graphOf("cuGraphDestroy", h)
	if err != nil {
		return err
	}
	delete(d.graphs.graphs, h)
	return g.ctx.dead
}

func (d *Driver) graphOf(call string, h cu.Graph) (*graph, error) {
	g := d.graphs.graphs[h]
	if g == nil {
		return nil, fail(call, cu.ErrInvalidHandle, "there is no graph %#x", uintptr(h))
	}
	return g, g.ctx.dead
}

func (d *Driver) execOf(call string, h cu.GraphExec) (*graphExec, error) {
	e := d.graphs.execs[h]
	if e == nil {
		return nil, fail(call, cu.ErrInvalidHandle, "there is no executable graph %#x", uintptr(h))
	}
	return e, e.ctx.dead
}

func (g *graph) node(call string, h cu.GraphNode) (*graphNode, error) {
	for _, n := range g.nodes {
		if n.handle == h {
			return n, nil
		}
	}
	return nil, fail(call, cu.ErrInvalidValue, "the graph has no node %#x", uintptr(h))
}

// addNode adds a node. The function build returns the node's work. The caller does not hold d.mu.
func (d *Driver) addNode(call string, h cu.Graph, after []cu.GraphNode, build func(*graph) (work, error)) (cu.GraphNode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g, err := d.graphOf(call, h)
	if err != nil {
		return 0, err
	}
	n := &graphNode{}
	for i, a := range after {
		p, err := g.node(call, a)
		if err != nil {
			return 0, err
		}
		if slices.Contains(after[:i], a) {
			return 0, fail(call, cu.ErrInvalidValue, "node %#x is given twice", uintptr(a))
		}
		n.after = append(n.after, p)
	}
	if n.work, err = build(g); err != nil {
		return 0, err
	}
	n.handle = cu.GraphNode(d.handle())
	g.nodes = append(g.nodes, n)
	return n.handle, nil
}

// GraphAddKernelNode adds a launch. It makes the same checks as LaunchKernel.
func (d *Driver) GraphAddKernelNode(h cu.Graph, after []cu.GraphNode, l cu.GraphKernel) (cu.GraphNode, error) {
	const call = "cuGraphAddKernelNode"
	return d.addNode(call, h, after, func(*graph) (work, error) { return d.kernelNode(call, l) })
}

// kernelNode checks a launch and returns the work of a node for it. The node runs in the context of
// the function, which may differ from the graph's context.
func (d *Driver) kernelNode(call string, l cu.GraphKernel) (work, error) {
	f, err := d.functionOf(call, l.Func)
	if err != nil {
		return work{}, err
	}
	w, err := d.kernelWork(call, f.mod.ctx, l)
	w.ctx = f.mod.ctx
	return w, err
}

// GraphAddCopyNode adds a copy between host and device, on the device, or between devices.
func (d *Driver) GraphAddCopyNode(h cu.Graph, after []cu.GraphNode, c cu.GraphCopy, ctx cu.Context) (cu.GraphNode, error) {
	const call = "cuGraphAddMemcpyNode"
	return d.addNode(call, h, after, func(*graph) (work, error) { return d.copyWork(call, c, ctx) })
}

// contextOf returns the context with handle h. The caller holds d.mu.
func (d *Driver) contextOf(call string, h cu.Context) (*context, error) {
	ctx := d.contexts[h]
	if ctx == nil {
		return nil, fail(call, cu.ErrInvalidContext, "there is no context %#x", uintptr(h))
	}
	return ctx, ctx.dead
}

// copyWork checks a copy and returns the work of a node for it. The caller holds d.mu.
func (d *Driver) copyWork(call string, c cu.GraphCopy, in cu.Context) (work, error) {
	ctx, err := d.contextOf(call, in)
	if err != nil {
		return work{}, err
	}
	if c.Peer {
		return d.peerWork(call, ctx, c)
	}
	dev, n := ctx.dev, c.N
	invalid := func(format string, args ...any) (work, error) {
		return work{}, fail(call, cu.ErrInvalidValue, format, args...)
	}
	if n == 0 {
		return invalid("no bytes")
	}
	host := c.SrcHost
	kind, traffic := KindCopyHtoD, &d.counters.HtoD
	switch {
	case c.SrcHost != nil && c.DstHost != nil:
		return invalid("a copy from host to host")
	case c.DstHost != nil:
		kind, traffic, host = KindCopyDtoH, &d.counters.DtoH, c.DstHost
	case c.SrcHost == nil:
		kind, traffic = KindCopyDtoD, &d.counters.DtoD
	}
	if kind != KindCopyHtoD {
		if err := d.reach(call, dev, c.Src, n); err != nil {
			return work{}, err
		}
	}
	if kind != KindCopyDtoH {
		if err := d.reach(call, dev, c.Dst, n); err != nil {
			return work{}, err
		}
	}
	var block *hostBlock
	if host != nil {
		if block = d.hostAt(host, n); block == nil {
			return invalid("the host memory is not page-locked")
		}
	} else if uint64(c.Dst) < uint64(c.Src)+n && uint64(c.Src) < uint64(c.Dst)+n {
		return invalid("%d bytes at %#x and %#x overlap", n, uint64(c.Src), uint64(c.Dst))
	}
	run := func() (time.Duration, error) {
		cost := d.cfg.Cost.link(n)
		if kind == KindCopyDtoD {
			cost = d.cfg.Cost.local(2 * n)
		}
		if dev.mem == nil {
			return cost, nil
		}
		if err := block.alive(kind, call, n); err != nil {
			return 0, err
		}
		if kind == KindCopyDtoD {
			return cost, transfer(kind, call, dev, c.Dst, dev, c.Src, n)
		}
		at := c.Dst
		if kind == KindCopyDtoH {
			at = c.Src
		}
		b, err := access(kind, call, dev, at, n)
		if err != nil {
			return 0, err
		}
		memory := unsafe.Slice((*byte)(host), n)
		if kind == KindCopyDtoH {
			copy(memory, b)
		} else {
			copy(b, memory)
			dev.mem.MarkInitialised(uint64(at), n)
		}
		return cost, nil
	}
	return work{Op: Op{Kind: kind, Bytes: n}, ctx: ctx, run: run, count: func() { traffic.add(n) }}, nil
}

// GraphAddFillNode adds a fill with n elements of 1, 2 or 4 bytes.
func (d *Driver) GraphAddFillNode(h cu.Graph, after []cu.GraphNode, dst cu.DevicePtr, value uint32, width int, n uint64, ctx cu.Context) (cu.GraphNode, error) {
	const call = "cuGraphAddMemsetNode"
	return d.addNode(call, h, after, func(*graph) (work, error) {
		in, err := d.contextOf(call, ctx)
		switch {
		case err != nil:
			return work{}, err
		case width != 1 && width != 2 && width != 4 || uint64(dst)%uint64(width) != 0:
			return work{}, fail(call, cu.ErrInvalidValue, "elements of %d bytes at %#x", width, uint64(dst))
		case n == 0 || n > MaxMemory/uint64(width):
			return work{}, fail(call, cu.ErrInvalidValue, "%d elements of %d bytes", n, width)
		}
		dev, size := in.dev, n*uint64(width)
		if err := d.reach(call, dev, dst, size); err != nil {
			return work{}, err
		}
		pattern := binary.LittleEndian.AppendUint32(nil, value)[:width]
		run := func() (time.Duration, error) {
			if dev.mem == nil {
				return d.cfg.Cost.local(size), nil
			}
			b, err := access(KindMemset, call, dev, dst, size)
			if err != nil {
				return 0, err
			}
			for i := range b {
				b[i] = pattern[i%width]
			}
			dev.mem.MarkInitialised(uint64(dst), size)
			return d.cfg.Cost.local(size), nil
		}
		return work{Op: Op{Kind: KindMemset, Bytes: size}, ctx: in, run: run, count: func() { d.counters.Memsets.add(size) }}, nil
	})
}

// GraphAddEmptyNode adds a node that does nothing but wait for the nodes before it.
func (d *Driver) GraphAddEmptyNode(h cu.Graph, after []cu.GraphNode) (cu.GraphNode, error) {
	return d.addNode("cuGraphAddEmptyNode", h, after, func(*graph) (work, error) { return work{Op: Op{Kind: KindJoin}}, nil })
}

// GraphAddChildGraphNode adds a copy of another graph.
func (d *Driver) GraphAddChildGraphNode(h cu.Graph, after []cu.GraphNode, child cu.Graph) (cu.GraphNode, error) {
	const call = "cuGraphAddChildGraphNode"
	return d.addNode(call, h, after, func(g *graph) (work, error) {
		c, err := d.graphOf(call, child)
		switch {
		case err != nil:
			return work{}, err
		case c == g:
			return work{}, fail(call, cu.ErrInvalidValue, "graph %#x cannot be a child of graph %#x", uintptr(child), uintptr(h))
		}
		return work{Op: Op{Kind: KindJoin}, child: c.clone()}, nil
	})
}

// clone copies a graph with its nodes. A copied node keeps the handle of its original, but a
// call with this handle still refers to the original.
func (g *graph) clone() *graph {
	c := &graph{ctx: g.ctx}
	of := map[*graphNode]*graphNode{}
	for _, n := range g.nodes {
		m := *n
		of[n] = &m
		c.nodes = append(c.nodes, &m)
	}
	for _, n := range c.nodes {
		n.after = slices.Clone(n.after)
		for i, a := range n.after {
			n.after[i] = of[a]
		}
	}
	return c
}

// GraphAddDependencies adds dependencies between nodes of the graph.
func (d *Driver) GraphAddDependencies(h cu.Graph, from, to []cu.GraphNode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuGraphAddDependencies"
	g, err := d.graphOf(call, h)
	if err != nil {
		return err
	}
	if len(from) != len(to) {
		return fail(call, cu.ErrInvalidValue, "%d nodes before, %d after", len(from), len(to))
	}
	for i := range from {
		a, err := g.node(call, from[i])
		if err != nil {
			return err
		}
		b, err := g.node(call, to[i])
		if err != nil {
			return err
		}
		if a == b || slices.Contains(b.after, a) {
			return fail(call, cu.ErrInvalidValue, "node %#x after %#x: it is there already, or they are one", uintptr(to[i]), uintptr(from[i]))
		}
		b.after = append(b.after, a)
	}
	return nil
}

// GraphAddBlockNode adds a node that marks a pool's block each time it runs. It implements
// cu.GraphMarker.
func (d *Driver) GraphAddBlockNode(h cu.Graph, after []cu.GraphNode, ptr cu.DevicePtr, requested, rounded uint64, label string, mark cu.BlockMark) (cu.GraphNode, error) {
	const call = "GraphAddBlockNode"
	return d.addNode(call, h, after, func(g *graph) (work, error) {
		dev := d.deviceAt(ptr)
		if dev == nil {
			dev = g.ctx.dev // d.reach will report that this device has no such memory
		}
		if err := d.reach(call, dev, ptr, rounded); err != nil {
			return work{}, err
		}
		return work{Op: Op{Kind: KindMark, Bytes: rounded}, ctx: dev.ctx, run: func() (time.Duration, error) {
			switch {
			case dev.mem == nil:
			case mark == cu.BlockEnds:
				dev.mem.MarkFreed(uint64(ptr), rounded)
			default:
				if _, err := dev.mem.Bytes(uint64(ptr), rounded); err != nil {
					return 0, &cu.Error{Call: "cuGraphLaunch", Result: cu.ErrIllegalAddress, Cause: fmt.Errorf("emu: the memory of a graph's block was freed: %w", err)}
				}
				if mark == cu.BlockTakesOver {
					dev.mem.MarkTakenOver(uint64(ptr), requested, rounded, label)
				} else {
					dev.mem.MarkAllocated(uint64(ptr), requested, rounded, label)
				}
			}
			return 0, nil
		}}, nil
	})
}

// capture is the state of a stream between StreamBeginCapture and StreamEndCapture.
type capture struct {
	g    *graph
	tail *graphNode
	err  error // error of the first call that is not allowed during a capture
}

// capturable lists the calls that are allowed on a stream during a capture. A call that waits
// would wait forever. A call that accesses pageable memory would access it only during the
// capture, and not at each launch. An event would add a second stream to the capture, which is not
// emulated.
var capturable = map[string]bool{"cuLaunchKernel": true, "cuMemcpyDtoDAsync": true, "cuMemsetD8Async": true, "cuMemsetD16Async": true,
	"cuMemsetD32Async": true, "cuStreamBeginCapture": true, "cuStreamEndCapture": true}

// refuse makes the capture invalid and returns the error.
func (c *capture) refuse(call string) error {
	c.err = fail(call, cu.ErrStreamCaptureUnsupported, "the stream is being captured")
	return c.err
}

// add appends a node for the work w to the captured graph. The new node depends on the last one.
func (c *capture) add(d *Driver, w work) error {
	if c.err != nil {
		return fail("cuStreamBeginCapture", cu.ErrStreamCaptureInvalidated, "%v", c.err)
	}
	if w.ctx == nil {
		// set the context now, so that it stays the same if the graph becomes a child of another
		// graph
		w.ctx = c.g.ctx
	}
	n := &graphNode{handle: cu.GraphNode(d.handle()), work: w}
	if c.tail != nil {
		n.after = []*graphNode{c.tail}
	}
	c.g.nodes = append(c.g.nodes, n)
	c.tail = n
	return nil
}

// StreamBeginCapture starts a capture. Launches, copies on the device and fills that are queued on
// the stream from now on become nodes of a graph.
func (d *Driver) StreamBeginCapture(h cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuStreamBeginCapture"
	s, err := d.streamHere(call, h)
	switch {
	case err != nil:
		return err
	case h == 0:
		return fail(call, cu.ErrStreamCaptureUnsupported, "the default stream cannot be captured")
	case s.capture != nil:
		return fail(call, cu.ErrIllegalState, "the stream is being captured already")
	}
	s.capture = &capture{g: &graph{ctx: s.ctx}}
	return nil
}

// StreamEndCapture returns the captured graph.
func (d *Driver) StreamEndCapture(h cu.Stream) (cu.Graph, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuStreamEndCapture"
	s, err := d.streamHere(call, h)
	if err != nil {
		return 0, err
	}
	c := s.capture
	if c == nil {
		return 0, fail(call, cu.ErrIllegalState, "the stream is not being captured")
	}
	s.capture = nil
	if c.err != nil {
		return 0, fail(call, cu.ErrStreamCaptureInvalidated, "%v", c.err)
	}
	return d.addGraph(c.g), nil
}
