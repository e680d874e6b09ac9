package tensor

// What a VJP may write over, and what it may give up early, so that Backward holds little beside
// what was saved.

// spent reports whether a VJP may put its result into g, the gradient that it was given. It may
// where no graph is recorded, and nobody else has that memory: neither a hook nor a result that
// keeps its gradient.
func (c *Context) spent(g *Tensor) bool {
	// One handle is the engine's, which frees it, and one the VJP's.
	return c.run != nil && !c.run.o.create && c.scope.modes.noGrad && g.node == nil && g.st.refs.Load() == 2 && g.layout.Contiguous()
}

// pending returns the gradient that has come so far, by other ways, to the tensor that is operand
// i. A VJP that adds it to its own part in one pass says so by took. It is nil where there is
// nothing, where the sum has a graph, or where its elements do not lie in order.
func (c *Context) pending(i int) *Tensor {
	if c.run == nil || c.run.o.create || !c.scope.modes.noGrad || !c.Wants(i) {
		return nil
	}
	if g := c.to[i].g; g != nil && g.layout.Contiguous() && g.dtype == c.n.operands[i].dtype {
		return g
	}
	return nil
}

// release gives up saved value i, whose handle in the VJP is x: it will not be asked for again.
func (c *Context) release(i int, x *Tensor) {
	if x != nil {
		x.Free()
	}
	if c.run == nil || c.run.o.retain || c.n.saved[i].given {
		return
	}
	v := &c.n.saved[i]
	if v.packed != nil {
		v.packed.passed(c.run)
	}
	v.given = true
	v.release()
}

// take releases saved value i, as release does, where nothing else holds its memory. It then
// returns a handle without a graph, whose memory the VJP may overwrite. Otherwise it reports false
// and changes nothing.
func (c *Context) take(i int, x *Tensor) (*Tensor, bool) {
	if c.run == nil || c.run.o.retain || !c.scope.modes.noGrad || c.n.saved[i].packed != nil || c.n.saved[i].given || x.st.refs.Load() != 2 || !x.layout.Contiguous() {
		return nil, false
	}
	y := handleOf(x.op, c.scope, x.st, x.layout, x.dtype)
	c.release(i, x)
	return y, true
}
