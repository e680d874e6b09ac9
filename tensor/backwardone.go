package tensor

import "container/heap"

// The gradient that Backward begins with is 1, unless the caller passes one. A VJP that does not
// need the 1 as a tensor saves the launch that would fill the tensor.

// A fromOne is a [Function] whose result has one element. It has a second VJP for the gradient 1.
// This VJP, the method fromOne, returns nil if it needs the gradient as a tensor after all.
type fromOne interface {
	fromOne(c *Context) []*Tensor
}

// start gives the task t the gradient that the run starts from. t is the task of s.y. If s has no
// gradient, the run starts from 1, and start makes a tensor of it only if one is needed.
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

func (e *engine) ones(y *Tensor) *Tensor {
	return e.scope.On(y.st.dev).Typed(y.dtype).Full(1, y.Shape().Slice()...)
}

// makeOne makes the tensor for t's gradient if the gradient is a 1 that has no tensor yet.
func (e *engine) makeOne(t *task) {
	if n := t.at.node; t.one {
		t.one, t.g = false, e.scope.On(n.dev).Typed(n.dtype).Full(1, n.shape.Slice()...)
	}
}

// spares reports whether t's gradient, if all its elements are 1, needs no tensor. The function of
// t's node must then be a fromOne. The node must have no hooks and no retained gradient. t must not
// be an input whose gradient the run returns, and the run must not record a graph of the gradients.
func (e *engine) spares(t *task) bool {
	grad, _, retain := t.at.node.hooks.Load().list()
	_, ok := t.at.node.f.(fromOne)
	return ok && len(grad)+len(retain) == 0 && t.input == 0 && !e.o.create
}
