package tensor

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Recomputation works like torch.utils.checkpoint with use_reentrant=False. The graph of a segment
// is recorded as usual, so gradients also reach leaves that the segment captured. But the graph
// keeps only the number of each value that the ops save, not the value. When a run of Backward asks
// for the first of these values, the segment is computed again, in a scope with a collector among
// its modes. The collector finds the values by their number. The computed values belong to this
// run. The run releases each value when it passes the node that needs it, and all values when it
// ends. A second run, or a run that records a graph, computes the segment again. Segments may be
// nested: the operands of an inner segment are values that the outer segment saved.

// A segment is one call of a checkpointed function.
type segment struct {
	f             func(x []*Tensor) []*Tensor
	modes         modes
	tape          *tape
	in            *node  // node that saved the operands
	needs         []bool // whether each operand requires a gradient
	operandMemory []*storage
	// lasting scope in which this segment was called; for a nested segment, the lasting scope in
	// which the outermost segment was called
	outer *Scope
	// line at which this segment was called
	made *site
	live atomic.Int32

	mu       sync.Mutex
	slots    []slot
	returned bool // true if the forward call has returned
}

// A slot describes one value that an op of the segment saved for its gradient.
type slot struct {
	op       string
	shape    shape.Dims
	dtype    dtype.Type
	dev      device.Device
	released bool // true if the graph no longer needs the value
}

// slotValue is what the graph keeps instead of saved value i of a segment.
type slotValue struct {
	segment *segment
	i       int
}

// Recompute calls f with x and returns its results. It does not keep the values that f's ops save
// for gradients. When the first VJP asks for one of these values, Backward calls f again.
// autograd.Checkpoint is built on Recompute, and its comment says more.
func Recompute(f func(x []*Tensor) []*Tensor, x ...*Tensor) []*Tensor {
	const op = "checkpoint"
	switch {
	case f == nil:
		fail(op, ErrValue, x, "the function is nil")
	case len(x) == 0:
		fail(op, ErrValue, nil, "there are no operands, so there is no scope; pass what the function starts from")
	}
	home := youngest(op, x)
	for _, t := range x {
		t.mustBeCurrent(op)
	}
	s := home.New()
	closed := false
	defer func() {
		if !closed {
			s.abandon()
		}
	}()
	var g *segment
	if !home.modes.noGrad {
		g = newSegment(f, home, x)
		defer g.release()
		s.modes.saver = g
		s.modes.gen = recordDraws(home.modes.gen)
		g.tape = s.modes.gen.tape
		defer g.tape.stop()
		g.modes = s.modes
	}
	in := make([]*Tensor, len(x))
	for i, t := range x {
		in[i] = t.In(s)
	}
	out := f(in)
	keep := make([]*Tensor, len(out))
	for i, y := range out {
		if y == nil {
			fail(op, ErrValue, x, "the function returned nil for result %d", i)
		}
		y.use(op)
		if y.scope != s && !y.scope.encloses(s) {
			fail(op, ErrScope, []*Tensor{y}, "result %d belongs to %v, not to the scope of the operands that the function was given", i, y.scope)
		}
		keep[i] = y
		if y.scope != s { // y belongs to an older scope, so return a new handle
			keep[i] = y.handleWithGraph(home)
		}
	}
	closed = true
	s.Close(keep...)
	if g != nil {
		g.tape.stop()
		g.mu.Lock()
		g.returned = true
		g.mu.Unlock()
	}
	return keep
}

func newSegment(f func(x []*Tensor) []*Tensor, home *Scope, x []*Tensor) *segment {
	g := &segment{f: f, outer: home.lasting(), made: callSite()}
	if around, ok := home.modes.saver.(*segment); ok {
		g.outer = around.outer
	}
	g.live.Store(1)
	n := &node{op: "checkpoint", shape: x[0].layout.Shape, dtype: x[0].dtype, dev: x[0].st.dev, scope: home, made: g.made}
	g.in = n
	for _, t := range x {
		g.needs, g.operandMemory = append(g.needs, t.needsGrad), append(g.operandMemory, t.st)
		n.saved = append(n.saved, home.modes.save(n, t, false))
	}
	n.saves = len(n.saved)
	home.ownNode(n)
	return g
}

// release drops the operands when no value of the segment needs them any more. live counts these
// values.
func (g *segment) release() {
	if g.live.Add(-1) == 0 {
		g.in.drop()
	}
}

// captured reports whether t is a leaf from outside of the segment and all segments around it, such
// as a parameter. Such a leaf stays in memory anyway. So it is saved as usual, and Backward detects
// in-place changes of the leaf.
func (g *segment) captured(t *Tensor) bool {
	if t.node != nil || t.viewed != nil {
		return false
	}
	b := t.base()
	if b.scope == g.outer || !b.scope.encloses(g.outer) {
		return false
	}
	// An operand of the segment is no captured leaf: when the segment is computed again, another
	// leaf stands in for it.
	return !slices.Contains(g.operandMemory, t.st)
}

// lasting returns s, or the nearest enclosing scope that is neither an internal scope nor inside of
// one. The library reuses internal scopes when they have ended.
func (s *Scope) lasting() *Scope {
	out := s
	for c := s; c != nil; c = c.parent {
		if c.internal {
			out = c.parent
		}
	}
	return out
}

