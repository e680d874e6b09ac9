package tensor

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// An exprPlan is an expression compiled to one op, for operands of certain types.
type exprPlan struct {
	op       *Elementwise
	tensors  []string // names of the op's operands
	numbers  []string // names of the operands that are numbers
	params   []exprParam
	autocast AutocastClass
}

// An exprParam is a run-time scalar of the op. It stands for a part of the text that contains no
// tensor.
type exprParam struct {
	compute func(v []float64) float64 // computes the scalar from the numbers
	t       dtype.Type                // the type in which the op uses it
	node    *exprNode
}

// An exprOperand holds the properties of an operand on which a plan depends.
type exprOperand struct {
	tensor bool
	t      dtype.Type // type of a tensor operand
	zero   bool       // true if the operand is a tensor of rank 0
	kind   numberKind // kind of a number operand
}

// An exprValue is the value of a node: an element of a tensor, or a number.
type exprValue struct {
	node *exprNode

	e    *expr.Expr
	t    dtype.Type
	zero bool

	number func(v []float64) float64 // computes the number; nil for a tensor
	fixed  bool                      // true if the number depends on no operand
	kind   numberKind
}

// An exprStep is one op of the formula, kept to derive the gradients.
type exprStep struct {
	op   *Elementwise
	args []*exprValue
	in   []*expr.Expr // args, converted to their common type
	out  *exprValue
}

type exprBuilder struct {
	text  *exprText
	float dtype.Type // the scope's floating point type
	given map[string]exprOperand
	plan  *exprPlan
	leafs []*exprValue // a value for each tensor
	steps []exprStep

	problem *exprProblem // the first problem
}

// wrong notes a problem and returns a dummy value.
func (b *exprBuilder) wrong(p *exprProblem) *exprValue {
	if b.problem == nil {
		b.problem = p
	}
	return &exprValue{fixed: true, number: func([]float64) float64 { return 0 }}
}

// planOf compiles the text of an expression for the given operands.
func planOf(text *exprText, given map[string]exprOperand, float dtype.Type) (*exprPlan, *exprProblem) {
	b := &exprBuilder{text: text, float: float, given: given, plan: &exprPlan{}}
	for _, name := range text.names {
		switch o, ok := given[name]; {
		case ok && o.tensor:
			if len(b.plan.tensors) == maxExprOperands {
				return nil, &exprProblem{at: text.first[name], kind: ErrValue,
					msg: fmt.Sprintf("%s is tensor number %d of the expression, a kernel takes at most %d", name, maxExprOperands+1, maxExprOperands), hint: "divide it into several"}
			}
			i := len(b.plan.tensors)
			b.plan.tensors = append(b.plan.tensors, name)
			b.leafs = append(b.leafs, &exprValue{e: expr.X(i), t: o.t, zero: o.zero})
		case ok:
			b.plan.numbers = append(b.plan.numbers, name)
		}
	}
	root := b.value(text.root)
	if b.problem != nil {
		return nil, b.problem
	}
	if root.number != nil {
		return nil, &exprProblem{at: text.root.at, kind: ErrValue, msg: "nothing here is a tensor: numbers alone are computed in Go"}
	}
	if text.root.fn == nil {
		root = b.apply(&exprNode{at: text.root.at, fn: &exprFunc{op: cloneOp}}, []*exprValue{root})
	}
	op := &Elementwise{Name: "expr", Arity: len(b.leafs), Expr: root.e, Params: make([]float64, len(b.plan.params)), stored: root.t}
	for _, l := range b.leafs {
		op.types = append(op.types, l.t)
	}
	if op.NoGrad = !root.t.IsFloat(); !op.NoGrad {
		op.Grad = b.gradients(root)
	}
	if _, err := expr.Lower([]*expr.Expr{op.Expr}, []dtype.Type{op.stored}, op.types, -1); err != nil {
		return nil, &exprProblem{at: text.root.at, kind: ErrType, msg: err.Error()}
	}
	b.plan.op = op
	return b.plan, nil
}

