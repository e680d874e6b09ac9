package tensor

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Result is the rule for the type of an elementwise op's result.
type Result uint8

// The rules for the type of a result.
const (
	Promoted   Result = iota // the operands' promoted type
	Floating                 // the promoted type, float32 for integers and bool
	Truth                    // bool, for every type of operands
	FixedFloat               // the promoted type; integers and bool are refused
	Integral                 // the promoted type; floats are refused
)

// An Elementwise declares an op that computes each element of its result from one element of each
// operand. Its implementation on every device, its gradient and its tests all follow from the
// declaration. If the operands are transposed in memory, the result is transposed too.
type Elementwise struct {
	Name   string
	Arity  int
	Result Result
	Expr   *expr.Expr // the implementation, over expr.X(0 … Arity-1) and expr.Param
	// Ref computes the op in float64. Tests compare the op with it.
	Ref func(x, params []float64) float64
	// Domain is the range from which tests sample operands: one interval for all operands, or one
	// interval for each.
	Domain [][2]float64
	// Grad holds the gradient of each operand as an expression over X, Y and g = X(Arity). A nil
	// entry means no gradient. Set it where the symbolic derivative of Expr is badly conditioned in
	// float32, or where torch chooses the value at a kink. Without Grad the gradient is
	// g·Diff(Expr).
	Grad []*expr.Expr
	// Params are sample values of the op's run-time scalars, one for each, for tests.
	Params []float64
	// Fixed has a bit for each operand that keeps its own type, such as a condition. Other operands
	// are converted to the promoted type.
	Fixed uint
	// NoGrad declares that the op has no gradient.
	NoGrad bool
	// NoBool makes the op refuse operands if all are bool.
	NoBool bool
	// Autocast says what mixed precision does with the operands.
	Autocast AutocastClass

	// types and stored are set for an op that [Expr] made: the types of the operands, and the type
	// of the result. The expression itself converts between these types. Other ops accept any
	// types.
	types  []dtype.Type
	stored dtype.Type

	// If the op is a form of another op, form is the other op's name. Messages and profiles show
	// that name.
	form string

	mu       sync.RWMutex
	programs map[signature]*expr.Program
	vjpOnce  sync.Once
	vjps     []vjpPart
}

// signature packs the types of the operands and of the result, four bits each.
type signature uint64

// vjpPart describes the gradient of one operand, which is computed by an op of its own.
type vjpPart struct {
	op    *Elementwise // nil if there is no gradient
	pass  bool         // true if the gradient is g itself
	x     []int        // indices of the original op's operands that are operands of this op
	usesY bool         // true if the original op's result is the operand after those in x
	// gFirst computes the same as op, with g as its first operand. It is nil unless op accepts
	// operands of any types and has two operands: g and another one.
	gFirst *Elementwise
}

var declared []*Elementwise

// Declare declares an elementwise op. [Declared] then lists it, and package optest compares the
// listed ops with their references.
func Declare(e *Elementwise) *Elementwise {
	declared = append(declared, e)
	return e
}

// called returns the name of the op in messages and profiles.
func (e *Elementwise) called() string {
	if e.form != "" {
		return e.form
	}
	return e.Name
}

// Declared returns all declared elementwise ops.
func Declared() []*Elementwise { return declared }

