package tensor

import (
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Function is a differentiable operation. The library's heavy ops are Functions, and users may
// write their own. A Function may also be an [Autocaster], for mixed precision, and a
// [DeviceCrosser], for operands on several devices.
type Function interface {
	// Name is the operation's name in messages, such as "matmul".
	Name() string
	// Forward computes the result. It runs without recording a graph, and its intermediate tensors
	// are freed when it returns.
	Forward(c *Context, in []*Tensor) *Tensor
	// VJP returns the gradient of each operand, nil for an operand without one. g is the gradient
	// of the result. If VJP uses tensor ops, it can itself be differentiated. A gradient may have a
	// shape to which the operand's shape broadcasts. It is then summed to the operand's shape, as
	// in torch.
	VJP(c *Context, g *Tensor) []*Tensor
}

// A Context carries values from Forward to VJP and says which gradients are wanted.
type Context struct {
	scope *Scope
	needs []bool
	keep  []*Tensor // in Forward: tensors to save
	extra []packed  // in Forward: other values that the node keeps
	n     *node     // in VJP: the node whose VJP runs
	to    []*task   // in VJP: the tasks of the operands' gradients
	run   *engine   // in VJP: the run of Backward or Gradients
	// in VJP: 1+i if the gradient that VJP returns for operand i includes the gradient from
	// c.pending(i); 0 if no returned gradient includes a pending one
	took int
	// in VJP: the task of the activation from which operand 0 comes, if VJP has computed the
	// activation's gradient too
	past *task
}

// Scope returns the scope for intermediate tensors.
func (c *Context) Scope() *Scope { return c.scope }

// Needs reports whether operand i requires a gradient. It returns the same in VJP as in Forward. So
// Forward and VJP agree on which tensors were saved.
func (c *Context) Needs(i int) bool { return c.needs[i] }

// Wants reports, in VJP, whether this run uses the gradient of operand i. [Gradients] of a few
// inputs uses only a few of the gradients that Needs reports. The remaining gradients are dropped
// if VJP returns them.
func (c *Context) Wants(i int) bool { return c.needs[i] && (c.n == nil || c.to[i].wanted()) }

// Save keeps tensors for VJP: operands or results. A saved intermediate tensor of Forward is a
// constant when VJP is differentiated. So if it depends on operands, VJP must compute it again for
// second derivatives.
func (c *Context) Save(t ...*Tensor) {
	for _, x := range t {
		x.use("save")
	}
	c.keep = append(c.keep, t...)
}

// Keep returns, in VJP, a handle of x that lives until this run of Backward or [Gradients] ends, so
// that another VJP of the run can use it. All handles that one run keeps belong to one scope.
// Different runs have different scopes.
func (c *Context) Keep(x *Tensor) *Tensor {
	if c.n == nil {
		fail("keep", ErrValue, []*Tensor{x}, "there is no run of Backward in Forward; Save keeps a value for VJP")
	}
	x.use("keep")
	return x.handleWithGraph(c.scope.parent)
}

// Saved returns tensor i of those that Forward saved, counted from 0. It panics if the tensor was
// changed in place since then.
func (c *Context) Saved(i int) *Tensor {
	switch {
	case c.n == nil:
		fail("saved", ErrValue, nil, "values are saved by Forward for VJP; Forward has none yet")
	case i < 0 || i >= c.NumSaved():
		fail("saved", ErrValue, nil, "Forward of %s saved %d values, there is no number %d", c.n.op, c.NumSaved(), i)
	}
	x := c.n.saved[i].restore(c)
	if p, ok := c.n.f.(*resultsOf); ok {
		if k, ok := p.saved[i]; ok {
			return p.resultView(x, k)
		}
	}
	return x
}

// NumSaved returns how many tensors Forward saved.
func (c *Context) NumSaved() int { return len(c.n.saved) - c.n.numExtra() }

// An edge says which node or leaf receives the gradient of an operand: the node that made the
// operand, or the leaf. The zero edge stands for no node and no leaf.
type edge struct {
	node *node
	leaf *Tensor
}

// saved keeps the storage of a saved tensor alive without a handle. It also keeps the tensor's
// position in the graph, for second derivatives.
type saved struct {
	st      *storage
	layout  shape.Layout
	dtype   dtype.Type
	version uint32
	from    edge
	needs   bool
	result  bool   // true if the saved tensor is the node's own result
	packed  packed // the value that a packer keeps instead of st, which is then nil
	// true if the VJP has released the value already, so that the node must not release it again
	released bool
}

// A node records how a tensor was computed.
type node struct {
	op       string
	f        Function
	inputs   []edge
	operands []operandInfo
	needs    []bool
	saved    []saved
	saves    int // number of values that the node has saved; stays the same when they are dropped
	hooks    atomic.Pointer[hooks]
	scope    *Scope
	seq      uint64 // grows with time, so that descending order is a topological order
	shape    shape.Dims
	dtype    dtype.Type
	dev      device.Device
	// The stream of the scope, or dev's default stream if the scope has none. VJPs use this stream
	// for work on dev.
	stream   device.Stream
	made     *site
	dropped  atomic.Bool
	packs    bool       // true if a packer has packed saved values of this node
	autocast dtype.Type // autocast's type in VJP; Invalid (off) unless the class is AutocastWithin
	tf32     bool       // true if the scope allows TF32; VJP then allows it too
}

// operandInfo holds the properties of an operand that its gradient must have too.
type operandInfo struct {
	shape shape.Dims
	dtype dtype.Type
	dev   device.Device
}

var sequence atomic.Uint64

// edgeOf returns the edge that x's gradient follows.
func edgeOf(x *Tensor) edge {
	switch {
	case !x.needsGrad:
		return edge{}
	case x.node != nil:
		return edge{node: x.node}
	}
	return edge{leaf: x.base()}
}

// wantsGrad reports whether an op in scope s records a graph. An operand may be a view whose memory
// an in-place op with a gradient has changed through another handle. wantsGrad moves such a view to
// its new position in the graph. It panics if that is impossible.
func wantsGrad(op string, s *Scope, in []*Tensor) bool {
	if s.modes.noGrad {
		return false
	}
	for _, t := range in {
		t.mustBeCurrent(op)
	}
	for _, t := range in {
		if t.needsGrad {
			return true
		}
	}
	return false
}

// record adds y to the graph as the result of f, and saves the tensors in keep.
func record(y *Tensor, f Function, in, keep []*Tensor) {
	s := y.scope
	n := &node{op: f.Name(), f: f, seq: sequence.Add(1), shape: y.layout.Shape, dtype: y.dtype, dev: y.st.dev,
		stream: s.modes.stream, tf32: s.modes.tf32, made: y.made, scope: s}
	if n.stream == nil {
		n.stream = y.st.dev.DefaultStream()
	}
	n.inputs = make([]edge, len(in))
	n.needs = make([]bool, len(in))
	n.operands = make([]operandInfo, len(in))
	for i, t := range in {
		n.operands[i] = operandInfo{t.layout.Shape, t.dtype, t.st.dev}
		n.inputs[i] = edgeOf(t)
		n.needs[i] = t.needsGrad
	}
	if len(keep) > 0 {
		n.saved, n.saves = make([]saved, len(keep)), len(keep)
		for i, t := range keep {
			n.saved[i] = s.modes.save(n, t, t == y)
		}
	}
	y.node, y.needsGrad = n, true
	s.ownNode(n)
	s.missRecord(n.op)
	if t := device.Tracing(); t != nil {
		t.Recorded(n.seq)
	}
}

// drop releases the values that n saved.
func (n *node) drop() {
	if n.dropped.Swap(true) {
		return
	}
	for i := range n.saved {
		if !n.saved[i].released {
			n.saved[i].release()
		}
	}
	n.saved = nil
}

// restore makes a handle of a saved value in the VJP's scope.
func (v *saved) restore(c *Context) *Tensor {
	var x *Tensor
	if v.released {
		panic(c.run.freed(c.n))
	}
	if v.packed != nil {
		x = v.unpacked(c)
	} else {
		if now := v.st.version.Load(); now != v.version {
			panic(v.modified(c.n, now, v.version))
		}
		x = handleOf("saved by "+c.n.op, c.scope, v.st, v.layout, v.dtype)
	}
	x.needsGrad = v.needs
	switch {
	case v.result:
		x.node, x.needsGrad = c.n, true
	case v.from.node != nil:
		x.node = v.from.node
	default:
		x.leaf = v.from.leaf
	}
	return x
}

// modified returns the error for a saved value that was changed in place.
func (v *saved) modified(n *node, now, then uint32) *Error {
	e := newError(n.op, ErrInPlace, nil, "a value needed for its gradient was modified by an in-place operation: it is at version "+
		utoa(now)+", saved at version "+utoa(then))
	e.hint("replace that operation by one that returns a new tensor, or apply it to a Clone")
	e.Operands = []Operand{{Shape: v.layout.Shape, Type: v.dtype, Device: n.dev.Name(), Origin: n.origin()}}
	return e
}

func (n *node) origin() string {
	if s := n.made.String(); s != "" {
		return n.op + " at " + s
	}
	if n.scope != nil && n.scope.opened != nil {
		return "result of " + n.op + " " + n.scope.opened.String()
	}
	return "result of " + n.op
}

func utoa(v uint32) string {
	var b [10]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + v%10)
		if v /= 10; v == 0 {
			return string(b[i:])
		}
	}
}

