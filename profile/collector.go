package profile

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/shape"
)

// span is a recorded span of the program's work, such as an op or a call of a layer.
type span struct {
	id         device.SpanID
	name       string
	g          *gstate
	parent     *span
	start, end time.Duration // end is 0 while the span is open
	shapes     []shape.Dims
	node       uint64 // for a gradient, the number of the node that its op added to the graph
	recorded   uint64 // for an op, the number of the node that it added to the graph
	owner      any
	stack      *stack
	// callers is the stack of the goroutine that requested the work; nil if that is the goroutine
	// of the span, or if the stack is unknown
	callers *stack
	kind    device.SpanKind
	loose   bool // the span may end on another goroutine and in any order

	*place // values that are computed when the recording is over
}

// place holds the values of a span that are computed when the recording is over.
type place struct {
	self, total sums
	inner       *span // call of the innermost layer that contains the span
	outer       *span // for a call of a layer, the call of the layer around it
	// again is true if the span is inside the gradient of an op, with no call of a layer in
	// between. If such a span is the call of a layer, the call recomputes forward work.
	again bool
}

// kernel is a recorded primitive and, on a GPU, its launches.
type kernel struct {
	in         *span
	g          *gstate
	device     device.Device
	primitive  string
	work       device.Work
	start, end time.Duration
	gpu        *launched // values that exist only for a GPU; nil for the CPU
	half       bool      // the result has a 16-bit type
	whole      bool      // the result has an integer type
}

// launched holds the values of a kernel that exist only for a GPU.
type launched struct {
	stream   uint64
	launches []device.LaunchEvent
	runs     []interval // times of the kernel's launches on the device
}

// interval is a range of time on the device.
type interval struct {
	start, end time.Duration
	ok         bool
}

type transfer struct {
	device.CopyEvent
	in    *span
	g     *gstate
	stack *stack
	run   interval

	stream uint64
}

type wait struct {
	device.SyncEvent
	in    *span
	g     *gstate
	stack *stack
}

// allocation is a recorded allocation or free.
type allocation struct {
	in     *span
	g      *gstate
	device device.Device
	addr   uintptr
	at     time.Duration
	bytes  int // size in bytes, negative for a free
	inUse  int // memory in use afterwards; -1 if unknown
	pinned bool
}

// list is a growing list whose entries never move.
type list[T any] struct {
	last []T
	full [][]T
}

// listPart is the number of entries that a list allocates at once. It is small, so that memory
// which was just zeroed is still in the cache when it is used.
const listPart = 32

// add appends a new entry and returns it.
func (l *list[T]) add() *T {
	if len(l.last) == cap(l.last) {
		if l.last != nil {
			l.full = append(l.full, l.last)
		}
		l.last = make([]T, 0, listPart)
	}
	l.last = l.last[:len(l.last)+1]
	return &l.last[len(l.last)-1]
}

func (l *list[T]) len() int { return listPart*len(l.full) + len(l.last) }

// entries iterates over the entries from index n to the end.
func (l *list[T]) entries(n int) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for n < l.len() {
			part := l.last
			if n/listPart < len(l.full) {
				part = l.full[n/listPart]
			}
			for i := n % listPart; i < len(part); i++ {
				if !yield(&part[i]) {
					return
				}
				n++
			}
		}
	}
}

// gstate is the recorded work of one goroutine. Usually only that goroutine takes the lock. Other
// goroutines take it at the end of the recording, or to close a span of that goroutine.
type gstate struct {
	id     uintptr
	mu     sync.Mutex
	number int32
	open   []*span

	kernels list[kernel]
	memory  list[allocation]
	spans   list[span]
	copies  list[transfer]
	waits   list[wait]
	stacks  stacks
}

// collector is the tracer for one cycle of a schedule.
type collector struct {
	wants  device.TraceWants
	stacks bool
	closed atomic.Bool
	states atomic.Pointer[states]
	room   atomic.Int64 // number of events that may still be recorded

	dropped atomic.Int64
	mu      sync.Mutex
	all     []*gstate
	scopes  sync.Map // open named scopes: maps device.SpanID to *span
	began   time.Duration
	ended   time.Duration
}

// states is a hash table of gstates by goroutine id, with linear probing. It always has at least
// one free entry.
type states []atomic.Pointer[gstate]

func (s states) find(id uintptr) (g *gstate, at int) {
	mask := len(s) - 1
	for at = int(uint64(id)*0x9e3779b97f4a7c15>>40) & mask; ; at = (at + 1) & mask {
		if g = s[at].Load(); g == nil || g.id == id {
			return g, at
		}
	}
}

var _ device.Tracer = (*collector)(nil)

func newCollector(o *Options) *collector {
	c := &collector{wants: device.TraceWants{Times: o.CUDA, Shapes: o.Shapes, Memory: o.Memory}, stacks: o.Stacks, began: device.Now()}
	c.room.Store(int64(o.MaxEvents))
	first := make(states, 64)
	c.states.Store(&first)
	return c
}

