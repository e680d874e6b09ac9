package tensor

// Functions of a number and a tensor in the order that has no method of its own: the number becomes a tensor without dimensions on the
// tensor's device.

// held is number for WhereScalar, where the result has the number as it is.
func (x *Tensor) held(v float64) (n, same *Tensor) {
	n, same = x.number("where", v)
	return n.Fill(same.takes("where", v)), same
}

// WhereScalar returns a where cond, a bool tensor, is true, and the number b elsewhere, broadcast together; an integer tensor stays one if
// b is a whole number.
func WhereScalar(cond, a *Tensor, b float64) *Tensor {
	s := youngest("where", []*Tensor{cond, a})
	return within(s, func(c *Scope) *Tensor { n, a := a.In(c).held(b); return Where(cond, a, n) })
}

// RWhereScalar returns the number a where cond, a bool tensor, is true, and b elsewhere, broadcast together.
func RWhereScalar(cond *Tensor, a float64, b *Tensor) *Tensor {
	s := youngest("where", []*Tensor{cond, b})
	return within(s, func(c *Scope) *Tensor { n, b := b.In(c).held(a); return Where(cond, n, b) })
}

// WhereScalars returns the number a where cond, a bool tensor, is true, and b elsewhere, as floats of the scope's type: Go's numbers do not
// say whether they are whole, as Python's do.
func WhereScalars(cond *Tensor, a, b float64) *Tensor {
	cond.use("where")
	return within(cond.scope, func(c *Scope) *Tensor {
		m := c.On(cond.st.dev)
		return Where(cond.In(c), m.Full(a), m.Full(b))
	})
}
