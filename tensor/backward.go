package tensor

import (
	"container/heap"
	"fmt"
)

// A GradOption changes how gradients are computed.
type GradOption func(*gradOptions)

type gradOptions struct {
	retain, create bool
	seed           *Tensor
	unused         bool
}

// RetainGraph keeps what the graph saved, so that it can be differentiated again.
func RetainGraph() GradOption { return func(o *gradOptions) { o.retain = true } }

// CreateGraph records the computation of the gradients, so that they can be differentiated. It implies [RetainGraph].
func CreateGraph() GradOption { return func(o *gradOptions) { o.retain, o.create = true, true } }

// GradOutput gives the gradient of the result that differentiation starts from, instead of 1 for a scalar.
func GradOutput(g *Tensor) GradOption { return func(o *gradOptions) { o.seed = g } }

// AllowUnused lets [Gradients] return nil for inputs that the output does not depend on.
func AllowUnused() GradOption { return func(o *gradOptions) { o.unused = true } }

// Backward adds the gradient of x, a scalar unless [GradOutput] is given, to every leaf that it was computed from, and frees
// what the graph saved as it passes. A leaf's gradient lives in the leaf's own scope.
func (x *Tensor) Backward(opts ...GradOption) {
	var o gradOptions
	for _, f := range opts {
		f(&o)
	}
	differentiate("backward", x, nil, o)
}

// Gradients returns the gradient of y with respect to each of inputs (leaves or intermediate results), in y's scope, and
// adds to no leaf.
func Gradients(y *Tensor, inputs []*Tensor, opts ...GradOption) []*Tensor {
	var o gradOptions
	for _, f := range opts {
		f(&o)
	}
	return differentiate("grad", y, inputs, o)
}

// queue orders nodes by descending sequence.
type queue []*node

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].seq > q[j].seq }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(v any)        { *q = append(*q, v.(*node)) }
func (q *queue) Pop() any {
	old := *q
	n := old[len(old)-1]
	*q = old[:len(old)-1]
	return n
}

// engine is one run of differentiation. There is no recursion, so a graph may be as deep as memory allows.
type engine struct {
	op      string
	o       gradOptions
	scope   *Scope // of gradients on their way
	pending map[*node]*Tensor
	queue   queue
	capture map[edge]int // inputs whose gradients are returned; one that is given twice is captured once
	found   []*Tensor
}

func differentiate(op string, y *Tensor, inputs []*Tensor, o gradOptions) []*Tensor {
	y.use(op)
	if !y.needsGrad {
		e := newError(op, ErrGrad, []*Tensor{y}, "the tensor does not depend on anything that requires a gradient")
		switch {
		case y.scope.modes.noGrad:
			e.hint("it was computed in a NoGrad scope")
		case !y.dtype.IsFloat():
			e.hint("only floating point results have gradients, this is %v", y.dtype)
		default:
			e.hint("call RequiresGrad on the leaves first; Detach and NoGrad cut the graph")
		}
		panic(e)
	}
	e := &engine{op: op, o: o, scope: y.scope.child(), pending: map[*node]*Tensor{}}
	defer e.scope.recycle()
	e.scope.modes.noGrad = !o.create
	g := o.seed
	if g == nil {
		if y.Size() != 1 {
			e := newError(op, ErrGrad, []*Tensor{y}, fmt.Sprintf("a gradient is implicit only for a scalar, this has shape %v", y.Shape()))
			panic(e.hint("reduce it with Sum or Mean, or pass GradOutput"))
		}
		g = e.scope.On(y.st.dev).Typed(y.dtype).Full(1, y.Shape().Slice()...)
	} else {
		g.use(op)
		if g.Shape() != y.Shape() {
			fail(op, ErrShape, []*Tensor{y, g}, "GradOutput has shape %v, the tensor %v", g.Shape(), y.Shape())
		}
		sameDevice(op, []*Tensor{y, g})
		if g.dtype != y.dtype {
			e := newError(op, ErrType, []*Tensor{y, g}, fmt.Sprintf("GradOutput is %v, the tensor %v", g.dtype, y.dtype))
			panic(e.hint("Cast it"))
		}
		if g.scope.encloses(y.scope) {
			g = g.In(e.scope)
		} else { // lent: it stays its owner's
			youngest(op, []*Tensor{y, g})
			g = g.handleWithGraph(e.scope)
		}
	}
	if inputs != nil {
		e.capture = map[edge]int{}
		e.found = make([]*Tensor, len(inputs))
		for i, in := range inputs {
			in.use(op)
			if !in.needsGrad {
				fail(op, ErrGrad, []*Tensor{in}, "input %d does not require a gradient", i)
			}
			if _, twice := e.capture[edgeOf(in)]; !twice {
				e.capture[edgeOf(in)] = i
			}
		}
	}
	e.send(edgeOf(y), g)
	for len(e.queue) > 0 {
		e.step(heap.Pop(&e.queue).(*node))
	}
	for i, in := range inputs {
		if k := e.capture[edgeOf(in)]; k != i && e.found[k] != nil {
			e.found[i] = e.found[k].handleWithGraph(e.scope)
		}
	}
	for i, t := range e.found {
		if t == nil && !o.unused {
			fail(op, ErrGrad, []*Tensor{inputs[i]}, "the result does not depend on input %d (AllowUnused makes its gradient nil)", i)
		}
	}
	var keep []*Tensor
	for _, t := range e.found {
		if t != nil {
			keep = append(keep, t)
		}
	}
	e.scope.close(keep, false)
	return e.found
}

