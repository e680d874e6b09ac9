package tensor

import (
	"container/heap"
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Backward computes the gradient of x with respect to every leaf that x was computed from, and adds
// it to the leaf's gradient. x must be a scalar unless [GradOutput] is given. Backward also adds to
// the gradients of results that retain theirs ([Tensor.RetainGrad]). It frees each value that the
// graph saved as soon as the value has been used. A leaf's gradient lives in the leaf's own scope.
func (x *Tensor) Backward(opts ...GradOption) {
	o := optionsOf("backward", opts)
	switch {
	case o.into == nil:
		differentiate("backward", x, nil, o)
		return
	case len(o.into) == 0:
		fail("backward", ErrValue, []*Tensor{x}, "Into names no tensor")
	}
	o.unused = true
	differentiate("backward", x, o.into, o)
}

// Gradients returns the gradient of y with respect to each of inputs, which are leaves or
// intermediate results. The gradients belong to y's scope, and no leaf's gradient changes. Only the
// ops between y and the inputs are differentiated.
func Gradients(y *Tensor, inputs []*Tensor, opts ...GradOption) []*Tensor {
	o := optionsOf("grad", opts)
	if o.into != nil {
		fail("grad", ErrValue, inputs, "Into is an option of Backward; Gradients adds to no tensor")
	}
	if inputs == nil {
		inputs = []*Tensor{}
	}
	return differentiate("grad", y, inputs, o)
}

// Gradient returns the gradient of y with respect to x: [Gradients] of one input.
func Gradient(y, x *Tensor, opts ...GradOption) *Tensor {
	return Gradients(y, []*Tensor{x}, opts...)[0]
}

// engine is one run of differentiation. It does not recurse, so a graph may be as deep as memory
// allows.
type engine struct {
	op         string
	o          gradOptions
	scope      *Scope // scope that owns gradients on their way through the graph
	tasks      map[edge]*task
	queue      queue
	inputs     []*Tensor // tensors whose gradients are wanted; nil means all leaves
	inputEdges []edge    // the edge of each input
	inputGrads []*Tensor
	checks     AnomalyCheck

	// values of checkpointed segments that this run has computed again
	recomputed map[*segment]*recomputation
	watched    watchedRun
}

func differentiate(op string, y *Tensor, inputs []*Tensor, o gradOptions) []*Tensor {
	if modeWatches.n.Load() != 0 {
		defer ignoreOps()()
	}
	starts := append([]start{{y, o.seed}}, o.more...)
	s := y.startScope(op, o.more)
	e := &engine{op: op, o: o, scope: s.child(), tasks: map[edge]*task{}, inputs: inputs}
	defer e.scope.recycle()
	e.scope.modes.noGrad, e.scope.modes.autocast = !o.create, dtype.Invalid
	e.checks, e.scope.modes.anomaly = e.scope.modes.anomaly|o.checks, 0
	for i := range starts {
		starts[i].g = e.seed(starts[i])
	}
	for i, in := range inputs {
		in.use(op)
		in.mustBeCurrent(op)
		if !in.needsGrad {
			in.failWithoutGrad(op, fmt.Sprintf("input %d does not require a gradient", i))
		}
		if o.into != nil {
			in.RetainGrad() // as in torch, an input that is not a leaf keeps its gradient from now on
		}
		e.inputEdges = append(e.inputEdges, edgeOf(in))
		if e.tasks[e.inputEdges[i]] == nil { // an input that is listed twice has one task
			e.tasks[e.inputEdges[i]] = &task{at: e.inputEdges[i], input: i + 1}
		}
	}
	e.inputGrads = make([]*Tensor, len(inputs))
	e.plan(starts)
	defer e.watched.abandon()
	e.begin()
	for _, s := range starts {
		if t := e.tasks[edgeOf(s.y)]; t.wanted() {
			e.start(t, s)
		}
	}
	for len(e.queue) > 0 {
		t := heap.Pop(&e.queue).(*task)
		e.watched.reportMissed(t.order)
		e.step(t)
	}
	e.watched.reportMissed(0)
	return e.results()
}

func (x *Tensor) failWithoutGrad(op, msg string) {
	panic(newError(op, ErrGrad, []*Tensor{x}, msg).hint("call x.RequiresGrad() before the forward pass; a result requires one if it was computed, outside of NoGrad, from what does"))
}

// startScope checks the results that differentiation starts from, and returns the youngest of their
// scopes.
func (y *Tensor) startScope(op string, more []start) *Scope {
	all := []*Tensor{y}
	for _, m := range more {
		all = append(all, m.y)
	}
	s := youngest(op, all)
	for _, y := range all {
		y.mustBeCurrent(op)
		if !y.needsGrad {
			e := newError(op, ErrGrad, []*Tensor{y}, "the tensor does not depend on anything that requires a gradient")
			switch {
			case y.scope.modes.noGrad:
				e.hint("it was computed in a NoGrad scope")
			case !y.dtype.IsFloat():
				e.hint("only floating point results have gradients, this is %v", y.dtype)
			default:
				e.hint("call RequiresGrad on the leaves first; Detach and NoGrad cut the graph, and gradients have one only with CreateGraph")
			}
			panic(e)
		}
	}
	return s
}

// seed returns the gradient with which differentiation starts from a result. The gradient belongs
// to the engine's scope. A nil gradient stands for 1.
func (e *engine) seed(from start) *Tensor {
	y, g := from.y, from.g
	if g == nil {
		if y.Size() != 1 {
			err := newError(e.op, ErrGrad, []*Tensor{y}, fmt.Sprintf("a gradient is implicit only for a scalar, this has shape %v", y.Shape()))
			panic(err.hint("reduce it with Sum or Mean, or pass GradOutput"))
		}
		return nil
	}
	g.use(e.op)
	if g.Shape() != y.Shape() {
		fail(e.op, ErrShape, []*Tensor{y, g}, "GradOutput has shape %v, the tensor %v", g.Shape(), y.Shape())
	}
	sameDevice(e.op, []*Tensor{y, g})
	if !g.dtype.IsFloat() {
		err := newError(e.op, ErrType, []*Tensor{y, g}, fmt.Sprintf("GradOutput is %v, the tensor %v", g.dtype, y.dtype))
		panic(err.hint("Cast it"))
	}
	if g.scope.encloses(e.scope) {
		g = g.In(e.scope)
	} else { // g's scope is younger than y's; g is only lent and keeps its owner
		youngest(e.op, []*Tensor{y, g})
		g = g.handleWithGraph(e.scope)
	}
	return g.Cast(y.dtype)
}

// results returns the gradients of the inputs. With the option [Into] it adds them to the inputs
// that are leaves, and returns nil.
func (e *engine) results() []*Tensor {
	for i := range e.inputs {
		if k := e.tasks[e.inputEdges[i]].input - 1; k != i && e.inputGrads[k] != nil && e.o.into == nil {
			e.inputGrads[i] = e.inputGrads[k].handleWithGraph(e.scope)
		}
	}
	if e.o.into != nil {
		for i, g := range e.inputGrads {
			// an input that is a result already has its gradient, because RetainGrad was called for
			// it
			if g != nil && e.inputEdges[i].leaf != nil {
				e.addToLeaf(e.tasks[e.inputEdges[i]], g)
			}
		}
	}
	if e.o.into != nil || e.inputs == nil {
		e.watched.end()
		e.scope.close(nil, false)
		return nil
	}
	var keep []*Tensor
	for i, t := range e.inputGrads {
		if t == nil && !e.o.unused {
			fail(e.op, ErrGrad, []*Tensor{e.inputs[i]}, "the result does not depend on input %d (AllowUnused makes its gradient nil)", i)
		}
		if t != nil {
			keep = append(keep, t)
		}
	}
	e.scope.close(keep, false)
	return e.inputGrads
}

// bring returns a handle of g that belongs to the engine's scope.
func (e *engine) bring(g *Tensor) *Tensor {
	switch {
	case g.scope == e.scope:
		return g
	case g.scope.encloses(e.scope):
		return g.In(e.scope)
	}
	e.scope.adopt(g) // g belongs to the VJP's scope, which is about to close
	return g
}

// step handles a task whose gradient is complete: it runs hooks, and passes the gradient on to the
// operands or adds it to the leaf.
func (e *engine) step(t *task) {
	g := t.g
	t.g = nil
	if t.partial != nil {
		g = e.assembled(t)
	}
	if t.one {
		e.runVJP(t, nil)
		return
	}
	if n := t.at.node; n != nil {
		g = e.hooked(n.hooks.Load(), g, n.op)
	} else {
		g = e.hooked(t.at.leaf.hooks.Load(), g, "a leaf")
		if t.watched != nil {
			t.watched.sent = true
		}
	}
	if t.input > 0 {
		e.inputGrads[t.input-1] = g
		if !t.needed {
			return
		}
		g = g.handleWithGraph(e.scope)
	}
	if t.at.node != nil {
		e.runVJP(t, g)
		return
	}
	if e.inputs == nil {
		e.addToLeaf(t, g)
	}
}

// runVJP computes the gradients of one node's operands from g, the gradient of the node's result. A
// nil g stands for 1.
func (e *engine) runVJP(t *task, g *Tensor) {
	n := t.at.node
	if n.dropped.Load() && (n.saves > 0 || n.scope != root && n.scope.isClosed()) {
		panic(e.freed(n))
	}
	if tr := device.Tracing(); tr != nil {
		defer tr.End(n.backSpan(tr, e.scope, n.shape))
	}
	vs := e.scope.child()
	defer vs.recycle()
	vs.modes.stream, vs.modes.autocast, vs.modes.tf32 = n.stream, n.autocast, n.tf32
	c := &Context{scope: vs, needs: n.needs, n: n, to: t.to, run: e}
	var grads []*Tensor
	if g == nil {
		if grads = n.f.(fromOne).fromOne(c); grads == nil {
			e.makeOne(t)
			g, t.g = t.g, nil
		}
	}
	if grads != nil {
		e.sendAll(t, c, nil, grads)
	} else if v, ok := n.f.(*viewFunc); !ok || v.part == nil || !e.sendPart(t.to[0], n, *v.part, vs, g) {
		e.callVJP(t, c, g.In(vs))
	}
	g.Free()
	if n.packs {
		n.passed(e)
	}
	if !e.o.retain {
		n.drop()
	}
}

// callVJP calls a node's VJP with gi, which belongs to the VJP's scope, and sends the gradients
// that it returns.
func (e *engine) callVJP(t *task, c *Context, gi *Tensor) {
	e.sendAll(t, c, gi, c.n.f.VJP(c, gi))
}

// sendAll sends the gradients that a VJP returned for gi to the tasks of the operands.
func (e *engine) sendAll(t *task, c *Context, gi *Tensor, grads []*Tensor) {
	n, vs := c.n, c.scope
	if len(grads) != len(n.inputs) {
		fail(e.op, ErrGrad, nil, "%s has %d operands, its VJP returned %d gradients", n.op, len(n.inputs), len(grads))
	}
	for i, d := range grads {
		if d == nil || t.to[i] == nil {
			continue
		}
		if i == 0 && c.past != nil {
			e.sendPast(c, t.to[0], d)
			continue
		}
		d = e.checked(n, i, d)
		if !t.to[i].wanted() {
			continue
		}
		if d == gi || d.scope != vs && d.scope != e.scope {
			d = d.handleWithGraph(vs)
		}
		for _, other := range grads[i+1:] {
			if other == d {
				// the VJP returned one tensor for two operands: each needs a handle of its own
				d = d.handleWithGraph(vs)
				break
			}
		}
		if d = e.bring(d); c.took == i+1 {
			t.to[i].g.Free()
			t.to[i].g = d
			continue
		}
		e.send(t.to[i], d)
	}
}

// freed returns the error for a node n that was freed. The error says what freed it.
func (e *engine) freed(n *node) *Error {
	msg := "the graph was freed by an earlier Backward"
	hint := "pass RetainGraph to the first one"
	if n.scope != nil && n.scope != root && n.scope.isClosed() {
		msg, hint = fmt.Sprintf("the graph belongs to %v", n.scope), "keep the result with Close(x)"
	}
	err := newError(e.op, ErrGrad, nil, fmt.Sprintf("cannot go back through %s: %s", n.op, msg)).hint("%s", hint)
	err.Operands = []Operand{{Shape: n.shape, Type: n.dtype, Device: n.dev.Name(), Origin: n.origin()}}
	return err
}

// checked returns d, the gradient that n's VJP returned for operand i, with the operand's type and
// shape. If the operand's shape broadcasts to d's, d is summed over the broadcast dimensions, as in
// torch. d must be on the operand's device.
func (e *engine) checked(n *node, i int, d *Tensor) *Tensor {
	want := n.operands[i]
	if d.freed.Load() {
		fail(e.op, ErrFreed, []*Tensor{d}, "the VJP of %s returned a freed tensor for operand %d", n.op, i)
	}
	if sh := d.layout.Shape; sh != want.shape && d.st.dev == want.dev {
		if to, _, ok := shape.Broadcast(want.shape, sh); ok && to == sh {
			d = d.sumTo(want.shape)
		}
	}
	if d.layout.Shape != want.shape || d.st.dev != want.dev {
		fail(e.op, ErrGrad, []*Tensor{d}, "the VJP of %s returned a gradient of shape %v on %s for operand %d, of shape %v on %s",
			n.op, d.layout.Shape, d.st.dev.Name(), i, want.shape, want.dev.Name())
	}
	if d.dtype != want.dtype && !d.dtype.IsFloat() {
		fail(e.op, ErrType, []*Tensor{d}, "the VJP of %s returned a gradient of type %v for operand %d, of type %v", n.op, d.dtype, i, want.dtype)
	}
	if d = d.Cast(want.dtype); e.checks != 0 {
		e.checkAnomaly(n, i, d)
	}
	return d
}

// handleWithGraph makes another handle of x in s. It has the same position in the graph as x.
func (x *Tensor) handleWithGraph(s *Scope) *Tensor {
	x.synced()
	y := x.handle(x.op, s, x.layout)
	y.needsGrad, y.node = x.needsGrad, x.node
	if x.node == nil && x.needsGrad {
		y.leaf = x.base()
	}
	return y
}

// exclusive reports whether g is the only handle of its memory, so that the engine may overwrite
// the memory or give it away.
func exclusive(g *Tensor) bool {
	return g.st.refs.Load() == 1 && g.layout.Contiguous() && g.node == nil
}

// send adds g to the gradient of task t. g belongs to the engine's scope.
func (e *engine) send(t *task, g *Tensor) {
	e.makeOne(t)
	switch {
	case t.g != nil:
		t.g = e.sum(t.g, g)
	case t.partial != nil:
		t.g = e.sum(e.assembled(t), g)
	default:
		t.g = g
		heap.Push(&e.queue, t)
	}
}

// sum returns a + b. It overwrites a if nothing else uses a's memory.
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

// accumulate adds g to a leaf's gradient, which lives in the leaf's scope. It reports false if the
// leaf was freed. Several goroutines may add to one leaf at the same time.
func (e *engine) accumulate(leaf *Tensor, g *Tensor) bool {
	if leaf.freed.Load() {
		return false // nobody can read the gradient any more
	}
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanBackward, "AccumulateGrad", nil, []*Tensor{g}))
	}
	leaf.gradMu.Lock()
	defer leaf.gradMu.Unlock()
	if g.st.dev != leaf.st.dev {
		fail(e.op, ErrDevice, []*Tensor{leaf, g}, "the leaf is on %s, its gradient on %s: it was moved after it was used", leaf.st.dev.Name(), g.st.dev.Name())
	}
	e.scope.modes.capture.noteLeaf(leaf)
	had := leaf.grad != nil && !leaf.grad.freed.Load()
	switch {
	case had && !e.o.create:
		leaf.grad.addInto(g)
		leaf.grad.st.version.Add(1) // a graph may have saved the gradient
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
	return true
}

// adopt makes s, an enclosing scope, the owner of x and of the graph that x needs.
func (s *Scope) adopt(x *Tensor) {
	for x.scope != s {
		from := x.scope
		if !s.encloses(from) {
			// Here s is the scope of a leaf and does not enclose x's scope. So s gets the value of
			// x without the graph.
			s.addOwned(x, true)
			x.node = nil
			return
		}
		from.moveUp(x)
	}
}

// moveUp moves x to the parent scope, as Close(x) would.
func (s *Scope) moveUp(x *Tensor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moveToParent([]*Tensor{x})
}

// addInto adds g to x in place. It records no graph and does not raise x's version, because x is a
// gradient.
func (x *Tensor) addInto(g *Tensor) {
	mapInto("add", addProgram(x.dtype, g.dtype), x, []*Tensor{x, g}, nil)
}
