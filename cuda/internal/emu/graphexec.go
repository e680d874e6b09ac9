package emu

import (
	"slices"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// GraphInstantiate checks that the graph can run, and makes a GraphExec of it.
func (d *Driver) GraphInstantiate(h cu.Graph) (cu.GraphExec, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuGraphInstantiateWithFlags"
	g, err := d.graphOf(call, h)
	if err != nil {
		return 0, err
	}
	e := &graphExec{ctx: g.ctx, index: map[cu.GraphNode]int{}}
	if _, ok := e.flatten(g, nil, true); !ok {
		return 0, fail(call, cu.ErrInvalidValue, "the nodes depend on each other in a circle")
	}
	x := cu.GraphExec(d.handle())
	if d.graphs.execs == nil {
		d.graphs.execs = map[cu.GraphExec]*graphExec{}
	}
	d.graphs.execs[x] = e
	return x, nil
}

// flatten appends the nodes of g to e, to run after all nodes of deps. It returns the nodes of g on
// which no other node of g depends. If the dependencies form a cycle, ok is false. outer is false
// for a child graph, whose nodes get no entry in e.index.
func (e *graphExec) flatten(g *graph, deps []int, outer bool) (ends []int, ok bool) {
	at := map[*graphNode]int{}
	hasNext := map[int]bool{}
	for len(at) < len(g.nodes) {
		grew := false
		for _, n := range g.nodes {
			if _, done := at[n]; done {
				continue
			}
			after := slices.Clone(deps)
			ready := true
			for _, a := range n.after {
				i, done := at[a]
				ready = ready && done
				after = append(after, i)
			}
			if !ready {
				continue
			}
			for _, i := range after {
				hasNext[i] = true
			}
			if n.work.child != nil {
				inner, ok := e.flatten(n.work.child, after, false)
				if !ok {
					return nil, false
				}
				if len(inner) > 0 {
					after = inner
				}
			}
			at[n] = len(e.nodes)
			if outer {
				e.index[n.handle] = len(e.nodes)
			}
			e.nodes = append(e.nodes, execNode{after, n.work})
			grew = true
		}
		if !grew {
			return nil, false
		}
	}
	for _, i := range at {
		if !hasNext[i] {
			ends = append(ends, i)
		}
	}
	slices.Sort(ends)
	return ends, true
}

// setWork replaces the work of a node by other work of the same kind, which the function build
// returns.
func (d *Driver) setWork(call string, h cu.GraphExec, n cu.GraphNode, build func(*graphExec) (work, error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.execOf(call, h)
	if err != nil {
		return err
	}
	i, ok := e.index[n]
	if !ok {
		return fail(call, cu.ErrInvalidValue, "node %#x is none of the graph that was instantiated", uintptr(n))
	}
	w, err := build(e)
	if err != nil {
		return err
	}
	old := e.nodes[i].work
	switch {
	case old.Kind != w.Kind:
		return fail(call, cu.ErrInvalidValue, "the node is a %v, not a %v", old.Kind, w.Kind)
	case old.ctx != w.ctx || old.From != w.From || old.To != w.To:
		return fail(call, cu.ErrInvalidValue, "the node is of other devices")
	}
	e.nodes[i].work = w
	return nil
}

// GraphExecKernelNodeSetParams changes a kernel node for later launches of the graph.
func (d *Driver) GraphExecKernelNodeSetParams(h cu.GraphExec, n cu.GraphNode, l cu.GraphKernel) error {
	const call = "cuGraphExecKernelNodeSetParams"
	return d.setWork(call, h, n, func(*graphExec) (work, error) { return d.kernelNode(call, l) })
}

// GraphExecCopyNodeSetParams changes a copy node for later launches of the graph.
func (d *Driver) GraphExecCopyNodeSetParams(h cu.GraphExec, n cu.GraphNode, c cu.GraphCopy, ctx cu.Context) error {
	const call = "cuGraphExecMemcpyNodeSetParams"
	return d.setWork(call, h, n, func(*graphExec) (work, error) { return d.copyWork(call, c, ctx) })
}

func (e *graphExec) contexts() []*context {
	list := []*context{e.ctx}
	for _, n := range e.nodes {
		if c := n.work.ctx; c != nil && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// GraphExecDestroy removes the GraphExec.
func (d *Driver) GraphExecDestroy(h cu.GraphExec) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.execOf("cuGraphExecDestroy", h)
	if err != nil {
		return err
	}
	delete(d.graphs.execs, h)
	return e.ctx.dead
}

// GraphLaunch queues the nodes of a graph. Each chain of nodes becomes one queue, and the queues
// may overtake each other.
func (d *Driver) GraphLaunch(h cu.GraphExec, st cu.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuGraphLaunch"
	e, err := d.execOf(call, h)
	if err != nil {
		return err
	}
	s, err := d.streamHere(call, st)
	if err != nil {
		return err
	}
	if e.ctx != s.ctx {
		return fail(call, cu.ErrInvalidHandle, "the graph is of device %d, the stream of device %d", e.ctx.dev.ordinal, s.ctx.dev.ordinal)
	}
	for _, ctx := range e.contexts() {
		if ctx.dead != nil {
			return ctx.dead
		}
	}
	d.counters.Launches++
	d.counters.GraphLaunches++
	begin := &op{Op: Op{Kind: KindGraph}}
	if e.lastOp != nil {
		begin.after = []*op{e.lastOp}
	}
	d.enqueue(s, begin)
	ops, lane := make([]*op, len(e.nodes)), make([]*stream, len(e.nodes))
	var lanes []*stream
	join := &op{Op: Op{Kind: KindJoin}, after: []*op{begin}}
	for i, n := range e.nodes {
		o := &op{Op: n.work.Op, run: n.work.run, after: []*op{begin}}
		ctx := n.work.ctx
		if ctx == nil {
			ctx = s.ctx
		}
		if o.Kind == KindCopyPeer {
			o.Staged = !ctx.reaches(d.devices[o.From].ctx, d.devices[o.To].ctx)
		}
		for _, a := range n.after {
			o.after = append(o.after, ops[a])
			if l := lane[a]; lane[i] == nil && l.last == ops[a] && l.ctx == ctx {
				lane[i] = l // the node continues the queue of the node on which it depends
			}
		}
		if lane[i] == nil {
			lane[i] = &stream{handle: s.handle, ctx: ctx, weight: d.weight(), clock: s.ctx.dev.host, by: s.ctx.dev}
			lanes = append(lanes, lane[i])
			d.streams = append(d.streams, lane[i])
		}
		if n.work.count != nil {
			n.work.count()
		}
		ops[i] = d.enqueue(lane[i], o)
		join.after = append(join.after, o)
	}
	e.lastOp = d.enqueue(s, join)
	for _, l := range lanes {
		l.closed = true
		d.removeClosed(l)
	}
	return s.ctx.dead
}
