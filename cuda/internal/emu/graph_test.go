package emu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// affineNode returns a launch that computes x = a·x + b for n 32-bit integers.
func (r *rig) affineNode(x cu.DevicePtr, n, a, b uint32) cu.GraphKernel {
	p := binary.LittleEndian.AppendUint64(nil, uint64(x))
	for _, v := range []uint32{n, a, b} {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	return cu.GraphKernel{Func: r.fn("affine"), Grid: cu.Dim3{X: (n + 31) / 32, Y: 1, Z: 1}, Block: cu.Dim3{X: 32, Y: 1, Z: 1}, Params: p}
}

func (r *rig) kernelNode(g cu.Graph, l cu.GraphKernel, after ...cu.GraphNode) cu.GraphNode {
	r.Helper()
	return must(r.GraphAddKernelNode(g, after, l))(r)
}

// TestGraphOrder launches graphs with many seeds. Their nodes must run in every order that their
// dependencies allow, and in no other.
func TestGraphOrder(t *testing.T) {
	const n = 64
	run := func(ordered bool) func(r *rig) string {
		return func(r *rig) string {
			x, s := r.alloc(4*n), r.stream()
			g := must(r.GraphCreate())(r)
			fill := must(r.GraphAddFillNode(g, nil, x, 5, 4, n, r.ctx))(r)
			add := r.kernelNode(g, r.affineNode(x, n, 1, 1), fill)
			after := []cu.GraphNode{fill}
			if ordered {
				after = []cu.GraphNode{add}
			}
			triple := r.kernelNode(g, r.affineNode(x, n, 3, 0), after...)
			must(r.GraphAddEmptyNode(g, []cu.GraphNode{add, triple}))(r)
			e := must(r.GraphInstantiate(g))(r)
			r.ok(r.GraphDestroy(g))
			r.ok(r.GraphLaunch(e, s))
			r.ok(r.affine(s, x, n, 1, 100)) // runs only after the whole graph
			r.ok(r.GraphExecDestroy(e))
			out := fmt.Sprint(r.read(s, x, n)[0])
			if c := r.Stats(); c.Launches != 2 || c.GraphLaunches != 1 || c.Kernels["affine"].Launches != 3 || c.Memsets.Count != 1 {
				r.Errorf("counted %d launches, %d of graphs, %d of the kernel, %d memsets", c.Launches, c.GraphLaunches, c.Kernels["affine"].Launches, c.Memsets.Count)
			}
			if len(r.streams) != 2 {
				r.Errorf("%d streams are left, want the default one and one more", len(r.streams))
			}
			return out
		}
	}
	if got := outcomes(t, run(true)); len(got) != 1 || got["118"] != seeds {
		t.Errorf("with the dependency: %v, want only 118", got)
	}
	if got := outcomes(t, run(false)); len(got) != 2 || got["118"] < seeds/10 || got["116"] < seeds/10 {
		t.Errorf("without the dependency: %v, want both orders", got)
	}
}

// TestGraphAmongStreams launches a graph while another stream works. That work may run between the
// nodes of the graph, unless an event orders it.
func TestGraphAmongStreams(t *testing.T) {
	const n = 64
	run := func(ordered bool) func(r *rig) string {
		return func(r *rig) string {
			x, a, b, e := r.alloc(4*n), r.stream(), r.stream(), r.event()
			r.ok(r.MemsetD32Async(x, 5, n, a))
			r.ok(r.StreamSynchronize(a))
			g := must(r.GraphCreate())(r)
			add := r.kernelNode(g, r.affineNode(x, n, 1, 1))
			r.kernelNode(g, r.affineNode(x, n, 3, 0), add)
			x1 := must(r.GraphInstantiate(g))(r)
			r.ok(r.GraphLaunch(x1, a))
			r.ok(r.EventRecord(e, a))
			if ordered {
				r.ok(r.StreamWaitEvent(b, e))
			}
			r.ok(r.affine(b, x, n, 2, 0))
			r.ok(r.CtxSynchronize())
			return fmt.Sprint(r.read(a, x, n)[0])
		}
	}
	if got := outcomes(t, run(true)); len(got) != 1 || got["36"] != seeds {
		t.Errorf("with the event: %v, want only 36", got)
	}
	// stream b's work runs before or within the graph: (5+1)·2·3 = 36, or after it: (5·2+1)·3 = 33
	if got := outcomes(t, run(false)); got["33"] == 0 || got["36"] == 0 || len(got) != 2 {
		t.Errorf("without the event: %v, want 33 and 36", got)
	}
}

// TestGraphLaunchesTakeTurns launches one graph on two streams. The launches must run one after the
// other.
func TestGraphLaunchesTakeTurns(t *testing.T) {
	const n = 64
	got := outcomes(t, func(r *rig) string {
		x, a, b := r.alloc(4*n), r.stream(), r.stream()
		r.ok(r.MemsetD32Async(x, 5, n, a))
		r.ok(r.StreamSynchronize(a))
		g := must(r.GraphCreate())(r)
		add := r.kernelNode(g, r.affineNode(x, n, 1, 1))
		r.kernelNode(g, r.affineNode(x, n, 3, 0), add)
		e := must(r.GraphInstantiate(g))(r)
		r.ok(r.GraphLaunch(e, a))
		r.ok(r.GraphLaunch(e, b))
		r.ok(r.CtxSynchronize())
		return fmt.Sprint(r.read(a, x, n)[0])
	})
	if len(got) != 1 || got["57"] != seeds {
		t.Errorf("%v, want only ((5+1)·3+1)·3 = 57", got)
	}
}

// TestGraphCopies launches a graph with copies from the host. Host memory must be read at each
// launch, and new parameters must affect only later launches.
func TestGraphCopies(t *testing.T) {
	const n = 64
	got := outcomes(t, func(r *rig) string {
		x, y, s := r.alloc(4*n), r.alloc(4*n), r.stream()
		in, other, out := r.pinned(n), r.pinned(n), r.pinned(n)
		fill(in, 1)
		fill(other, 100)
		g := must(r.GraphCreate())(r)
		up := must(r.GraphAddCopyNode(g, nil, cu.GraphCopy{SrcHost: ptr(in), Dst: x, N: 4 * n}, r.ctx))(r)
		twice := r.kernelNode(g, r.affineNode(x, n, 2, 0), up)
		over := must(r.GraphAddCopyNode(g, []cu.GraphNode{twice}, cu.GraphCopy{Src: x, Dst: y, N: 4 * n}, r.ctx))(r)
		must(r.GraphAddCopyNode(g, []cu.GraphNode{over}, cu.GraphCopy{Src: y, DstHost: ptr(out), N: 4 * n}, r.ctx))(r)
		e := must(r.GraphInstantiate(g))(r)
		var list []string
		launch := func() {
			r.ok(r.GraphLaunch(e, s))
		}
		see := func() {
			r.ok(r.StreamSynchronize(s))
			list = append(list, fmt.Sprint(out[0], out[n-1]))
		}
		launch()
		see()
		fill(in, 7)
		launch()
		// A queued launch uses the old parameters, whenever it runs.
		r.ok(r.GraphExecCopyNodeSetParams(e, up, cu.GraphCopy{SrcHost: ptr(other), Dst: x, N: 4 * n}, r.ctx))
		r.ok(r.GraphExecKernelNodeSetParams(e, twice, r.affineNode(x, n, 3, 1)))
		see()
		launch()
		see()
		return fmt.Sprint(list)
	})
	if want := "[2 2 14 14 301 301]"; len(got) != 1 || got[want] != seeds {
		t.Errorf("%v, want only %s", got, want)
	}
}

// TestChildGraph adds a captured graph as one node of another graph. The node's dependencies must
// hold for the whole captured graph.
func TestChildGraph(t *testing.T) {
	const n = 64
	got := outcomes(t, func(r *rig) string {
		x, y, s, c := r.alloc(4*n), r.alloc(4*n), r.stream(), r.stream()
		r.ok(r.StreamBeginCapture(c))
		before := r.Stats().Launches
		r.ok(r.affine(c, x, n, 2, 0))
		r.ok(r.affine(c, x, n, 1, 3))
		r.ok(r.MemcpyDtoDAsync(y, x, 4*n, c))
		child := must(r.StreamEndCapture(c))(r)
		if r.Stats().Launches != before {
			r.Error("a captured launch was counted")
		}
		g := must(r.GraphCreate())(r)
		first := must(r.GraphAddFillNode(g, nil, x, 5, 4, n, r.ctx))(r)
		inner := must(r.GraphAddChildGraphNode(g, []cu.GraphNode{first}, child))(r)
		r.kernelNode(g, r.affineNode(y, n, 10, 0), inner)
		r.ok(r.GraphDestroy(child))
		e := must(r.GraphInstantiate(g))(r)
		r.ok(r.GraphLaunch(e, s))
		return fmt.Sprint(r.read(s, y, n)[0])
	})
	if len(got) != 1 || got["130"] != seeds {
		t.Errorf("%v, want only (5·2+3)·10 = 130", got)
	}
}

// TestGraphBlocks launches graphs that mark the beginning and the end of a pool's block. At each
// launch, the block must get its bounds and be uninitialised. So a read of what an earlier launch
// has written must be a fault.
func TestGraphBlocks(t *testing.T) {
	r := newRig(t, Config{})
	x, s := r.alloc(512), r.stream()
	build := func(written bool) cu.GraphExec {
		g := must(r.GraphCreate())(r)
		tail := must(r.GraphAddBlockNode(g, nil, x, 256, 512, "temporary", cu.BlockBegins))(r)
		if written {
			tail = must(r.GraphAddFillNode(g, []cu.GraphNode{tail}, x, 1, 4, 64, r.ctx))(r)
		}
		tail = r.kernelNode(g, r.affineNode(x, 64, 1, 1), tail)
		must(r.GraphAddBlockNode(g, []cu.GraphNode{tail}, x, 0, 512, "", cu.BlockEnds))(r)
		return must(r.GraphInstantiate(g))(r)
	}
	e := build(true)
	for range 3 {
		r.ok(r.GraphLaunch(e, s))
	}
	r.ok(r.StreamSynchronize(s))
	r.ok(r.GraphLaunch(build(false), s)) // reads what an earlier launch has written
	err := r.StreamSynchronize(s)
	var f *ptxvm.Fault
	if !errors.As(err, &f) || f.Kind != ptxvm.UninitialisedMemory {
		t.Errorf("a read of what an earlier launch left gave %v", err)
	}
}

// TestGraphRefusals makes requests that are impossible. Each must return an error.
func TestGraphRefusals(t *testing.T) {
	r := newRig(t, Config{Devices: 2})
	x, s := r.alloc(1024), r.stream()
	g := must(r.GraphCreate())(r)
	a := must(r.GraphAddEmptyNode(g, nil))(r)
	b := must(r.GraphAddEmptyNode(g, []cu.GraphNode{a}))(r)
	l := r.affineNode(x, 64, 1, 1)
	is := func(what string, err error, want cu.Result) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	node := func(n cu.GraphNode, err error) error { return err }
	is("no graph", node(r.GraphAddKernelNode(12345, nil, l)), cu.ErrInvalidHandle)
	is("no node", node(r.GraphAddKernelNode(g, []cu.GraphNode{777}, l)), cu.ErrInvalidValue)
	is("a node twice", node(r.GraphAddKernelNode(g, []cu.GraphNode{a, a}, l)), cu.ErrInvalidValue)
	is("no function", node(r.GraphAddKernelNode(g, nil, cu.GraphKernel{Func: 1, Grid: l.Grid, Block: l.Block})), cu.ErrInvalidHandle)
	l.Params = l.Params[1:]
	is("parameters", node(r.GraphAddKernelNode(g, nil, l)), cu.ErrInvalidValue)
	heap := make([]byte, 16)
	is("pageable", node(r.GraphAddCopyNode(g, nil, cu.GraphCopy{SrcHost: unsafe.Pointer(&heap[0]), Dst: x, N: 16}, r.ctx)), cu.ErrInvalidValue)
	runtime.KeepAlive(heap)
	is("overlap", node(r.GraphAddCopyNode(g, nil, cu.GraphCopy{Src: x, Dst: x + 8, N: 16}, r.ctx)), cu.ErrInvalidValue)
	is("outside", node(r.GraphAddCopyNode(g, nil, cu.GraphCopy{Src: x, Dst: x + 1<<40, N: 16}, r.ctx)), cu.ErrInvalidValue)
	is("context", node(r.GraphAddCopyNode(g, nil, cu.GraphCopy{Src: x, Dst: x + 512, N: 16}, 99)), cu.ErrInvalidContext)
	is("alignment", node(r.GraphAddFillNode(g, nil, x+2, 1, 4, 4, r.ctx)), cu.ErrInvalidValue)
	is("itself", node(r.GraphAddChildGraphNode(g, nil, g)), cu.ErrInvalidValue)
	is("edge twice", r.GraphAddDependencies(g, []cu.GraphNode{a}, []cu.GraphNode{b}), cu.ErrInvalidValue)
	e := must(r.GraphInstantiate(g))(r)
	is("kind", r.GraphExecCopyNodeSetParams(e, a, cu.GraphCopy{Src: x, Dst: x + 512, N: 16}, r.ctx), cu.ErrInvalidValue)
	r.ok(r.GraphAddDependencies(g, []cu.GraphNode{b}, []cu.GraphNode{a}))
	_, err := r.GraphInstantiate(g)
	is("a circle", err, cu.ErrInvalidValue)
	r.ok(r.GraphExecDestroy(e))
	is("destroyed", r.GraphLaunch(e, s), cu.ErrInvalidHandle)

	r.ok(r.StreamBeginCapture(s))
	is("again", r.StreamBeginCapture(s), cu.ErrIllegalState)
	is("wait", r.StreamSynchronize(s), cu.ErrStreamCaptureUnsupported)
	is("after it", r.affine(s, x, 64, 1, 1), cu.ErrStreamCaptureInvalidated)
	_, err = r.StreamEndCapture(s)
	is("end", err, cu.ErrStreamCaptureInvalidated)
	_, err = r.StreamEndCapture(s)
	is("end again", err, cu.ErrIllegalState)
	r.ok(r.MemsetD32Async(x, 5, 64, s)) // the stream must still work
	if got := r.read(s, x, 64); !all(got, 5) {
		t.Errorf("after a failed capture: %v", got)
	}
}