// Apply runs f on the given operands. The result belongs to the youngest scope among the operands.
// All operands must be on one device, unless f is a [DeviceCrosser].
func Apply(f Function, in ...*Tensor) *Tensor {
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanOp, f.Name(), nil, in))
	}
	y := apply(f, in)
	if checks := y.scope.modes.anomaly; checks&AnomalyForward != 0 {
		y.inspect(y.op, checks, in)
	}
	return y
}

func apply(f Function, in []*Tensor) *Tensor {
	op := f.Name()
	if len(in) == 0 {
		fail(op, ErrValue, nil, "a function needs at least one operand")
	}
	s := youngest(op, in)
	if !crosses(f) {
		sameDevice(op, in)
	}
	class := AutocastThrough
	if s.modes.autocast != dtype.Invalid {
		var made []*Tensor
		class = classOf(f)
		in = s.operands(class, in, 0, &made)
		defer freeAll(&made)
	} else if modeWatches.n.Load() != 0 {
		s.missCast(op, classOf(f), in, 0)
	}
	grad := wantsGrad(op, s, in)
	if f, ok := f.(lean); ok && s.modes.autocast == dtype.Invalid {
		if y := applyLean(f, s, in, grad); y != nil {
			return y
		}
	}
	own := &ownContext{}
	c := own.fill(s.child(), in, grad)
	defer c.scope.recycle()
	// Apply checks the result of f for anomalies. So the ops that Forward calls need no check of
	// their own.
	c.scope.modes.noGrad, c.scope.modes.anomaly = true, 0
	if class != AutocastThrough && class != AutocastWithin {
		c.scope.modes.autocast = dtype.Invalid
	}
	inner := own.operands
	for i, t := range in {
		inner[i] = t.detachedIn(c.scope)
	}
	y := f.Forward(c, inner)
	y.use(op)
	keep := c.keep
	// the result is an operand or belongs to another scope: make a new handle of it
	if y.scope != c.scope || contains(inner, y) {
		y = y.handle(op, c.scope, y.layout)
	}
	y.op = op
	if !grad {
		c.scope.close([]*Tensor{y}, false)
		c.dropExtra()
		return y
	}
	// Save the caller's operands instead of Forward's handles, because only they are part of the
	// graph.
	for i, k := range keep {
		for j, t := range inner {
			if k == t {
				keep[i] = in[j]
			}
		}
	}
	s.addOwned(y, true)
	record(y, f, in, keep)
	y.node.appendExtra(c.extra)
	if class == AutocastWithin {
		y.node.autocast = s.modes.autocast
	}
	c.scope.close(nil, false)
	return y
}

