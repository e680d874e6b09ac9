package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A branch is a separate graph that a function records when it computes its results. It may use
// scopes, devices and goroutines that the surrounding graph does not know. The function's node
// keeps the positions of the results in the branch. The function's VJP goes back through the
// branch, as a part of the run that called the VJP.

// SaveBranch keeps the positions of the results y in the branch's graph, for [Context.Branch]. The
// results may be on any devices. The branch's graph must have been recorded in a child of the
// operands' scope, and moved to that scope when the child was closed. The graph lives as long as
// the function's own graph, and moves to another scope with it. The values of y are not kept. Each
// of y must require a gradient.
func (c *Context) SaveBranch(y ...*Tensor) {
	const op = "save_branch"
	for _, x := range y {
		x.use(op)
		x.mustBeCurrent(op)
		if !x.needsGrad {
			fail(op, ErrGrad, []*Tensor{x}, "the tensor has no place in a graph")
		}
	}
	for _, x := range y {
		stand := alloc(op, c.scope, x.st.dev, x.dtype, shape.Of())
		layout, _ := stand.layout.Expand(x.layout.Shape)
		stand.st.retain()
		c.extra = append(c.extra, &branch{op: x.op, at: edgeOf(x), st: stand.st, layout: layout, dtype: x.dtype})
		stand.Free()
	}
}

// AtEnd makes the library call f once, when the graph no longer needs the values that Forward has
// kept. f is called after Backward has passed the node, or when the scope ends. If no graph is
// recorded, f is called when Apply returns. f may free tensors but must not compute. If nobody goes
// back through a graph of the root scope, a later garbage collection drops the graph, without a
// call of f.
func (c *Context) AtEnd(f func()) { c.extra = append(c.extra, &ending{f}) }

// Branch returns, in VJP, the i-th of the results that were passed to [Context.SaveBranch]. The
// result has its position in the branch's graph, but its elements are undefined. Pass it to
// [Context.Gradients], as a branch y.
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

// Gradients returns, in VJP, the gradients of branches y with respect to inputs, which are leaves
// or results of the branch's graph. g has the gradients of y. The gradient of an input that no y
// depends on is nil. The call is part of the run that called VJP: it retains the graph if the run
// does, and makes the checks of the run ([DetectAnomaly]). The gradients belong to the youngest
// scope of y. Several goroutines may call Gradients at the same time if their branches differ.
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

// numExtra returns how many of the saved values come from SaveBranch and AtEnd. These are at the
// end of the list.
func (n *node) numExtra() int {
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

func (n *node) appendExtra(more []packed) {
	for _, p := range more {
		n.saved = append(n.saved, saved{packed: p})
		n.saves++
		if st := p.storage(); st != nil {
			n.scope.note(st)
		}
	}
}

// dropExtra drops the values of SaveBranch and AtEnd if there is no node to keep them.
func (c *Context) dropExtra() {
	for _, p := range c.extra {
		p.drop()
	}
}

// A branch is the position of a result in a separate graph. A storage of one element stands in for
// the result's memory.
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
func (b *branch) neededNode() *node               { return b.at.node }
func (b *branch) storage() *storage               { return b.st }

// An ending calls f when the graph no longer needs a node's values.
type ending struct{ f func() }

func (e *ending) unpack(*Context, *saved) *Tensor { panic("tensor: an ending is no saved value") }
func (e *ending) passed(*engine)                  {}
func (e *ending) drop()                           { e.f() }
func (e *ending) neededNode() *node               { return nil }
func (e *ending) storage() *storage               { return nil }