// bring returns a handle of g that belongs to the engine's scope.
func (e *engine) bring(g *Tensor) *Tensor {
	switch {
	case g.scope == e.scope:
		return g
	case g.scope.encloses(e.scope):
		return g.In(e.scope)
	}
	e.scope.adopt(g) // from the VJP's scope, which is about to close
	return g
}

// step computes the gradients of one node's operands.
func (e *engine) step(n *node) {
	g := e.pending[n]
	delete(e.pending, n)
	if n.dropped.Load() && len(n.inputs) > 0 {
		msg := "the graph was freed by an earlier Backward"
		hint := "pass RetainGraph to the first one"
		if n.scope != nil && n.scope != root && n.scope.isClosed() {
			msg, hint = fmt.Sprintf("the graph belongs to %v", n.scope), "keep the result with Close(x)"
		}
		err := newError(e.op, ErrGrad, nil, fmt.Sprintf("cannot go back through %s: %s", n.op, msg)).hint("%s", hint)
		err.Operands = []Operand{{Shape: n.shape, Type: n.dtype, Device: n.dev.Name(), Origin: n.origin()}}
		panic(err)
	}
	vs := e.scope.child()
	defer vs.recycle()
	vs.modes.stream = n.stream
	c := &Context{scope: vs, needs: n.needs, n: n}
	gi := g.In(vs)
	grads := n.f.VJP(c, gi)
	if len(grads) != len(n.inputs) {
		fail(e.op, ErrGrad, nil, "%s has %d operands, its VJP returned %d gradients", n.op, len(n.inputs), len(grads))
	}
	for i, d := range grads {
		to := n.inputs[i]
		if d == nil || to == (edge{}) {
			continue
		}
		d = e.checked(n, i, d)
		if d == gi || d.scope != vs && d.scope != e.scope {
			d = d.handleWithGraph(vs)
		}
		for _, other := range grads[i+1:] {
			if other == d {
				d = d.handleWithGraph(vs) // one tensor for two operands: each gets a handle
				break
			}
		}
		e.send(to, e.bring(d))
	}
	g.Free()
	if !e.o.retain {
		n.drop()
	}
}

// checked returns d, the gradient that a VJP gave for operand i, in the operand's type; it has its shape and device.
func (e *engine) checked(n *node, i int, d *Tensor) *Tensor {
	want := n.operands[i]
	if d.freed.Load() {
		fail(e.op, ErrFreed, []*Tensor{d}, "the VJP of %s returned a freed tensor for operand %d", n.op, i)
	}
	if d.layout.Shape != want.shape || d.st.dev != want.dev {
		fail(e.op, ErrGrad, []*Tensor{d}, "the VJP of %s returned a gradient of shape %v on %s for operand %d, of shape %v on %s",
			n.op, d.layout.Shape, d.st.dev.Name(), i, want.shape, want.dev.Name())
	}
	if d.dtype == want.dtype {
		return d
	}
	if !d.dtype.IsFloat() {
		fail(e.op, ErrType, []*Tensor{d}, "the VJP of %s returned a gradient of type %v for operand %d, of type %v", n.op, d.dtype, i, want.dtype)
	}
	return d.Cast(want.dtype)
}