func contains(list []*Tensor, x *Tensor) bool {
	for _, t := range list {
		if t == x {
			return true
		}
	}
	return false
}

// detachedIn makes a handle of x in scope s that is not part of the graph.
func (x *Tensor) detachedIn(s *Scope) *Tensor {
	y := x.handle(x.op, s, x.layout)
	y.made = x.made
	return y
}

// RequiresGrad makes the leaf x collect a gradient, and returns x. x must be floating point. A
// result that is part of the graph stays unchanged.
func (x *Tensor) RequiresGrad() *Tensor {
	x.use("requires_grad")
	if !x.dtype.IsFloat() {
		e := newError("requires_grad", ErrType, []*Tensor{x}, "only floating point tensors have gradients, this one is "+x.dtype.String())
		panic(e.hint("use Float first"))
	}
	if x.NeedsGrad() && x.node != nil {
		return x // a recorded result requires a gradient already
	}
	x.needsGrad = true
	// x may be a handle from In, which represents the leaf
	x.base().needsGrad, x.base().frozen = true, false
	return x
}

// SetRequiresGrad switches the collection of gradients of a leaf on or off.
func (x *Tensor) SetRequiresGrad(on bool) *Tensor {
	if on {
		return x.RequiresGrad()
	}
	x.use("requires_grad")
	if x.node != nil {
		fail("requires_grad", ErrGrad, []*Tensor{x}, "only leaves can be told not to require a gradient; use Detach")
	}
	x.needsGrad = false
	x.base().needsGrad, x.base().frozen = false, true
	return x
}