func (e *Elementwise) program(in []*Tensor, common, result dtype.Type) *expr.Program {
	sig := signature(result)<<4 | signature(common)
	for _, t := range in {
		sig = sig<<4 | signature(t.dtype)
	}
	e.mu.RLock()
	p := e.programs[sig]
	e.mu.RUnlock()
	if p != nil {
		return p
	}
	types := make([]dtype.Type, len(in))
	for i, t := range in {
		types[i] = t.dtype
	}
	body := expr.Substitute(e.Expr, func(i int) *expr.Expr {
		if i < len(in) && e.types == nil && e.Fixed>>i&1 == 0 && types[i].Compute() != common.Compute() {
			return expr.X(i).Cvt(common.Compute())
		}
		return nil
	}, nil)
	if !body.IsX(0) { // a program that only copies or casts keeps its own name instead of the op's
		body = body.Named(e.Name)
	}
	p, err := expr.Lower([]*expr.Expr{body}, []dtype.Type{result}, types, -1)
	if err != nil {
		fail(e.called(), ErrType, in, "%v", err)
	}
	e.mu.Lock()
	if e.programs == nil {
		e.programs = map[signature]*expr.Program{}
	}
	e.programs[sig] = p
	e.mu.Unlock()
	return p
}

// Apply broadcasts the operands to a common shape and computes the op. params are the values of its
// run-time scalars.
func (e *Elementwise) Apply(in []*Tensor, params ...float64) *Tensor {
	if y := e.autocast(in, params); y != nil {
		return y
	}
	return e.apply(in, params)
}

func (e *Elementwise) apply(in []*Tensor, params []float64) *Tensor {
	if len(in) != e.Arity || len(in) == 0 {
		fail(e.called(), ErrValue, in, "%d operands are given, it takes %d", len(in), e.Arity)
	}
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanOp, e.called(), nil, in))
	}
	s := youngest(e.called(), in)
	dev := sameDevice(e.called(), in)
	sh := broadcast(e.called(), in)
	common, result := e.resultType(in)
	p := e.program(in, common, result)
	y := alloc(e.called(), s, dev, result, sh)
	if e != cloneOp {
		y.follow(in)
	}
	run(e.called(), s, p, y, in, params)
	if !e.NoGrad && result.IsFloat() && wantsGrad(e.called(), s, in) {
		f := &elementwiseFunc{op: e, params: slices.Clone(params)}
		record(y, f, in, f.saves(in, y))
	}
	if s.modes.anomaly&AnomalyForward != 0 {
		y.inspect(e.called(), s.modes.anomaly, in)
	}
	return y
}

// follow sets the strides of y, which has no values yet, to the strides of the operands that have
// y's shape. It sets them only if these operands have equal strides and lie in memory without gaps.
// Then the op reads and writes memory in order. Operands that are broadcast do not count.
func (y *Tensor) follow(in []*Tensor) {
	var order *shape.Layout
	for _, t := range in {
		switch l := &t.layout; {
		case l.Shape != y.layout.Shape:
		case l.Contiguous():
			return
		case l.Overlaps():
		case order != nil && l.Strides != order.Strides:
			return
		default:
			order = l
		}
	}
	if order == nil {
		return
	}
	if lo, hi, _ := order.Span(); lo == order.Offset && hi-lo+1 == y.Size() {
		y.layout.Strides = order.Strides
	}
}

func broadcast(op string, in []*Tensor) shape.Dims {
	sh := in[0].layout.Shape
	for _, t := range in[1:] {
		if t.layout.Shape == sh {
			continue
		}
		r, dim, ok := shape.Broadcast(sh, t.layout.Shape)
		if !ok {
			p, q := sh.At(sh.Rank()-dim), t.layout.Shape.At(t.Rank()-dim)
			e := newError(op, ErrShape, in, fmt.Sprintf("shapes %s do not broadcast: dimension -%d is %d and %d, and neither is 1", shapes(in), dim, p, q))
			if len(in) == 2 {
				e.Hint = broadcastHint(in[0].layout.Shape, in[1].layout.Shape)
			}
			panic(e)
		}
		sh = r
	}
	return sh
}