func (b *exprBuilder) value(n *exprNode) *exprValue {
	if n.fn != nil {
		args := make([]*exprValue, len(n.args))
		for i, a := range n.args {
			args[i] = b.value(a)
		}
		return b.apply(n, args)
	}
	if n.name == "" {
		v := n.value
		return &exprValue{node: n, kind: n.kind, fixed: true, number: func([]float64) float64 { return v }}
	}
	o, ok := b.given[n.name]
	switch {
	case !ok:
		c := exprConstants[n.name]
		return &exprValue{node: n, kind: c.kind, fixed: true, number: func([]float64) float64 { return c.value }}
	case o.tensor:
		return b.leafs[slices.Index(b.plan.tensors, n.name)]
	}
	i := slices.Index(b.plan.numbers, n.name)
	return &exprValue{node: n, kind: o.kind, number: func(v []float64) float64 { return v[i] }}
}

// apply returns the value of the function of n for the arguments args. The value is a number if all
// args are numbers. Otherwise apply adds an exprStep for the op.
func (b *exprBuilder) apply(n *exprNode, args []*exprValue) *exprValue {
	isTensor := func(v *exprValue) bool { return v.number == nil }
	// A clamp whose limits are tensors is a max, then a min. Where x equals a limit, the gradient
	// is the gradient of max and min, as in torch.
	if n.fn.bounds && slices.ContainsFunc(args[1:], isTensor) {
		at := &exprNode{at: n.at, name: n.name, fn: &exprFunc{op: maximumOp}}
		low := b.apply(at, args[:2])
		at = &exprNode{at: n.at, name: n.name, fn: &exprFunc{op: minimumOp}}
		return b.apply(at, []*exprValue{low, args[2]})
	}
	var p promotion
	var kind numberKind
	for i, a := range args {
		switch {
		case n.fn.op.Fixed>>i&1 != 0:
			if isTensor(a) && a.t != boolType || !isTensor(a) && a.kind != kindBool {
				return b.wrong(&exprProblem{
					at: n.args[i].at, kind: ErrType, msg: "the condition of " + n.name + " must be bool",
					hint: "x != 0 is true where x is not 0",
				})
			}
		case isTensor(a):
			p.add(a.t, a.zero)
		default:
			kind = max(kind, a.kind)
		}
	}
	common := p.common()
	// as in torch, a number changes the type only if its class is higher than the type's class
	if common == dtype.Invalid || kind > typeClass(common) {
		common = [...]dtype.Type{boolType, dtype.I64, b.float}[max(kind, typeClassOf(common))]
	}
	op := n.fn.op
	if n.fn.integer != nil && !common.IsFloat() {
		op = n.fn.integer
	}
	if !slices.ContainsFunc(args, isTensor) {
		return b.numeric(n, op, args, kind)
	}
	common, result, msg := op.ruled(common)
	if msg != "" {
		hint := "Cast converts an operand"
		if op.Result == FixedFloat {
			hint = "Float converts an operand"
		}
		return b.wrong(&exprProblem{at: n.at, kind: ErrType, msg: n.name + " " + msg, hint: hint})
	}
	if op.Autocast == AutocastHigh {
		b.plan.autocast = AutocastHigh
	}
	s := exprStep{op: op, args: args, in: make([]*expr.Expr, len(args)), out: &exprValue{node: n, t: result, zero: true}}
	for i, a := range args {
		to := common.Compute()
		if op.Fixed>>i&1 != 0 {
			to = boolType
		}
		switch {
		case !isTensor(a):
			s.in[i] = b.numberAs(a, to)
			continue
		case a.t.Compute() != to:
			s.in[i] = a.e.Cvt(to)
		default:
			s.in[i] = a.e
		}
		s.out.zero = s.out.zero && a.zero
	}
	s.out.e = expr.Substitute(op.Expr, func(i int) *expr.Expr { return s.in[i] }, nil)
	switch result {
	case dtype.I8, dtype.I16, dtype.U8: // small integers wrap after every op
		s.out.e = s.out.e.Cvt(result)
	}
	b.steps = append(b.steps, s)
	return s.out
}

