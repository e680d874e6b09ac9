package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A function may be computed by a graph of its own, in scopes, on devices and on goroutines that
// are no affair of the graph around: a branch. The node of the function keeps the places of the
// branch's results, and its VJP goes back through them as a part of the run that called it.

// SaveBranch keeps the places that results y have in the graph that they were computed by, on
// whatever devices, for [Context.Branch]. That graph was recorded inside the scope of the operands
// and closed into it. It lasts as the function's own graph does, and moves to another scope with
// it. Values are not kept. Each of y requires a gradient.
func (c *Context) SaveBranch(y ...*Tensor) {
	const op = "save_branch"
	for _, x := range y {
		x.use(op)
		x.current(op)
		if !x.needsGrad {
			fail(op, ErrGrad, []*Tensor{x}, "the tensor has no place in a graph")
		}
	}
	for _, x := range y {
		stand := alloc(op, c.scope, x.st.dev, x.dtype, shape.Of())
		layout, _ := stand.layout.Expand(x.layout.Shape)
		stand.st.retain()
		c.more = append(c.more, &branch{op: x.op, at: edgeOf(x), st: stand.st, layout: layout, dtype: x.dtype})
		stand.Free()
	}
}

// AtEnd has f called once, when the graph needs what Forward has kept no more: Backward has
// passed, or the scope has ended. Where no graph is recorded that is when Apply returns. f may
// free tensors and must not compute. A graph of the root scope that nobody goes back through ends
// unnoticed, with the next collection of garbage.
func (c *Context) AtEnd(f func()) { c.more = append(c.more, &ending{f}) }

// Branch returns, in VJP, result i of those that [Context.SaveBranch] was given, in its place in
// the graph and with undefined elements: to start [Context.Gradients] from.
func (c *Context) Branch(i int) *Tensor {
	const op = "branch"
	if c.n == nil {
		fail(op, ErrValue, nil, "branches are kept by Forward for VJP; Forward has none yet")
	}
	k := i
	for _, v := range c.n.saved {
		b, ok := v.packed.(*branch)
		if !ok {
			continue
		}
		if k == 0 {
			x := handleOf(b.op, c.scope, b.st, b.layout, b.dtype)
			x.needsGrad, x.node, x.leaf = true, b.at.node, b.at.leaf
			return x
		}
		k--
	}
	fail(op, ErrValue, nil, "Forward of %s kept no branch number %d", c.n.op, i)
	return nil
}

// Gradients is, in VJP, the gradient of branches y with respect to leaves or results of their
// graph, given those of y; nil for an input that no y depends on. It is a part of the run that
// called VJP: it keeps the graph if that does, and looks for what that looks for
// ([DetectAnomaly]). It belongs to the youngest scope of y. Several goroutines may go back
// through a branch each.
func (c *Context) Gradients(y, g, inputs []*Tensor) []*Tensor {
	const op = "grad"
	switch {
	case c.n == nil:
		fail(op, ErrValue, y, "there is no run of Backward in Forward")
	case len(y) == 0 || len(y) != len(g):
		fail(op, ErrValue, y, "%d results and %d gradients", len(y), len(g))
	case c.run.o.create:
		fail(op, ErrGrad, y, "a branch has no second derivative; CreateGraph asks for one")
	}
	o := gradOptions{retain: c.run.o.retain, unused: true, seed: g[0], checks: c.run.checks}
	for i := range y[1:] {
		o.more = append(o.more, start{y[i+1], g[i+1]})
	}
	return differentiate(op, y[0], inputs, o)
}

// kept returns how many of the saved values Save knows nothing of. They are the last.
func (n *node) kept() int {
	k := 0
	for k < len(n.saved) {
		switch n.saved[len(n.saved)-1-k].packed.(type) {
		case *branch, *ending:
			k++
			continue
		}
		break
	}
	return k
}

// keepMore adds to what n saved.
func (n *node) keepMore(more []packed) {
	for _, p := range more {
		n.saved = append(n.saved, saved{packed: p})
		n.saves++
		if st := p.storage(); st != nil {
			n.scope.note(st)
		}
	}
}

// unkept gives up what no node keeps.
func (c *Context) unkept() {
	for _, p := range c.more {
		p.drop()
	}
}

// A branch is the place of a result in a graph of its own. One element stands for its memory.
type branch struct {
	op     string
	at     edge
	st     *storage
	layout shape.Layout
	dtype  dtype.Type
}

func (b *branch) unpack(*Context, *saved) *Tensor { panic("tensor: a branch is no saved value") }
func (b *branch) passed(*engine)                  {}
func (b *branch) drop()                           { b.st.release() }
func (b *branch) holds() *node                    { return b.at.node }
func (b *branch) storage() *storage               { return b.st }

// An ending is called when the graph needs a node's values no more.
type ending struct{ f func() }

func (e *ending) unpack(*Context, *saved) *Tensor { panic("tensor: an ending is no saved value") }
func (e *ending) passed(*engine)                  {}
func (e *ending) drop()                           { e.f() }
func (e *ending) holds() *node                    { return nil }
func (e *ending) storage() *storage               { return nil }
