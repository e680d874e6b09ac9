package cuda

import (
	"errors"
	"slices"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.Replayer = (*replayer)(nil)

// turns is the largest number of replays that are queued at once. Replays take numbered turns: 0 to
// turns-1, then 0 again. Each turn has its own memory for the data that a replay provides. A replay
// waits until the previous replay with the same turn is done.
const turns = 4

// replayer is the graph made from a recording. The graph reads one block of page-locked memory. The
// block holds the constants, and then for each turn the data (feeds) that a replay provides. Before
// a launch, the nodes that copy feeds are changed to read the feeds of the current turn. Launches
// that are already queued still read the feeds of their own turns.
type replayer struct {
	r      *recording
	ops    int
	feed   []feed
	whole  int    // number of operations that were recorded
	why    string // reason why the graph has all recorded operations; "" if it has fewer
	sent   []peerCopy
	host   *pinnedBuffer // host memory that the graph reads; nil if it reads none
	stride int           // size in bytes of the feeds of one turn
	offset int           // offset of the first turn's feeds in the host memory

	mu    sync.Mutex
	graph cu.Graph
	exec  cu.GraphExec
	turn  int
	busy  [turns]device.Event
	done  bool
}

// feed is a node that copies data that each replay provides.
type feed struct {
	node cu.GraphNode
	ctx  cu.Context
	to   cu.DevicePtr
	at   int // offset of the data within the feeds of a turn
	n    int
}

type peerCopy struct {
	link *peerLink
	size uint64
}

// aligned rounds an offset in the host memory up to a multiple of 256.
func aligned(n int) int { return (n + 255) &^ 255 }

// Finish ends the recording and makes the graph.
func (r *recording) Finish() (device.Replayer, error) {
	r.mu.Lock()
	err := r.unjoined()
	r.mu.Unlock()
	if !r.finish() {
		return nil, &device.RecordError{Device: r.d.name, Op: "finish", Why: "the recording is over"}
	}
	g := &replayer{r: r, whole: operations(r.nodes)}
	if err == nil {
		err = g.make()
	}
	if err != nil {
		g.destroy()
		r.retire()
		return nil, err
	}
	r.nodes, r.marks = nil, nil
	return g, nil
}

// make creates the driver's graph from the shortened list of operations. If the driver refuses a
// merged kernel, it creates the graph from the recorded list instead. Any other error is returned,
// because it would occur again.
func (g *replayer) make() error {
	nodes, why, err := g.r.shortened()
	if why == "" {
		if err == nil {
			err = g.build(nodes)
		}
		if _, refused := errors.AsType[*mergeError](err); !refused {
			return err
		}
		whole := g.whole
		g.destroy()
		*g = replayer{r: g.r, whole: whole}
		why = "the shorter list failed: " + err.Error()
	}
	g.why = why
	return g.build(g.r.nodes)
}

// operations returns the number of kernels, copies and fills of a list.
func operations(list []recorded) (n int) {
	for i := range list {
		switch w := &list[i]; {
		case w.kind == recordedLaunch:
			n += len(w.launches)
		case !w.kind.marks():
			n++
		}
	}
	return n
}

func (g *replayer) build(list []recorded) error {
	d := g.r.d
	constants := 0
	for _, w := range list {
		switch w.kind {
		case recordedConstant:
			constants += aligned(len(w.bytes))
		case recordedFeed:
			g.stride += aligned(int(w.n))
		}
	}
	g.offset = constants
	if n := constants + turns*g.stride; n > 0 {
		b, err := d.AllocPinned(n, device.Origin{Op: "what a graph copies from the host"})
		if err != nil {
			return err
		}
		g.host = b.(*pinnedBuffer)
		clear(g.host.Host())
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer func() { d.leave() }()
	api := d.api.(cu.Graphs)
	marker, _ := d.api.(cu.GraphMarker)
	var err error
	if g.graph, err = api.GraphCreate(); err != nil {
		return d.fault("", err)
	}
	// The context of a node's device must be current when the node is created and its kernel is
	// loaded.
	change := func(to *Device) error {
		if to == d {
			return nil
		}
		if err := to.enter(); err != nil {
			return err
		}
		d.leave()
		d = to
		return nil
	}
	// for each recorded node, the graph's nodes on which its successors depend
	nodes := make([][]cu.GraphNode, len(list))
	var host []byte
	if g.host != nil {
		host = g.host.Host()
	}
	constant, fed := 0, 0
	for i := range list {
		w := &list[i]
		after := dependencies(nodes, w.deps)
		if err := change(g.r.lanes[w.lane].s.dev); err != nil {
			return err
		}
		var n cu.GraphNode
		name := ""
		switch w.kind {
		case recordedLaunch:
			for _, l := range w.launches {
				k := d.form(l.Kernel)
				name = k.Name
				fn, err := d.function(k)
				if err != nil && w.joined {
					err = &mergeError{err}
				}
				if err != nil {
					return err
				}
				n, err = api.GraphAddKernelNode(g.graph, after, cu.GraphKernel{Func: fn, Grid: cu.Dim3{X: l.Grid[0], Y: l.Grid[1], Z: l.Grid[2]},
					Block: cu.Dim3{X: k.Block[0], Y: k.Block[1], Z: k.Block[2]}, Shared: uint32(k.DynShared), Params: l.Params})
				if err != nil {
					return d.fault(name, err)
				}
				after = []cu.GraphNode{n}
			}
		case recordedProduct:
			name = productName
			n, err = d.captured(g.graph, after, w.product)
		case recordedMove:
			n, err = api.GraphAddCopyNode(g.graph, after, cu.GraphCopy{Src: cu.DevicePtr(w.src), Dst: cu.DevicePtr(w.dst), N: w.n}, d.ctx)
		case recordedPeer:
			n, err = api.GraphAddCopyNode(g.graph, after, cu.GraphCopy{Src: cu.DevicePtr(w.src), Dst: cu.DevicePtr(w.dst), N: w.n, Peer: true}, d.ctx)
			g.sent = append(g.sent, peerCopy{w.link, w.n})
		case recordedConstant:
			copy(host[constant:], w.bytes)
			n, err = api.GraphAddCopyNode(g.graph, after, cu.GraphCopy{SrcHost: unsafe.Pointer(&host[constant]), Dst: cu.DevicePtr(w.dst), N: w.n}, d.ctx)
			constant += aligned(len(w.bytes))
		case recordedHost:
			n, err = api.GraphAddCopyNode(g.graph, after, cu.GraphCopy{SrcHost: w.host, Dst: cu.DevicePtr(w.dst), N: w.n}, d.ctx)
		case recordedSave:
			n, err = api.GraphAddCopyNode(g.graph, after, cu.GraphCopy{Src: cu.DevicePtr(w.src), DstHost: w.host, N: w.n}, d.ctx)
		case recordedFeed:
			f := feed{ctx: d.ctx, to: cu.DevicePtr(w.dst), at: fed, n: int(w.n)}
			f.node, err = api.GraphAddCopyNode(g.graph, after, g.copyOf(f, 0), d.ctx)
			n = f.node
			g.feed = append(g.feed, f)
			fed += aligned(f.n)
		case recordedBlock, recordedFreed, recordedTakeover:
			if marker == nil {
				nodes[i] = after
				continue
			}
			n, err = marker.GraphAddBlockNode(g.graph, after, cu.DevicePtr(w.dst), w.size, w.n, w.label, blockMarks[w.kind])
		}
		if err != nil {
			return d.fault(name, err)
		}
		nodes[i] = []cu.GraphNode{n}
	}
	g.ops = operations(list)
	if err := change(g.r.d); err != nil {
		return err
	}
	g.exec, err = api.GraphInstantiate(g.graph)
	return d.fault("", err)
}

var blockMarks = map[recordedKind]cu.BlockMark{recordedBlock: cu.BlockBegins, recordedFreed: cu.BlockEnds, recordedTakeover: cu.BlockTakesOver}

// dependencies returns the graph's nodes on which a successor of the given recorded nodes depends.
func dependencies(nodes [][]cu.GraphNode, pieces []int) []cu.GraphNode {
	if len(pieces) == 1 {
		return nodes[pieces[0]]
	}
	var all []cu.GraphNode
	for _, p := range pieces {
		for _, n := range nodes[p] {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	return all
}

// place returns the host memory of the feed f in a turn.
func (g *replayer) place(f feed, turn int) []byte {
	return g.host.Host()[g.offset+turn*g.stride+f.at:][:f.n:f.n]
}

func (g *replayer) copyOf(f feed, turn int) cu.GraphCopy {
	return cu.GraphCopy{SrcHost: unsafe.Pointer(&g.place(f, turn)[0]), Dst: f.to, N: uint64(f.n)}
}

// Operations returns the number of kernels, copies and fills in the graph.
func (g *replayer) Operations() int { return g.ops }

// Recorded returns the number of kernels, copies and fills that were recorded.
func (g *replayer) Recorded() int { return g.whole }

// Unshortened returns the reason why the graph has all recorded operations, or "" if it has fewer.
func (g *replayer) Unshortened() string { return g.why }

// Replay launches the graph. Before that, it calls fill to write the data of each feed.
func (g *replayer) Replay(fill func(feed int, to []byte)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, s := g.r.d, g.r.s
	if g.done {
		return &device.RecordError{Device: d.name, Op: "replay", Why: "the graph is closed"}
	}
	for _, s := range g.r.streams() {
		if f := s.dev.dead.Load(); f != nil {
			return f
		}
	}
	turn := g.turn
	if e := g.busy[turn]; e != nil {
		g.busy[turn] = nil
		err := e.Wait()
		e.Release()
		if err != nil {
			return err
		}
	}
	for i, f := range g.feed {
		fill(i, g.place(f, turn))
	}
	var err error
	if t := device.Tracing(); t != nil {
		err = d.replayAs(t, s, g.ops, func() error { return g.start(turn) })
	} else {
		err = g.start(turn)
	}
	if err != nil {
		return err
	}
	d.count.launches.Add(1)
	for _, c := range g.sent {
		c.link.count(c.size)
	}
	if len(g.feed) > 0 {
		e, err := s.Record()
		if err != nil {
			return err
		}
		g.busy[turn] = e
		g.turn = (turn + 1) % turns
	}
	if d.p.sync {
		return g.synchronize()
	}
	return nil
}

// synchronize waits for the replays on all devices, and returns the first error.
func (g *replayer) synchronize() error {
	var first error
	for _, s := range g.r.streams() {
		if err := s.Synchronize(); first == nil {
			first = err
		}
	}
	return first
}

// start launches the graph. On every participating device, the graph runs after all work that is
// already queued, and before all later work.
func (g *replayer) start(turn int) error {
	d, s := g.r.d, g.r.s
	for _, o := range g.r.others {
		if err := s.WaitStream(o); err != nil {
			return err
		}
	}
	if err := g.launch(turn); err != nil {
		if f := (*device.Fault)(nil); errors.As(err, &f) {
			return f // a device of the graph had failed before the launch
		}
		for _, o := range g.r.others { // the fault may belong to another device of the graph
			if f := o.dev.failed(); f != nil {
				return f
			}
		}
		return d.fault("a graph", err)
	}
	for _, o := range g.r.others {
		if err := o.WaitStream(s); err != nil {
			return err
		}
	}
	return nil
}

// launch launches the graph. The error is the driver's.
func (g *replayer) launch(turn int) error {
	d := g.r.d
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	api := d.api.(cu.Graphs)
	for _, f := range g.feed {
		if err := api.GraphExecCopyNodeSetParams(g.exec, f.node, g.copyOf(f, turn), f.ctx); err != nil {
			return err
		}
	}
	return api.GraphLaunch(g.exec, g.r.s.handle)
}

// Close waits for the replays and releases the graph, its memory and its events. If the work of a
// replay has failed, it returns the error.
func (g *replayer) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return nil
	}
	g.done = true
	err := g.synchronize()
	g.destroy()
	g.r.retire()
	return err
}

// destroy releases the driver's objects and the host memory.
func (g *replayer) destroy() {
	d := g.r.d
	for i, e := range g.busy {
		if e != nil {
			e.Release()
			g.busy[i] = nil
		}
	}
	if g.host != nil {
		g.host.Free()
	}
	if d.enter() != nil {
		return // the context is lost, and with it the graph
	}
	defer d.leave()
	api := d.api.(cu.Graphs)
	if g.exec != 0 {
		// d.fault stores a sticky fault in the device. Other errors are ignored.
		_ = d.fault("", api.GraphExecDestroy(g.exec))
	}
	if g.graph != 0 {
		_ = d.fault("", api.GraphDestroy(g.graph))
	}
	g.exec, g.graph = 0, 0
}
