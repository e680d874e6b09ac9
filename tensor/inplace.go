package tensor

import (
	"fmt"
	"math"
)

// writable panics unless an op may write x in place. It returns the scope of the op.
func (x *Tensor) writable(op string, in ...*Tensor) *Scope {
	all := append([]*Tensor{x}, in...)
	s := youngest(op, all)
	sameDevice(op, all)
	if x.layout.Overlaps() {
		panic(newError(op, ErrShape, all, "the tensor is expanded: several elements share one place").hint("use Clone first"))
	}
	if s.modes.noGrad {
		return s
	}
	b := x.usableBase()
	if b != nil && b.node == nil && b.needsGrad {
		panic(leafError(op, "a view of a leaf that requires a gradient is changed in place", all))
	}
	if !wantsGrad(op, s, all) {
		return s
	}
	switch {
	case x.node == nil && x.needsGrad:
		panic(leafError(op, "a leaf that requires a gradient is changed in place", all))
	case x.scope != s:
		e := newError(op, ErrScope, all, "the result would hang the graph of "+s.String()+" on a tensor of "+x.scope.String())
		panic(e.hint("use NoGrad, or an op that returns a new tensor"))
	case b != nil:
		x.rebasable(op, s, b, all)
	}
	return s
}

// leafError returns the error of an op in place that needs NoGrad. Its hint shows the call that the
// user must write, with x.In(s). Without In the op would not run in the NoGrad scope s, because x
// belongs to an older scope.
func leafError(op, what string, operands []*Tensor) *Error {
	e := newError(op, ErrGrad, operands, what)
	call := "x.In(s)"
	if m := deepSite().method(); m != "" {
		call += "." + m + "(…)"
	}
	return e.hint("write %s, with the scope s of tensor.Do(func(s *tensor.Scope) { … }, tensor.NoGrad()); for initial values use package nn/initial", call)
}

// inPlace computes op on the given operands and stores the result in x, the first operand.
func (x *Tensor) inPlace(op *Elementwise, in []*Tensor, params ...float64) *Tensor {
	s := x.writable(op.called(), in[1:]...)
	if sh := broadcast(op.called(), in); sh != x.layout.Shape {
		e := newError(op.called(), ErrShape, in, "the result has shape "+sh.String()+", the tensor changed in place "+x.layout.Shape.String())
		panic(e.hint("use the op that returns a new tensor"))
	}
	if wantsGrad(op.called(), s, in) {
		y := op.apply(x.unwritten(op, in), params)
		x.replace(op.called(), s, y)
		return x
	}
	common, _ := op.resultType(in)
	if in[0].dtype.IsFloat() != common.IsFloat() || x.dtype == boolType && common != boolType {
		e := newError(op.called(), ErrType, in, "a result of type "+common.String()+" cannot be stored in place in "+x.dtype.String())
		panic(e.hint("use the op that returns a new tensor, or Cast first"))
	}
	for _, t := range in[1:] {
		if t.st == x.st && t.layout != x.layout {
			// another view of the same memory has its elements at other positions, so use a
			// temporary
			y := op.apply(in, params)
			x.store(op.called(), s, y)
			y.Free()
			return x
		}
	}
	run(op.called(), s, op.program(in, common, x.dtype), x, in, params)
	x.st.version.Add(1)
	if s.modes.anomaly&AnomalyForward != 0 {
		x.inspect(op.called(), s.modes.anomaly, in)
	}
	return x
}

// unwritten prepares the operands of op, whose result will overwrite x. It returns the operands. If
// op's gradient needs an operand that is in x's memory, a copy takes the operand's place.
func (x *Tensor) unwritten(op *Elementwise, in []*Tensor) []*Tensor {
	f := &elementwiseFunc{op: op}
	mask, _ := f.neededValues(func(i int) bool { return in[i].needsGrad })
	out := append([]*Tensor(nil), in...)
	for i, t := range in {
		if mask>>i&1 != 0 && t.st == x.st {
			out[i] = t.Clone()
		}
	}
	return out
}