// state returns the gstate of the calling goroutine.
func (c *collector) state() *gstate {
	id := callsite.G()
	if g, _ := c.states.Load().find(id); g != nil {
		return g
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := *c.states.Load()
	if 2*len(c.all) >= len(known) {
		grown := make(states, 4*len(known))
		for _, g := range c.all {
			_, at := grown.find(g.id)
			grown[at].Store(g)
		}
		known = grown
		c.states.Store(&grown)
	}
	g := &gstate{id: id, number: int32(len(c.all))}
	c.all = append(c.all, g)
	_, at := known.find(id)
	known[at].Store(g)
	return g
}

// hasRoom reports whether another event may be recorded. If not, it counts the event as dropped.
func (c *collector) hasRoom() bool {
	if c.closed.Load() {
		return false
	}
	if c.room.Add(-1) < 0 {
		c.dropped.Add(1)
		return false
	}
	return true
}

func (g *gstate) top() *span {
	if n := len(g.open); n > 0 {
		return g.open[n-1]
	}
	return nil
}

func (c *collector) Wants() device.TraceWants { return c.wants }

func (c *collector) Begin(s device.Span) device.SpanID {
	g := c.state()
	g.mu.Lock()
	defer g.mu.Unlock()
	top := g.top()
	if s.Kind == device.SpanDirect && top != nil && top.kind == device.SpanOp || !c.hasRoom() {
		return 0
	}
	parent := top
	if s.Scope != 0 && (top == nil || top.id < s.Scope) {
		if v, ok := c.scopes.Load(s.Scope); ok {
			parent = v.(*span)
		}
	}
	p := g.spans.add()
	p.id, p.kind, p.name, p.g, p.parent, p.shapes = device.NewSpanID(), s.Kind, s.Name, g, parent, s.Shapes
	p.node, p.owner, p.loose = s.Node, s.Owner, s.Loose
	if c.stacks {
		p.stack = g.stacks.callerStack()
	}
	if s.Callers != nil {
		p.callers = g.stacks.lookup(s.Callers)
	}
	if s.Kind == device.SpanScope {
		c.scopes.Store(p.id, p)
	}
	if !s.Loose {
		g.open = append(g.open, p)
	}
	p.start = device.Now()
	return p.id
}

func (c *collector) End(id device.SpanID) {
	if id == 0 || c.closed.Load() {
		return
	}
	now := device.Now()
	g := c.state()
	if c.end(g, id, now) {
		return
	}
	if v, ok := c.scopes.LoadAndDelete(id); ok {
		p := v.(*span)
		p.g.mu.Lock()
		defer p.g.mu.Unlock()
		if !c.closed.Load() {
			p.end = now
		}
		return
	}
	// The span was opened on another goroutine, so search the other goroutines.
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	for _, other := range all {
		if other != g && c.end(other, id, now) {
			return
		}
	}
}

// end closes the span with the given id if it is open on g. It also closes spans that were opened
// later inside it and never closed.
func (c *collector) end(g *gstate, id device.SpanID, now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.closed.Load() {
		return true
	}
	for i := len(g.open) - 1; i >= 0; i-- {
		if g.open[i].id == id {
			for _, p := range g.open[i:] {
				p.end = now
				if p.kind == device.SpanScope {
					c.scopes.Delete(p.id)
				}
			}
			g.open = g.open[:i]
			return true
		}
	}
	return false
}

func (c *collector) Recorded(node uint64) {
	g := c.state()
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.top(); p != nil && p.kind == device.SpanOp && !c.closed.Load() {
		p.recorded = node
	}
}

func numberOf(s device.Stream) uint64 {
	if s == nil {
		return 0
	}
	return s.ID()
}

func (c *collector) Kernel(k device.KernelEvent) {
	// the primitive was recorded in a graph and has not run; replays of the graph are reported
	if k.Recorded {
		return
	}
	g := c.enter()
	if g == nil {
		return
	}
	defer g.mu.Unlock()
	e := g.kernels.add()
	e.in, e.g, e.device, e.primitive, e.work, e.start, e.end, e.half, e.whole = g.top(), g, k.Device, k.Primitive, k.Work, k.Start, k.End, k.Type.IsHalf(), k.Type.IsInteger()
	// Keep only the number of the stream: while a reference to the stream exists, the driver cannot
	// reuse it.
	if len(k.Launches) > 0 {
		e.gpu = &launched{stream: numberOf(k.Stream), launches: k.Launches}
	}
}

func (c *collector) Copy(e device.CopyEvent) {
	if e.Recorded || e.Kind == device.HostToHost {
		return
	}
	g := c.enter()
	if g == nil {
		return
	}
	defer g.mu.Unlock()
	t := g.copies.add()
	*t = transfer{CopyEvent: e, in: g.top(), g: g, stack: g.stacks.callerStack(), stream: numberOf(e.Stream)}
	t.Stream = nil
}

func (c *collector) Sync(e device.SyncEvent) {
	g := c.enter()
	if g == nil {
		return
	}
	defer g.mu.Unlock()
	w := g.waits.add()
	*w = wait{SyncEvent: e, in: g.top(), g: g, stack: g.stacks.callerStack()}
	w.Stream = nil
}

func (c *collector) Memory(e device.MemoryEvent) {
	g := c.enter()
	if g == nil {
		return
	}
	defer g.mu.Unlock()
	if e.Freed {
		e.Bytes = -e.Bytes
	}
	a := g.memory.add()
	a.in, a.g, a.device, a.addr, a.at, a.bytes, a.inUse, a.pinned = g.top(), g, e.Device, e.Addr, device.Now(), e.Bytes, e.InUse, e.Pinned
}

// enter returns the calling goroutine's state, locked, for another event. It returns nil if no more
// events may be recorded.
func (c *collector) enter() *gstate {
	g := c.state()
	g.mu.Lock()
	if !c.hasRoom() {
		g.mu.Unlock()
		return nil
	}
	return g
}

// finish stops the collector and returns the recorded work of all goroutines. Calls that are in
// progress record no further events. Open spans end at the time of finish.
func (c *collector) finish() []*gstate {
	c.closed.Store(true)
	c.ended = device.Now()
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	for _, g := range all {
		g.mu.Lock()
		for p := range g.spans.entries(0) {
			if p.end == 0 {
				p.end = c.ended
			}
		}
		g.open = nil
		g.mu.Unlock()
	}
	return all
}
