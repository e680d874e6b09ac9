package profile

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// span is a part of the work, recorded.
type span struct {
	id         device.SpanID
	kind       device.SpanKind
	name       string
	g          *gstate
	parent     *span
	start, end time.Duration // end is 0 while it is open
	shapes     []shape.Dims
	node       uint64 // of a gradient: the op's
	recorded   uint64 // of an op: its node in the graph
	owner      any
	loose      bool // it may have ended on another goroutine, and in any order
	pcs        []uintptr

	self, total sums  // known when the recording is over
	inner       *span // the layer's call that it belongs to
	outer       *span // of a layer's call: the one that it lies in
	again       bool  // it lies in a gradient, with no layer's call between: a segment that is computed again
}

// kernel is a primitive, recorded.
type kernel struct {
	device.KernelEvent
	in   *span
	g    *gstate
	runs []interval // of its launches on the device

	stream uint64
}

// interval is a time on the device.
type interval struct {
	start, end time.Duration
	ok         bool
}

// transfer is a copy, recorded.
type transfer struct {
	device.CopyEvent
	in  *span
	g   *gstate
	pcs []uintptr
	run interval

	stream uint64
}

// wait is a wait of the host, recorded.
type wait struct {
	device.SyncEvent
	in  *span
	g   *gstate
	pcs []uintptr
}

// allocation is memory handed out or taken back.
type allocation struct {
	device.MemoryEvent
	in *span
	g  *gstate
	at time.Duration
}

// gstate is what a goroutine has done. Its lock is the goroutine's own but for the end, and for spans that another goroutine closes.
type gstate struct {
	number int
	mu     sync.Mutex
	stack  []*span // open
	spans  []*span
	slab   []span // memory of the next spans

	kernels []*kernel
	copies  []*transfer
	waits   []*wait
	memory  []allocation
}

// collector is the tracer of one cycle.
type collector struct {
	wants  device.TraceWants
	stacks bool
	began  time.Duration
	ended  time.Duration

	states sync.Map // uintptr to *gstate
	mu     sync.Mutex
	all    []*gstate

	scopes  sync.Map // device.SpanID to *span: named scopes that are open
	closed  atomic.Bool
	room    atomic.Int64 // events that may still be kept
	dropped atomic.Int64
}

var _ device.Tracer = (*collector)(nil)

func newCollector(o *Options) *collector {
	c := &collector{wants: device.TraceWants{Times: o.CUDA, Shapes: o.Shapes, Memory: o.Memory}, stacks: o.Stacks, began: device.Now()}
	c.room.Store(int64(o.MaxEvents))
	return c
}

// state returns the calling goroutine's.
func (c *collector) state() *gstate {
	id := goroutine()
	if g, ok := c.states.Load(id); ok {
		return g.(*gstate)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := &gstate{number: len(c.all)}
	c.all = append(c.all, g)
	c.states.Store(id, g)
	return g
}

// keep reports whether there is room for one more event.
func (c *collector) keep() bool {
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
	if n := len(g.stack); n > 0 {
		return g.stack[n-1]
	}
	return nil
}

// callers returns the stack of whoever called into the library, including it.
func callers(skip int) []uintptr {
	var pc [64]uintptr
	n := runtime.Callers(skip+1, pc[:])
	return append([]uintptr(nil), pc[:n]...)
}

func (c *collector) Wants() device.TraceWants { return c.wants }

func (c *collector) Begin(s device.Span) device.SpanID {
	g := c.state()
	g.mu.Lock()
	top := g.top()
	if s.Kind == device.SpanDirect && top != nil && top.kind == device.SpanOp {
		g.mu.Unlock()
		return 0
	}
	g.mu.Unlock()
	if !c.keep() {
		return 0
	}
	parent := top
	if s.Scope != 0 && (top == nil || top.id < s.Scope) {
		if v, ok := c.scopes.Load(s.Scope); ok {
			parent = v.(*span)
		}
	}
	var pcs []uintptr
	if c.stacks {
		pcs = callers(3)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.closed.Load() {
		return 0
	}
	if len(g.slab) == 0 {
		g.slab = make([]span, 64)
	}
	p := &g.slab[0]
	g.slab = g.slab[1:]
	*p = span{id: device.NewSpanID(), kind: s.Kind, name: s.Name, g: g, parent: parent, shapes: s.Shapes, node: s.Node, owner: s.Owner, loose: s.Loose, pcs: pcs, start: device.Now()}
	g.spans = append(g.spans, p)
	if s.Kind == device.SpanScope {
		c.scopes.Store(p.id, p)
	}
	if !s.Loose {
		g.stack = append(g.stack, p)
	}
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
	// A program's own span that another goroutine closes.
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	for _, other := range all {
		if other != g && c.end(other, id, now) {
			return
		}
	}
}

// end closes a span that is open on g. Those opened after it and still open were left, and end with it.
func (c *collector) end(g *gstate, id device.SpanID, now time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.closed.Load() {
		return true
	}
	for i := len(g.stack) - 1; i >= 0; i-- {
		if g.stack[i].id == id {
			for _, p := range g.stack[i:] {
				p.end = now
				if p.kind == device.SpanScope {
					c.scopes.Delete(p.id)
				}
			}
			g.stack = g.stack[:i]
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
	if k.Recorded || !c.keep() { // what is recorded for a graph is told when the graph runs
		return
	}
	g := c.state()
	e := &kernel{KernelEvent: k, g: g, stream: numberOf(k.Stream)}
	e.Stream = nil // a stream is used again when nobody refers to it any more
	c.add(g, func() { e.in, g.kernels = g.top(), append(g.kernels, e) })
}

func (c *collector) Copy(e device.CopyEvent) {
	if e.Recorded || !c.keep() {
		return
	}
	g := c.state()
	t := &transfer{CopyEvent: e, g: g, pcs: callers(2), stream: numberOf(e.Stream)}
	t.Stream = nil
	c.add(g, func() { t.in, g.copies = g.top(), append(g.copies, t) })
}

func (c *collector) Sync(e device.SyncEvent) {
	if !c.keep() {
		return
	}
	g := c.state()
	w := &wait{SyncEvent: e, g: g, pcs: callers(2)}
	w.Stream = nil
	c.add(g, func() { w.in, g.waits = g.top(), append(g.waits, w) })
}

func (c *collector) Memory(e device.MemoryEvent) {
	if !c.keep() {
		return
	}
	e.Origin.Where = nil // it would keep scopes
	g := c.state()
	now := device.Now()
	c.add(g, func() { g.memory = append(g.memory, allocation{e, g.top(), g, now}) })
}

// add changes what g has done, unless the collector is out of service.
func (c *collector) add(g *gstate, f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.closed.Load() {
		f()
	}
}

// finish takes the collector out of service and returns what goroutines have done: what comes later, of calls that are under way, is not
// kept. Spans that are open end now.
func (c *collector) finish() []*gstate {
	c.closed.Store(true)
	c.ended = device.Now()
	c.mu.Lock()
	all := c.all
	c.mu.Unlock()
	for _, g := range all {
		g.mu.Lock()
		for _, p := range g.spans {
			if p.end == 0 {
				p.end = c.ended
			}
		}
		g.stack = nil
		g.mu.Unlock()
	}
	return all
}