// pack stores the number of the value instead of the value.
func (g *segment) pack(n *node, _ *saved, x *Tensor) packed {
	if g.captured(x) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slots = append(g.slots, slot{op: n.op, shape: x.layout.Shape, dtype: x.dtype, dev: x.st.dev})
	g.live.Add(1)
	return slotValue{g, len(g.slots) - 1}
}

func (v slotValue) neededNode() *node { return v.segment.in }
func (v slotValue) storage() *storage { return nil }

func (v slotValue) drop() {
	v.segment.mu.Lock()
	v.segment.slots[v.i].released = true
	v.segment.mu.Unlock()
	v.segment.release()
}

// A recomputation holds the values that one run computed again for a segment. The method pack
// collects them while the segment is computed again.
type recomputation struct {
	segment *segment
	e       *engine
	mu      sync.Mutex
	next    int
	values  []collected
}

// collected is a value, with the version of its memory when it was saved.
type collected struct {
	x       *Tensor // x belongs to the run's scope; it is nil after its use
	version uint32
}

func (v slotValue) unpack(c *Context, s *saved) *Tensor {
	r := c.run.recomputed[v.segment]
	if r == nil {
		r = c.run.recompute(v.segment)
	}
	if v.i >= len(r.values) || r.values[v.i].x == nil {
		panic(differs("the value has been used by this run, or was never saved"))
	}
	x := r.values[v.i]
	if now := x.x.st.version.Load(); now != x.version {
		panic(s.modified(c.n, now, x.version))
	}
	return handleOf(c.n.op, c.scope, x.x.st, x.x.layout, x.x.dtype)
}

func (v slotValue) passed(e *engine) {
	if r := e.recomputed[v.segment]; r != nil && v.i < len(r.values) {
		r.values[v.i].x.Free()
		r.values[v.i].x = nil
	}
}

func (e *engine) recompute(g *segment) *recomputation {
	r := &recomputation{segment: g, e: e}
	if e.recomputed == nil {
		e.recomputed = map[*segment]*recomputation{}
	}
	s := e.scope.child()
	defer s.recycle()
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(*Error); ok {
				if err.Hint != "" {
					err.Hint += "; "
				}
				err.Hint += "it happened when Backward computed the segment again that was checkpointed at " + g.made.String()
			}
			panic(p)
		}
	}()
	s.modes = g.modes
	g.mu.Lock()
	over := g.returned
	g.mu.Unlock()
	gen, end := g.tape.repeat(over)
	defer end()
	s.modes.saver, s.modes.gen, s.modes.recomputing = r, gen, true
	s.opened = &scopeSite{at: g.made, name: "checkpoint"}
	c := &Context{scope: s, n: g.in, run: e}
	if g.in.dropped.Load() {
		panic(e.freed(g.in))
	}
	in := make([]*Tensor, len(g.in.saved))
	for i := range in {
		x := g.in.saved[i].restore(c)
		x.node, x.leaf, x.needsGrad = nil, nil, g.needs[i] // this leaf stands in for the operand
		in[i] = x
	}
	g.f(in)
	g.mu.Lock()
	want := len(g.slots)
	g.mu.Unlock()
	if r.next < want || over && r.next > want {
		panic(differs(fmt.Sprintf("its ops save %d values where they saved %d in forward", r.next, want)))
	}
	e.recomputed[g] = r
	g.in.passed(e)
	return r
}

// pack collects the values in the order in which they are saved.
func (r *recomputation) pack(n *node, _ *saved, x *Tensor) packed {
	if r.segment.captured(x) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.next
	r.next++
	r.segment.mu.Lock()
	if i >= len(r.segment.slots) {
		over := r.segment.returned
		r.segment.mu.Unlock()
		if over {
			panic(differs(fmt.Sprintf("%s saves a value where the segment had saved all %d in forward", n.op, i)))
		}
		return nil
	}
	was := r.segment.slots[i]
	r.segment.mu.Unlock()
	if was.op != n.op || was.shape != x.layout.Shape || was.dtype != x.dtype || was.dev != x.st.dev {
		panic(differs(fmt.Sprintf("value %d that it saves is %v %v on %s, of %s; in forward it was %v %v on %s, of %s",
			i, x.layout.Shape, x.dtype, x.st.dev.Name(), n.op, was.shape, was.dtype, was.dev.Name(), was.op)))
	}
	v := collected{version: x.st.version.Load()}
	if !was.released {
		v.x = handleOf(n.op, r.e.scope, x.st, x.layout, x.dtype)
	}
	r.values = append(r.values, v)
	return nil
}

// differs returns the error for a segment that did not compute the same values when it was called
// again.
func differs(what string) *Error {
	return newError("checkpoint", ErrGrad, nil, "the function does not do the same when it is called again: "+what).
		hint("what it does may depend only on its operands, on parameters, and on the generator of its scope")
}

// Recomputing reports whether an op in s is part of a checkpointed segment that Backward computes
// again. Code that counts calls, such as running statistics, must not count the second call.
func (s *Scope) Recomputing() bool {
	s.markUsed()
	return s.modes.recomputing
}

// Checkpointed reports whether an op in s is part of a checkpointed segment. If so, the values that
// the op saves for its gradient are not kept, and Backward computes the op again.
func (s *Scope) Checkpointed() bool {
	s.markUsed()
	switch s.modes.saver.(type) {
	case *segment, *recomputation:
		return true
	}
	return false
}