// broadcastHint says how to make the shapes a and b broadcast, if there is an obvious way.
func broadcastHint(a, b shape.Dims) string {
	switch {
	case a.Rank() == 2 && b.Rank() == 2 && a.At(0) == b.At(1) && a.At(1) == b.At(0):
		return "did you mean T() of one of them?"
	case b.Rank() > 0 && b.Rank() < a.Rank() && a.Head(b.Rank()) == b:
		// b has one number for each row, or for each channel
		return "did you mean " + unsqueezed(a.Rank()-b.Rank()) + " of the second?"
	case a.Rank() > 0 && a.Rank() < b.Rank() && b.Head(a.Rank()) == a:
		return "did you mean " + unsqueezed(b.Rank()-a.Rank()) + " of the first?"
	}
	return ""
}

// unsqueezed returns the call that adds n dimensions at the end, for a hint.
func unsqueezed(n int) string { return strings.Repeat(".Unsqueeze(-1)", n)[1:] }

func shapes(in []*Tensor) string {
	s := ""
	for i, t := range in {
		switch {
		case i > 0 && i == len(in)-1:
			s += " and "
		case i > 0:
			s += ", "
		}
		s += t.layout.Shape.String()
	}
	return s
}

// elementwiseFunc is the [Function] that records an application of an elementwise op in the graph.
type elementwiseFunc struct {
	op     *Elementwise
	params []float64
}

func (f *elementwiseFunc) Name() string { return f.op.called() }

func (f *elementwiseFunc) Forward(c *Context, in []*Tensor) *Tensor {
	return f.op.Apply(in, f.params...)
}

// gradParts returns the gradient of each operand, which it derives once per op.
func (e *Elementwise) gradParts() []vjpPart {
	e.vjpOnce.Do(func() {
		e.vjps = make([]vjpPart, e.Arity)
		for k := range e.vjps {
			e.vjps[k] = e.gradPart(k)
		}
	})
	return e.vjps
}

// partial returns the gradient of operand k as an expression over X, Y and g = X(Arity). It returns
// nil if there is none.
func (e *Elementwise) partial(k int) *expr.Expr {
	g := expr.X(e.Arity)
	if e.Grad != nil {
		return e.Grad[k]
	}
	d := expr.Diff(e.Expr, k)
	switch {
	case d == nil:
		return nil
	case d.IsOne():
		return g
	}
	return g.Mul(d)
}

func (e *Elementwise) gradPart(k int) vjpPart {
	if e.Fixed>>k&1 != 0 {
		return vjpPart{}
	}
	d := e.partial(k)
	switch {
	case d == nil:
		return vjpPart{}
	case d.IsX(e.Arity):
		return vjpPart{pass: true}
	}
	used, usesY := expr.Uses(d)
	p := vjpPart{usesY: usesY}
	place := map[int]int{}
	for i := range e.Arity {
		if used[i] {
			place[i] = len(p.x)
			p.x = append(p.x, i)
		}
	}
	n := len(p.x)
	if usesY {
		n++
	}
	var fixed uint
	for i, at := range place {
		fixed |= e.Fixed >> i & 1 << at
	}
	d = expr.Substitute(d, func(i int) *expr.Expr {
		if i == e.Arity {
			return expr.X(n)
		}
		return expr.X(place[i])
	}, expr.X(len(p.x)))
	p.op = &Elementwise{Name: e.called() + ".grad", Arity: n + 1, Result: Floating, Expr: d, Fixed: fixed, Params: e.Params}
	if n == 1 && e.types == nil {
		q := &Elementwise{Name: p.op.Name, Arity: 2, Result: Floating, Params: e.Params}
		q.Expr = expr.Substitute(d, func(i int) *expr.Expr { return expr.X(1 - i) }, nil)
		p.gFirst = q
	}
	if e.types != nil {
		for _, i := range p.x {
			p.op.types = append(p.op.types, e.types[i])
		}
		if usesY {
			p.op.types = append(p.op.types, e.stored)
		}
		p.op.types, p.op.stored = append(p.op.types, e.stored), e.types[k]
	}
	return p
}

