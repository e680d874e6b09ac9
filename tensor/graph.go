package tensor

import (
	"sync/atomic"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Function is a differentiable operation: how the library's heavy ops are written, and a user's
// own. For mixed precision it may also be an [Autocaster], and a [DeviceCrosser] for operands on
// several devices.
type Function interface {
	// Name is the operation's name in messages, such as "matmul".
	Name() string
	// Forward computes the result. It runs without recording a graph; intermediates die when it
	// returns.
	Forward(c *Context, in []*Tensor) *Tensor
	// VJP returns the gradient of each operand, given g, that of the result; nil for none. Written
	// with tensor ops, it can itself be differentiated. A gradient of a shape to which the
	// operand's broadcasts is summed, as in torch.
	VJP(c *Context, g *Tensor) []*Tensor
}

// A Context carries values from Forward to VJP and says which gradients are wanted.
type Context struct {
	scope *Scope
	needs []bool
	keep  []*Tensor // in Forward: to be saved
	more  []packed  // in Forward: what the node keeps beside them
	n     *node     // in VJP
	to    []*task   // in VJP: where its gradients go
	run   *engine   // in VJP
	took  int       // in VJP: 1 + the operand whose gradient includes what was pending
	past  *task     // in VJP: of an activation before operand 0, whose gradient that includes
}

// Scope is where intermediates belong.
func (c *Context) Scope() *Scope { return c.scope }

// Needs reports whether operand i requires a gradient. The answer in VJP is that in Forward, so
// that both agree on what was saved.
func (c *Context) Needs(i int) bool { return c.needs[i] }

// Wants reports, in VJP, whether the gradient of operand i is of use in this run. [Gradients] of a
// few inputs uses few of those that operands need. What VJP returns for the others is dropped.
func (c *Context) Wants(i int) bool { return c.needs[i] && (c.n == nil || c.to[i].wanted()) }

// Save keeps tensors for VJP: operands, or results. Another tensor, computed on the way in Forward,
// is a constant to a second derivative through VJP; what depends on operands is then to be computed
// again there.
func (c *Context) Save(t ...*Tensor) {
	for _, x := range t {
		x.use("save")
	}
	c.keep = append(c.keep, t...)
}

// Keep returns, in VJP, a handle of x that lasts until this run of Backward or [Gradients] ends,
// for another VJP that it comes to. All that one run keeps belongs to one scope, and no other run's
// does.
func (c *Context) Keep(x *Tensor) *Tensor {
	if c.n == nil {
		fail("keep", ErrValue, []*Tensor{x}, "there is no run of Backward in Forward; Save keeps a value for VJP")
	}
	x.use("keep")
	return x.handleWithGraph(c.scope.parent)
}

// Saved returns what Forward saved as number i. It fails if the value was changed in place
// meanwhile.
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
			return p.part(x, k)
		}
	}
	return x
}

// NumSaved returns how many tensors Forward saved.
func (c *Context) NumSaved() int { return len(c.n.saved) - c.n.kept() }

// An edge says where the gradient of an operand goes: to the node that made it, or to a leaf.
// Neither: nowhere.
type edge struct {
	node *node
	leaf *Tensor
}

// A saved value keeps storage alive without a handle, and knows its place in the graph for second
// derivatives.
type saved struct {
	st      *storage
	layout  shape.Layout
	dtype   dtype.Type
	version uint32
	from    edge
	needs   bool
	result  bool   // it is the node's own result
	packed  packed // what is kept instead of st, which is nil then
	given   bool   // it was given up before the node
}

// A node records how a tensor was computed.
type node struct {
	op       string
	f        Function
	inputs   []edge
	operands []operandInfo
	needs    []bool
	saved    []saved
	saves    int // how many there were, also when they are dropped
	hooks    atomic.Pointer[hooks]
	scope    *Scope
	seq      uint64 // grows with time, so that descending order is a topological one
	shape    shape.Dims
	dtype    dtype.Type
	dev      device.Device
	// of the scope, or the default one of dev: work on other devices takes theirs
	stream   device.Stream
	made     *site
	dropped  atomic.Bool
	packs    bool       // a packer has seen what it saved
	autocast dtype.Type // of VJP; Invalid, which is off, but for AutocastWithin
	tf32     bool       // of VJP too
}

// operandInfo is what a gradient must look like.
type operandInfo struct {
	shape shape.Dims
	dtype dtype.Type
	dev   device.Device
}

var sequence atomic.Uint64

// edgeOf returns where x's gradient goes.
func edgeOf(x *Tensor) edge {
	switch {
	case !x.needsGrad:
		return edge{}
	case x.node != nil:
		return edge{node: x.node}
	}
	return edge{leaf: x.base()}
}

// wantsGrad reports whether an op in scope s on in records a graph. A view whose memory an in-place
// op with a gradient has changed through another handle takes its new place in the graph; it fails
// for an operand that cannot, as its place is not that of its value any more.
func wantsGrad(op string, s *Scope, in []*Tensor) bool {
	if s.modes.noGrad {
		return false
	}
	for _, t := range in {
		t.current(op)
	}
	for _, t := range in {
		if t.needsGrad {
			return true
		}
	}
	return false
}

