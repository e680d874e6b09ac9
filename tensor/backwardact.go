package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A linear layer after an activation can compute the activation's gradient too. The product that
// computes the gradient of the layer's input is multiplied by act'(x) in the same op:
// (g·w)·act'(x). Here g is the gradient of the layer's result, w is the layer's weight, and act is
// the activation, with operand x. The result skips the activation's node in the graph.

// soleSender reports whether exactly one VJP of the run sends t a gradient, and the caller does not
// ask for the gradient of t's tensor.
func (t *task) soleSender() bool { return t.wanted() && t.senders == 1 && t.input == 0 }

// activation returns the task of the activation whose result is operand i, possibly reshaped. It
// returns nil if there is no such activation, or if another VJP also sends the activation a
// gradient. It also returns nil if a hook or the caller wants to see the gradient of the result.
func (c *Context) activation(i int) *task {
	e := c.run
	if e == nil || e.o.create || e.checks != 0 || !c.scope.modes.noGrad || !c.Wants(i) {
		return nil
	}
	for t := c.to[i]; t.soleSender() && t.at.node != nil; t = t.to[0] {
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
			if f.op.Arity != 1 || len(f.params) > 0 || n.operands[0].dtype != n.dtype || !t.to[0].soleSender() {
				return nil
			}
			return t
		default:
			return nil
		}
	}
	return nil
}

// activated computes the gradient of an activation's operand. The result of this activation is
// operand i. One op computes the product g·w, which is the gradient of operand i, and multiplies it
// by the derivative of the activation. The engine must then pass the result by [engine.sendPast],
// which skips the activation's node. If the device does not support such an op, activated returns
// nil.
func (c *Context) activated(i int, g, w *Tensor) *Tensor {
	t := c.activation(i)
	if t == nil {
		return nil
	}
	n, s := t.at.node, c.scope
	p := n.f.(*elementwiseFunc).op.gradProgram(n)
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

// gradProgram returns the program that a matrix product applies to compute the gradient of e. n is
// the node that applied e. The program has two operands: g and the one value that n saved.
// gradProgram returns nil if the gradient needs more than one value.
func (e *Elementwise) gradProgram(n *node) *expr.Program {
	p := e.gradParts()[0].gFirst
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

// sendPast sends d to the operand of the task c.past. A VJP has returned d as the gradient of this
// operand. sendPast drops the nodes that d skipped, from t's node to the node of c.past.
func (e *engine) sendPast(c *Context, t *task, d *Tensor) {
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