// store copies y's elements into x.
func (x *Tensor) store(op string, s *Scope, y *Tensor) {
	run(op, s, castProgram(y.dtype, x.dtype), x, []*Tensor{y}, nil)
	x.st.version.Add(1)
}

// mustHold panics unless x's type can hold the result of an op with the number v.
func (x *Tensor) mustHold(op string, v float64) {
	x.use(op)
	if x.dtype == boolType || !x.dtype.IsFloat() && (v != math.Trunc(v) || math.IsInf(v, 0)) {
		e := newError(op, ErrType, []*Tensor{x}, fmt.Sprintf("the result with the number %v cannot be stored in place in %v", v, x.dtype))
		panic(e.hint("use the op that returns a new tensor, or Cast first"))
	}
}

// Fill sets every element of x to v. An integer type cuts off a fraction. A number outside of the
// type's range is an error, with one exception that PyTorch makes too: an unsigned type whose
// largest number is n accepts -n … n. A finite number beyond the range of a floating point type
// becomes infinite, where PyTorch fails.
func (x *Tensor) Fill(v float64) *Tensor {
	s := x.writable("fill")
	v = x.fittedNumber("fill", v)
	if wantsGrad("fill", s, []*Tensor{x}) {
		x.overwritten("fill", s, x)
	}
	run("fill", s, indexProgram(x.dtype, fillKind), x, nil, []float64{v})
	x.st.version.Add(1)
	return x
}

// overwritten sets x's new position in the graph, before x's elements are replaced. in[0] is x.
// in[1], if it exists, holds the new elements.
func (x *Tensor) overwritten(op string, s *Scope, in ...*Tensor) {
	y := &Tensor{st: x.st, layout: x.layout, dtype: x.dtype, scope: s}
	if s.modes.sites {
		y.made = deepSite()
	}
	record(y, overwriteFunc{op}, in, nil)
	x.rebase(op, y.node)
}

// overwriteFunc replaces its first operand by a constant, or by its second operand. The gradient of
// the first operand is 0.
type overwriteFunc struct{ op string }

func (f overwriteFunc) Name() string { return f.op }

// Forward is never called: the elements are written in place.
func (f overwriteFunc) Forward(*Context, []*Tensor) *Tensor {
	panic("tensor: " + f.op + " is done in place")
}

func (f overwriteFunc) VJP(c *Context, g *Tensor) []*Tensor {
	d := make([]*Tensor, len(c.needs))
	if c.Wants(0) {
		d[0] = g.ZerosLike()
	}
	if len(d) > 1 && c.Wants(1) {
		d[1] = g.sumTo(c.n.operands[1].shape)
	}
	return d
}

// Zero sets every element of x to 0.
func (x *Tensor) Zero() *Tensor { return x.Fill(0) }

// Copy sets x's elements to those of y, broadcast and converted, and returns x. y may be on any
// device. It is torch's copy_: if y is floating point, gradients flow into y. The gradient of x's
// old elements is 0.
func (x *Tensor) Copy(y *Tensor) *Tensor {
	x.use("copy")
	y.use("copy")
	if y.st.dev != x.st.dev {
		h := y.In(youngest("copy", []*Tensor{x, y}))
		if h != y {
			defer h.Free()
		}
		y = h.To(x.st.dev)
		defer y.Free()
	}
	s := x.writable("copy", y)
	if _, ok := y.layout.Expand(x.layout.Shape); !ok {
		fail("copy", ErrShape, []*Tensor{x, y}, "shape %v does not expand to %v", y.Shape(), x.Shape())
	}
	grad := wantsGrad("copy", s, []*Tensor{x, y})
	if grad && !x.dtype.IsFloat() {
		grad = false
	}
	if y.st == x.st && y.layout != x.layout {
		c := y.Clone()
		defer c.Free()
		y = c
	}
	x.store("copy", s, y)
	if grad {
		x.overwritten("copy", s, x, y)
	}
	return x
}