// IsFrozen reports whether x is a leaf for which SetRequiresGrad(false) was called last, as
// nn.Freeze does for parameters that are not trained for now. A leaf on which neither RequiresGrad
// nor SetRequiresGrad was called is not frozen.
func (x *Tensor) IsFrozen() bool {
	x.synced()
	return x.node == nil && x.base().frozen
}

// NeedsGrad reports whether x requires a gradient.
func (x *Tensor) NeedsGrad() bool {
	x.synced()
	return x.needsGrad
}

// IsLeaf reports whether x is not the result of a recorded op.
func (x *Tensor) IsLeaf() bool {
	x.synced()
	return x.node == nil
}

// Grad returns the gradient that Backward has collected in x, or nil. x is a leaf, or a result that
// retains its gradient ([Tensor.RetainGrad]).
func (x *Tensor) Grad() *Tensor {
	b := x.base()
	b.gradMu.Lock()
	defer b.gradMu.Unlock()
	return b.grad
}

// SetGrad replaces the gradient of x by g, which moves to x's scope. The old gradient is freed. g
// may be nil.
func (x *Tensor) SetGrad(g *Tensor) {
	x.use("set_grad")
	b := x.base()
	if g != nil {
		g.use("set_grad")
		if g.Shape() != x.Shape() {
			fail("set_grad", ErrShape, []*Tensor{x, g}, "a gradient has the shape of its tensor")
		}
		if g.dtype != x.dtype {
			fail("set_grad", ErrType, []*Tensor{x, g}, "a gradient has the type of its tensor")
		}
		sameDevice("set_grad", []*Tensor{x, g})
		if g.scope != b.scope {
			b.scope.addOwned(g, true)
		}
	}
	b.gradMu.Lock()
	old := b.grad
	b.grad = g
	b.gradMu.Unlock()
	if old != nil && old != g {
		old.Free()
	}
}

// ZeroGrad frees the gradient of x, as torch's zero_grad(set_to_none=True) does.
func (x *Tensor) ZeroGrad() { x.SetGrad(nil) }

// Detach returns a view of x that is not part of the graph.
func (x *Tensor) Detach() *Tensor {
	x.use("detach")
	y := x.handle("detach", x.scope, x.layout)
	y.recorded.Store(detached)
	return y
}

// TakeGrad removes the gradient from the leaf x and returns it, or nil. Backward then starts a new
// gradient, and [Tensor.SetGrad] can put the old gradient back. Unlike [Tensor.ZeroGrad] it frees
// nothing. In PyTorch: g = x.grad; x.grad = None.
func (x *Tensor) TakeGrad() *Tensor {
	x.use("take_grad")
	b := x.base()
	b.gradMu.Lock()
	defer b.gradMu.Unlock()
	g := b.grad
	b.grad = nil
	return g
}
