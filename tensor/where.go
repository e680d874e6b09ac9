package tensor

import "github.com/flambeau-go/flambeau/expr"

var whereOp = Declare(&Elementwise{Name: "where", Arity: 3, Expr: x0.Select(x1, x2), Fixed: 1, Domain: wide,
	Ref: func(x, _ []float64) float64 {
		if x[0] != 0 {
			return x[1]
		}
		return x[2]
	},
	Grad: []*expr.Expr{nil, x0.Select(expr.X(3), expr.C(0)), x0.Select(expr.C(0), expr.X(3))}})

// Where returns the elements of a where the bool tensor cond is true, and the elements of b
// elsewhere. All three are broadcast to a common shape.
func Where(cond, a, b *Tensor) *Tensor {
	cond.use("where")
	if cond.dtype != boolType {
		e := newError("where", ErrType, []*Tensor{cond, a, b}, "the condition is "+cond.dtype.String()+", it must be bool")
		panic(e.hint("NeScalar(0) is true where it is not 0"))
	}
	return whereOp.Apply([]*Tensor{cond, a, b})
}

// heldNumber returns v and x as two tensors of the same type, as the method number does. It panics
// if x's integer type cannot hold v.
func (x *Tensor) heldNumber(v float64) (n, same *Tensor) {
	n, same = x.number("where", v)
	return n.Fill(same.fittedNumber("where", v)), same
}

// WhereScalar returns the elements of a where the bool tensor cond is true, and the number b
// elsewhere. a and cond are broadcast to a common shape. An integer tensor keeps its type if b is a
// whole number.
func WhereScalar(cond, a *Tensor, b float64) *Tensor {
	s := youngest("where", []*Tensor{cond, a})
	return within(s, func(c *Scope) *Tensor { n, a := a.In(c).heldNumber(b); return Where(cond, a, n) })
}

// RWhereScalar returns the number a where the bool tensor cond is true, and the elements of b
// elsewhere. b and cond are broadcast to a common shape.
func RWhereScalar(cond *Tensor, a float64, b *Tensor) *Tensor {
	s := youngest("where", []*Tensor{cond, b})
	return within(s, func(c *Scope) *Tensor { n, b := b.In(c).heldNumber(a); return Where(cond, n, b) })
}

// WhereScalars returns the number a where the bool tensor cond is true, and b elsewhere. The result
// has the scope's floating point type, because Go's float64 does not say, as Python's numbers do,
// whether a number is an integer.
func WhereScalars(cond *Tensor, a, b float64) *Tensor {
	cond.use("where")
	return within(cond.scope, func(c *Scope) *Tensor {
		m := c.On(cond.st.dev)
		return Where(cond.In(c), m.Full(a), m.Full(b))
	})
}