// typeClassOf returns the class of type t. For dtype.Invalid it returns the lowest class.
func typeClassOf(t dtype.Type) numberKind {
	if t == dtype.Invalid {
		return kindBool
	}
	return typeClass(t)
}

// numeric applies op to numbers only. It computes on the host in float64, as Python does.
func (b *exprBuilder) numeric(n *exprNode, op *Elementwise, args []*exprValue, kind numberKind) *exprValue {
	if op.Ref == nil {
		return b.wrong(&exprProblem{at: n.at, kind: ErrValue, msg: n.name + " of numbers alone is not known", hint: "compute it in Go"})
	}
	out := &exprValue{node: n, kind: kind, fixed: true}
	switch {
	case op.Result == Truth:
		out.kind = kindBool
	case op.Result == Floating || op.Result == FixedFloat:
		out.kind = kindFloat
	case op.Result == Integral && kind == kindFloat:
		return b.wrong(&exprProblem{at: n.at, kind: ErrType, msg: n.name + " needs integers"})
	case op.Result == Promoted && op.Fixed == 0:
		out.kind = max(kind, kindInt)
	}
	for _, a := range args {
		out.fixed = out.fixed && a.fixed
	}
	out.number = func(v []float64) float64 {
		x := make([]float64, len(args))
		for i, a := range args {
			x[i] = a.number(v)
		}
		return op.Ref(x, nil)
	}
	return out
}

// numberAs returns a number as a constant or a run-time scalar of type t.
func (b *exprBuilder) numberAs(a *exprValue, t dtype.Type) *expr.Expr {
	if a.fixed {
		v := a.number(nil)
		if !fits(v, t) {
			b.wrong(&exprProblem{at: a.node.at, kind: ErrValue, msg: fmt.Sprintf("the number %v is not of type %v", v, t)})
		}
		return expr.Bits(t, expr.Encode(t, v))
	}
	b.plan.params = append(b.plan.params, exprParam{a.number, t, a.node})
	return expr.Param(len(b.plan.params)-1, t)
}

// fits reports whether type t can hold v. It returns true for every floating point type.
func fits(v float64, t dtype.Type) bool {
	return t.IsFloat() || expr.Decode(t, expr.Encode(t, v)) == v
}

// gradients returns the gradient of each operand, nil for an operand without one. A gradient is an
// expression over the operands, the result and the result's gradient. gradients goes through the
// steps backwards, and uses the gradient that each op declares.
func (b *exprBuilder) gradients(root *exprValue) []*expr.Expr {
	to := map[*exprValue]*expr.Expr{root: expr.X(len(b.leafs))}
	for _, s := range slices.Backward(b.steps) {
		g := to[s.out]
		if g == nil || s.op.NoGrad || !s.out.t.IsFloat() {
			continue
		}
		for i, a := range s.args {
			if a.number != nil || !a.t.IsFloat() || s.op.Fixed>>i&1 != 0 {
				continue
			}
			d := s.op.partial(i)
			if d == nil {
				continue
			}
			y := s.out.e
			if s.out == root {
				y = nil // Y stands for the result itself
			}
			d = expr.Substitute(d, func(k int) *expr.Expr {
				if k == s.op.Arity {
					return g
				}
				return s.in[k]
			}, y)
			if was := to[a]; was != nil {
				d = was.Add(d)
			}
			to[a] = d
		}
	}
	grads := make([]*expr.Expr, len(b.leafs))
	for i, l := range b.leafs {
		grads[i] = to[l]
	}
	return grads
}
