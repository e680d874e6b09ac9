package tensor

import "container/heap"

// The gradient that Backward begins with is 1, unless it is given. A VJP that can do without the
// tensor spares its launch.

// A fromOne is a [Function] with a VJP for the gradient 1 of its one element. It returns nil where
// it needs the tensor after all.
type fromOne interface {
	fromOne(c *Context) []*Tensor
}

// start sends a result its gradient; 1 is not made before it is needed.
func (e *engine) start(t *task, s start) {
	switch {
	case s.g != nil:
		e.send(t, s.g)
	case t.one || t.g != nil:
		e.send(t, e.ones(s.y))
	case t.at.node == nil || !e.spares(t):
		e.send(t, e.ones(s.y))
	default:
		t.one = true
		heap.Push(&e.queue, t)
	}
}

// ones is the gradient 1 of y.
func (e *engine) ones(y *Tensor) *Tensor {
	return e.scope.On(y.st.dev).Typed(y.dtype).Full(1, y.Shape().Slice()...)
}

// makeOne makes the gradient of t if it is the 1 that there is no tensor of.
func (e *engine) makeOne(t *task) {
	if n := t.at.node; t.one {
		t.one, t.g = false, e.scope.On(n.dev).Typed(n.dtype).Full(1, n.shape.Slice()...)
	}
}

// spares reports that nothing but the VJP of t's node is to have the gradient: no hook, no result
// that keeps it, no graph.
func (e *engine) spares(t *task) bool {
	grad, _, retain := t.at.node.hooks.Load().list()
	_, ok := t.at.node.f.(fromOne)
	return ok && len(grad)+len(retain) == 0 && t.input == 0 && !e.o.create
}