// saves returns the tensors that the wanted gradients need: operands in their order, and then the
// result.
func (f *elementwiseFunc) saves(in []*Tensor, y *Tensor) []*Tensor {
	x, usesY := f.neededValues(func(i int) bool { return in[i].needsGrad })
	var keep []*Tensor
	for i, t := range in {
		if x>>i&1 != 0 {
			keep = append(keep, t)
		}
	}
	if usesY {
		keep = append(keep, y)
	}
	return keep
}

// neededValues returns which values are needed to compute the gradients of all operands for which
// needs returns true. Bit i of x stands for the value of operand i, and usesY for the result.
func (f *elementwiseFunc) neededValues(needs func(i int) bool) (x uint, usesY bool) {
	for k, p := range f.op.gradParts() {
		if p.op == nil || !needs(k) {
			continue
		}
		for _, i := range p.x {
			x |= 1 << i
		}
		usesY = usesY || p.usesY
	}
	return x, usesY
}

func (f *elementwiseFunc) VJP(c *Context, g *Tensor) []*Tensor {
	mask, usesY := f.neededValues(c.Needs)
	saved := make([]*Tensor, f.op.Arity+1)
	k := 0
	for i := range f.op.Arity {
		if mask>>i&1 != 0 {
			saved[i] = c.Saved(k)
			k++
		}
	}
	if usesY {
		saved[f.op.Arity] = c.Saved(k)
	}
	grads := make([]*Tensor, f.op.Arity)
	for k, p := range f.op.gradParts() {
		if !c.Wants(k) || p.op == nil && !p.pass {
			continue
		}
		to := c.n.operands[k]
		if p.pass {
			grads[k] = g.sumTo(to.shape).Cast(to.dtype)
			continue
		}
		in := make([]*Tensor, 0, p.op.Arity)
		for _, i := range p.x {
			in = append(in, saved[i])
		}
		if p.usesY {
			in = append(in, saved[f.op.Arity])
		}
		if in = append(in, g); f.overwriteG(c, k, p.op, in) {
			grads[k] = g
			continue
		}
		grads[k] = p.op.applyReduced(in, f.params, to.shape, to.dtype)
	}
	return grads
}

// overwriteG computes the gradient of operand k into the memory of g, which is the last of the
// given operands. It reports false if that is impossible or if another gradient needs g.
func (f *elementwiseFunc) overwriteG(c *Context, k int, e *Elementwise, in []*Tensor) bool {
	g, to := in[len(in)-1], c.n.operands[k]
	if !c.mayOverwrite(g) || to.shape != g.layout.Shape || to.dtype != g.dtype || broadcast(e.called(), in) != to.shape {
		return false
	}
	for i := range c.needs {
		if i != k && c.Wants(i) {
			return false
		}
	}
	common, result := e.resultType(in)
	if result != g.dtype {
		return false
	}
	run(e.called(), c.scope, e.program(in, common, result), g, in, f.params)
	return true
}

// applyReduced computes the op, which is a gradient, and sums the result to shape sh in type t. If
// no graph is recorded this is one kernel without a temporary.
func (e *Elementwise) applyReduced(in []*Tensor, params []float64, sh shape.Dims, t dtype.Type) *Tensor {
	s := youngest(e.called(), in)
	full := broadcast(e.called(), in)
	if full == sh || wantsGrad(e.called(), s, in) {
		y := e.Apply(in, params...)
		return y.sumTo(sh).Cast(t)
	}
	common, result := e.resultType(in)
	p := e.program(in, common, result.Compute())
	out := alloc(e.called(), s, sameDevice(e.called(), in), t, sh)
	runReduce(e.called(), s, &device.Reduction{Kind: device.Sum, Map: p}, out, padTo(sh, full.Rank()), in, full, encode(p, params))
	return out
}

// padTo puts dimensions of size 1 before s until its rank is n.
func padTo(s shape.Dims, n int) shape.Dims {
	for s.Rank() < n {
		s = s.Insert(0, 1)
	}
	return s
}