// handleWithGraph makes another handle of x in s that keeps its place in the graph.
func (x *Tensor) handleWithGraph(s *Scope) *Tensor {
	y := x.handle(x.op, s, x.layout)
	y.needsGrad, y.node = x.needsGrad, x.node
	if x.node == nil && x.needsGrad {
		y.leaf = x.base()
	}
	return y
}

// exclusive reports whether g's memory is nobody else's, so that it may be written or given away.
func exclusive(g *Tensor) bool {
	return g.st.refs.Load() == 1 && g.layout.Contiguous() && g.node == nil
}

// send adds g to what goes to an edge. g belongs to the engine's scope.
func (e *engine) send(to edge, g *Tensor) {
	if i, ok := e.capture[to]; ok {
		own := g
		if to.node != nil {
			own = g.handleWithGraph(e.scope) // g itself goes on
		}
		if e.found[i] == nil {
			e.found[i] = own
		} else {
			e.found[i] = e.sum(e.found[i], own)
		}
		if to.node == nil {
			return
		}
	}
	if n := to.node; n != nil {
		if old, ok := e.pending[n]; ok {
			e.pending[n] = e.sum(old, g)
			return
		}
		e.pending[n] = g
		heap.Push(&e.queue, n)
		return
	}
	if e.capture == nil {
		e.accumulate(to.leaf, g)
	}
}

// sum returns a + b, in a's memory if it is free for that.
func (e *engine) sum(a, b *Tensor) *Tensor {
	if !e.o.create && exclusive(a) && a.dtype == b.dtype {
		a.addInto(b)
		b.Free()
		return a
	}
	y := a.Add(b)
	if !e.o.create {
		a.Free()
		b.Free()
	}
	return y
}

// accumulate adds g to a leaf's gradient, which lives in the leaf's scope. Several goroutines may reach one leaf.
func (e *engine) accumulate(leaf *Tensor, g *Tensor) {
	if leaf.freed.Load() {
		return // nobody can read it any more
	}
	leaf.gradMu.Lock()
	defer leaf.gradMu.Unlock()
	if g.st.dev != leaf.st.dev {
		fail(e.op, ErrDevice, []*Tensor{leaf, g}, "the leaf is on %s, its gradient on %s: it was moved after it was used", leaf.st.dev.Name(), g.st.dev.Name())
	}
	had := leaf.grad != nil && !leaf.grad.freed.Load()
	switch {
	case had && !e.o.create:
		leaf.grad.addInto(g)
		leaf.grad.st.version.Add(1) // a graph may have saved it
		g.Free()
	case had:
		sum := leaf.grad.In(e.scope).Add(g)
		leaf.scope.adopt(sum)
		leaf.grad = sum
	case exclusive(g) || e.o.create && g.st.refs.Load() == 1 && g.layout.Contiguous():
		leaf.scope.adopt(g)
		leaf.grad = g
	default:
		c := g.Clone()
		leaf.scope.adopt(c)
		leaf.grad = c
		if !e.o.create {
			g.Free()
		}
	}
	leaf.grad.op, leaf.grad.made = "grad", leaf.made
}

// adopt makes s, an enclosing scope, the owner of x and of the graph it needs.
func (s *Scope) adopt(x *Tensor) {
	for x.scope != s {
		from := x.scope
		if !s.encloses(from) {
			// A leaf in a sibling scope: only the value goes there.
			s.own(x, true)
			x.node = nil
			return
		}
		from.lend(x)
	}
}

// lend moves x to the parent, as Close would.
func (s *Scope) lend(x *Tensor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hand([]*Tensor{x})
}

// addInto adds g to x in place, without a graph and without counting a version: x is a gradient.
func (x *Tensor) addInto(g *Tensor) {
	mapInto("add", addProgram(x.dtype, g.dtype), x, []*Tensor{x, g}, nil)
}
