package tensor

import "math"

// Functions of a number and a tensor in the order that has no method of its own: the number becomes a tensor without dimensions on the
// tensor's device.

// number returns v and x of one type, for op: as in torch v has no more weight than its class. A bool tensor becomes int64 by a whole
// number, integers and bool become float32 by one with a fraction, by NaN and by infinities.
func (x *Tensor) number(op string, v float64) (n, same *Tensor) {
	x.use(op)
	if !x.dtype.IsFloat() {
		switch {
		case v != math.Trunc(v) || math.IsInf(v, 0):
			x = x.Float()
		case x.dtype == boolType:
			x = x.Long()
		}
	}
	return x.scope.On(x.st.dev).make(op, x.dtype, nil).fill(v), x
}

// held is number for WhereScalar, where the result has the number as it is.
func (x *Tensor) held(v float64) (n, same *Tensor) {
	n, same = x.number("where", v)
	return n.Fill(same.takes("where", v)), same
}

// reversed applies a function of two tensors to v and x.
func (x *Tensor) reversed(op string, v float64, f func(x, y *Tensor) *Tensor) *Tensor {
	x.use(op)
	return within(x.scope, func(c *Scope) *Tensor { n, x := x.In(c).number(op, v); return f(n, x) })
}

// RFloorDivideScalar returns ⌊v/x⌋, Python's v // x; see [Tensor.FloorDivide].
func (x *Tensor) RFloorDivideScalar(v float64) *Tensor {
	return x.reversed("floor_divide", v, (*Tensor).FloorDivide)
}

// RRemainderScalar returns v - x·⌊v/x⌋, Python's v % x; see [Tensor.Remainder].
func (x *Tensor) RRemainderScalar(v float64) *Tensor {
	return x.reversed("remainder", v, (*Tensor).Remainder)
}

// RBitwiseLeftShiftScalar returns v << x; see [Tensor.BitwiseLeftShift].
func (x *Tensor) RBitwiseLeftShiftScalar(v int64) *Tensor {
	return x.reversed("bitwise_left_shift", float64(v), func(n, x *Tensor) *Tensor { return n.Fill(0).BitwiseOrScalar(v).BitwiseLeftShift(x) })
}

// RBitwiseRightShiftScalar returns v >> x; see [Tensor.BitwiseRightShift].
func (x *Tensor) RBitwiseRightShiftScalar(v int64) *Tensor {
	return x.reversed("bitwise_right_shift", float64(v), func(n, x *Tensor) *Tensor { return n.Fill(0).BitwiseOrScalar(v).BitwiseRightShift(x) })
}

// XLogYScalar returns x·log(v), and 0 where x is 0 unless v is NaN; see [Tensor.XLogY].
func (x *Tensor) XLogYScalar(v float64) *Tensor {
	return x.reversed("xlogy", v, func(n, x *Tensor) *Tensor { return x.XLogY(n) })
}

// RXLogYScalar returns v·log(x), and 0 for v = 0 unless x is NaN; see [Tensor.XLogY].
func (x *Tensor) RXLogYScalar(v float64) *Tensor { return x.reversed("xlogy", v, (*Tensor).XLogY) }

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
