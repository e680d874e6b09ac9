package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// The gradient of an activation joins the product that its own gradient comes from: a linear layer
// behind an activation computes (g·w)·act'(x) in one op, and sends it past the activation's node.

// alone reports whether one VJP of the run sends t a gradient, and nobody wants that itself.
func (t *task) alone() bool { return t.wanted() && t.senders == 1 && t.input == 0 }

// activation returns the task of an activation whose result is operand i, perhaps in another shape,
// if its gradient comes from this VJP alone and nobody looks at it. It is nil where there is none.
func (c *Context) activation(i int) *task {
	e := c.run
	if e == nil || e.o.create || e.checks != 0 || !c.scope.modes.noGrad || !c.Wants(i) {
		return nil
	}
	for t := c.to[i]; t.alone() && t.at.node != nil; t = t.to[0] {
		n := t.at.node
		if n.hooks.Load() != nil || n.dropped.Load() || n.stream != c.n.stream || n.dtype != c.n.operands[i].dtype {
			return nil
		}
		switch f := n.f.(type) {
		case *viewFunc:
			if f.name != "reshape" {
				return nil
			}
		case *elementwiseFunc:
			if f.op.Arity != 1 || len(f.params) > 0 || n.operands[0].dtype != n.dtype || !t.to[0].alone() {
				return nil
			}
			return t
		default:
			return nil
		}
	}
	return nil
}

// activated returns the gradient of what the activation before operand i was applied to, from g·w,
// which is that of operand i: one op, where the device has it. It is nil if there is no such
// activation. Where it is not, the gradient goes past the activation: see [engine.past].
func (c *Context) activated(i int, g, w *Tensor) *Tensor {
	t := c.activation(i)
	if t == nil {
		return nil
	}
	n, s := t.at.node, c.scope
	p := n.f.(*elementwiseFunc).op.behind(n)
	if p == nil {
		return nil
	}
	const op = "linear.grad"
	out := shape.Of(1, g.Dim(0), w.Dim(1))
	v := device.MatMul{Out: resultOf(n.dtype, out), With: resultOf(n.dtype, out), Act: p, TF32: s.takesTF32(g.dtype)}
	g.batchInto(&v.A)
	w.batchInto(&v.B)
	m := matmulOps.supported(s, g.st.dev, v)
	if m == nil {
		return nil
	}
	defer matmulOps.put(m)
	with := (&Context{scope: s, needs: n.needs, n: n, to: t.to, run: c.run}).Saved(0).Contiguous()
	m.With = with.operandAs(out)
	d := alloc(op, s, g.st.dev, n.dtype, shape.Of(g.Dim(0), w.Dim(1)))
	launch(op, s, m, d, nil, nil, g, w, nil, nil, with)
	c.past = t
	return d.reshape(n.operands[0].shape)
}

// behind is the gradient of e, an activation that n applied, as a product's activation: a program
// of g and of what n saved. It is nil where the gradient mentions more than one value.
func (e *Elementwise) behind(n *node) *expr.Program {
	p := e.parts()[0].behind
	if p == nil || len(n.saved) != 1 || n.saved[0].dtype != n.dtype {
		return nil
	}
	like := &Tensor{dtype: n.dtype, layout: shape.Dense(n.shape)}
	in := []*Tensor{like, like}
	common, result := p.resultType(in)
	if result != n.dtype {
		return nil
	}
	return p.program(in, common, result)
}

// past sends d, what a VJP says is the gradient of the operand of c.past, on, and drops the nodes
// that it went past, from that at t on.
func (e *engine) past(c *Context, t *task, d *Tensor) {
	last := c.past
	d = e.checked(last.at.node, 0, d)
	e.send(last.to[0], e.bring(d))
	for ; ; t = t.to[0] {
		n := t.at.node
		if n.packs {
			n.passed(e)
		}
		if !e.o.retain {
			n.drop()
		}
		if t == last {
			return
		}
	}
}