// record hangs y into the graph as f's result on in, saving keep.
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

// drop gives up what n saved.
func (n *node) drop() {
	if n.dropped.Swap(true) {
		return
	}
	for i := range n.saved {
		if !n.saved[i].given {
			n.saved[i].release()
		}
	}
	n.saved = nil
}

// restore makes a handle of a saved value in the VJP's scope.
func (v *saved) restore(c *Context) *Tensor {
	var x *Tensor
	if v.given {
		panic(c.run.freed(c.n))
	}
	if v.packed != nil {
		x = v.unpacked(c)
	} else {
		if now := v.st.version.Load(); now != v.version {
			panic(v.modified(c.n, now, v.version))
		}
		// its version has been checked
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

// modified says that a saved value was changed in place.
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

// Apply runs f on in. The result belongs to the youngest scope among the operands, which are on one
// device unless f is a [DeviceCrosser].
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
	} else if vigils.n.Load() != 0 {
		s.missCast(op, classOf(f), in, 0)
	}
	grad := wantsGrad(op, s, in)
	c := &Context{scope: s.child(), needs: make([]bool, len(in))}
	defer c.scope.recycle()
	c.scope.modes.noGrad, c.scope.modes.anomaly = true, 0 // its result is looked at, as that of op
	if class != AutocastThrough && class != AutocastWithin {
		c.scope.modes.autocast = dtype.Invalid
	}
	for i, t := range in {
		c.needs[i] = grad && t.needsGrad
	}
	inner := make([]*Tensor, len(in))
	for i, t := range in {
		inner[i] = t.detachedIn(c.scope)
	}
	y := f.Forward(c, inner)
	y.use(op)
	keep := c.keep
	// an operand itself: give the result a handle of its own
	if y.scope != c.scope || contains(inner, y) {
		y = y.handle(op, c.scope, y.layout)
	}
	y.op = op
	if !grad {
		c.scope.close([]*Tensor{y}, false)
		c.unkept()
		return y
	}
	// What Forward saved of its operands is the operands themselves, with their place in the graph.
	for i, k := range keep {
		for j, t := range inner {
			if k == t {
				keep[i] = in[j]
			}
		}
	}
	s.own(y, true)
	record(y, f, in, keep)
	y.node.keepMore(c.more)
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

// detachedIn makes a handle of x without its graph in scope s.
func (x *Tensor) detachedIn(s *Scope) *Tensor {
	y := x.handle(x.op, s, x.layout)
	y.made = x.made
	return y
}

// RequiresGrad makes x, a leaf of floating point type, collect a gradient, and returns it. A result
// that requires one stays as it is.
func (x *Tensor) RequiresGrad() *Tensor {
	x.use("requires_grad")
	if !x.dtype.IsFloat() {
		e := newError("requires_grad", ErrType, []*Tensor{x}, "only floating point tensors have gradients, this one is "+x.dtype.String())
		panic(e.hint("use Float first"))
	}
	if x.NeedsGrad() && x.node != nil {
		return x // a result has a gradient already
	}
	x.needsGrad = true
	x.base().needsGrad, x.base().frozen = true, false // In's handle stands for the leaf
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

// IsFrozen reports whether x is a leaf that was told to require no gradient, by
// SetRequiresGrad(false) as nn.Freeze does it: a parameter that is not to be trained for now. A
// leaf of which nothing was said is not frozen.
func (x *Tensor) IsFrozen() bool {
	x.synced()
	return x.node == nil && x.base().frozen
}

// NeedsGrad reports whether gradients flow into x.
func (x *Tensor) NeedsGrad() bool {
	x.synced()
	return x.needsGrad
}

// IsLeaf reports whether x is not the result of a recorded op.
func (x *Tensor) IsLeaf() bool {
	x.synced()
	return x.node == nil
}

// Grad returns the gradient that Backward has collected in x, a leaf or a result that retains its
// own ([Tensor.RetainGrad]), or nil.
func (x *Tensor) Grad() *Tensor {
	b := x.base()
	b.gradMu.Lock()
	defer b.gradMu.Unlock()
	return b.grad
}

// SetGrad replaces the gradient of x by g, which moves to x's scope; nil frees it.
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
			b.scope.own(g, true)
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

// ZeroGrad frees the gradient of x, as torch's zero_grad(set_to_none=True).
func (x *Tensor) ZeroGrad() { x.SetGrad(nil) }

// Detach returns a view of x that is cut off the graph.
func (x *Tensor) Detach() *Tensor {
	x.use("detach")
	y := x.handle("detach", x.scope, x.layout)
	y.recorded.Store(detached)
	return y
}

// TakeGrad takes the gradient away from x, a leaf, and returns it, or nil: what Backward then adds
// up begins anew, and [Tensor.SetGrad] gives the old one back. Unlike [Tensor.ZeroGrad] it frees
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
