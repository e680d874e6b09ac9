package tensor

// These functions decide what a VJP may overwrite and what it may free early. They limit the memory
// that Backward needs in addition to the saved values.

// mayOverwrite reports whether a VJP may put its result into g, the gradient that the VJP was
// called with. This requires that no graph is recorded, and that nothing else uses g's memory. For
// example, a hook or a retained gradient may use it.
func (c *Context) mayOverwrite(g *Tensor) bool {
	// There are two handles: the engine has one and frees it, and the VJP has the other.
	return c.run != nil && !c.run.o.create && c.scope.modes.noGrad && g.node == nil && g.st.refs.Load() == 2 && g.layout.Contiguous()
}

// pending returns the gradient of operand i that other VJPs have sent so far. In one pass, a VJP
// may compute its own gradient and add the pending gradient. It then sets c.took. pending returns
// nil if nothing has arrived, if the sum must have a graph, or if the elements are not contiguous.
func (c *Context) pending(i int) *Tensor {
	if c.run == nil || c.run.o.create || !c.scope.modes.noGrad || !c.Wants(i) {
		return nil
	}
	if g := c.to[i].g; g != nil && g.layout.Contiguous() && g.dtype == c.n.operands[i].dtype {
		return g
	}
	return nil
}

// release frees saved value i, which is not needed any more. x is the VJP's handle of this value.
func (c *Context) release(i int, x *Tensor) {
	if x != nil {
		x.Free()
	}
	if c.run == nil || c.run.o.retain || c.n.saved[i].released {
		return
	}
	v := &c.n.saved[i]
	if v.packed != nil {
		v.packed.passed(c.run)
	}
	v.released = true
	v.release()
}

// takeSaved releases saved value i, as release does, if nothing else uses the value's memory. It
// then returns a handle without a graph, whose memory the VJP may overwrite. Otherwise it reports
// false and changes nothing.
func (c *Context) takeSaved(i int, x *Tensor) (*Tensor, bool) {
	if c.run == nil || c.run.o.retain || !c.scope.modes.noGrad || c.n.saved[i].packed != nil || c.n.saved[i].released || x.st.refs.Load() != 2 || !x.layout.Contiguous() {
		return nil, false
	}
	y := handleOf(x.op, c.scope, x.st, x.layout, x.dtype)
	c.release(i, x)
	return y, true
}
