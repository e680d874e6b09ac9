package tensor

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// A Scope owns tensors, and frees them all when it is closed. The result of an op belongs to the
// youngest scope among its operands, so the scope travels with the batch. A scope also carries the
// modes that PyTorch keeps in thread-locals: no-grad, default device, stream, generator, name.
//
// A mode affects only tensors that belong to the scope: x.In(s) lends the tensor x to the scope s,
// s.From(x) moves x to it. If no op runs in a scope with [NoGrad] or [Autocast], its mode has no
// effect. This may be a mistake: perhaps the mode was meant for an op outside of the scope. So
// closing the scope is an error if such an op recorded a graph, or computed in another type than
// the mode says. Only ops on the goroutine that opened the scope count.
//
// Several goroutines may use a scope. Only one may close it.
type Scope struct {
	parent   *Scope
	depth    int
	modes    modes
	opened   *scopeSite
	closedAt *site
	closer   *site // the call of Do that closes the scope; nil if no call of Do closes it

	mu       sync.Mutex
	owned    []*Tensor
	nodes    []*node
	children int
	closed   bool
	internal bool // true for an internal scope of the library, which is reused and has no ledger
	ledger   *ledger
	span     device.SpanID // span that shows the scope's name in a trace
	// watch is nil after the first use of the scope, or if the scope sets neither NoGrad nor
	// Autocast.
	watch atomic.Pointer[modeWatch]
}

// modes holds the modes of a scope. Child scopes inherit them.
type modes struct {
	noGrad    bool
	withGrad  bool // true if WithGrad was given
	sites     bool // true if the call site of every result is recorded
	dev       device.Device
	stream    device.Stream
	gen       *Generator
	capture   *Graph
	across    []device.Device // devices of the option Across; nil once Capture has read them
	name      string
	path      string // names of all enclosing scopes and of this scope, for memory reports
	nondet    bool
	composed  bool // true if no fast kernels are used
	anomaly   AnomalyCheck
	autocast  dtype.Type // the type of mixed precision; Invalid means off
	casts     *castCache
	floatType dtype.Type
	tf32      bool // true if products of float32 may be computed in TF32

	// packer that decides what is kept instead of saved values; nil keeps the values themselves
	saver       packer
	recomputing bool          // true while a checkpointed segment is computed again
	span        device.SpanID // span of the innermost scope that has a name, in a trace
}

// An Option sets a mode of a scope.
type Option func(*modes)

// NoGrad makes a scope in which results record no graph. The mode does not affect an expression
// whose tensors all belong to older scopes. To make such an expression part of this scope s, begin
// it with x.In(s). nn.Infer runs a whole model in this way.
func NoGrad() Option { return func(m *modes) { m.noGrad, m.withGrad = true, false } }

// WithGrad undoes [NoGrad] for a child scope, as torch.enable_grad does.
func WithGrad() Option { return func(m *modes) { m.noGrad, m.withGrad = false, true } }

// On sets the device on which the scope creates tensors.
func On(d device.Device) Option { return func(m *modes) { m.dev, m.stream = d, nil } }

// Stream sets the stream on which the scope's work on the stream's device is queued.
func Stream(s device.Stream) Option { return func(m *modes) { m.stream = s } }

// Seed creates a generator for the scope, with this seed.
func Seed(n uint64) Option { return func(m *modes) { m.gen = NewGenerator(n) } }

// WithGenerator makes the scope draw from g.
func WithGenerator(g *Generator) Option { return func(m *modes) { m.gen = m.capture.generator(g) } }

// Named sets the name of the scope for memory reports and profiles.
func Named(name string) Option { return func(m *modes) { m.name = name } }

// RecordSites records the call site of every result in the scope, for error messages and memory
// reports. Without it, only created and large tensors have a call site.
func RecordSites() Option { return func(m *modes) { m.sites = true } }

// Nondeterministic allows kernels whose floating point sums have no fixed order
// (torch.use_deterministic_algorithms(False)). So far there are no such kernels, so results do not
// change.
func Nondeterministic() Option { return func(m *modes) { m.nondet = true } }

// Composed makes heavy ops run as compositions of primitives, even if the device has a fast kernel
// for them. Tests compare the kernels with the compositions. Composed also helps to find out
// whether a kernel is wrong.
func Composed() Option { return func(m *modes) { m.composed = true } }

// joinNames appends the name of a scope to the path of names of the scopes around it.
func joinNames(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "/" + name
}

type scopeSite struct {
	at    *site
	name  string
	outer *scopeSite // the site of the enclosing scope, nil if that is the root scope
}

func (s *scopeSite) String() string {
	w := "in the scope"
	if s.name != "" {
		w += fmt.Sprintf(" %q", s.name)
	}
	if at := s.at.String(); at != "" {
		return w + " opened at " + at
	}
	// s was opened deep in the library, so look for an enclosing scope with a known line
	for o := s.outer; o != nil; o = o.outer {
		if at := o.at.String(); at != "" {
			return w + " inside the one opened at " + at
		}
	}
	return w
}

var root = &Scope{modes: modes{gen: NewGenerator(0), floatType: dtype.F32}}

// Root returns the scope of the process, which never closes. It owns parameters and all tensors
// that are made outside of a scope. They are freed by [Tensor.Free], or after the garbage collector
// has found them unreachable.
func Root() *Scope { return root }

// NewScope opens a scope below the root scope. Most programs use [Do] instead.
func NewScope(opts ...Option) *Scope { return root.New(opts...) }

// Do runs f with a new scope below the root scope and closes it, even if f panics. Inside of
// another scope s use s.Do: the new scope is then inside of s and inherits the modes of s, as
// nested contexts do in PyTorch.
func Do(f func(s *Scope), opts ...Option) { root.Do(f, opts...) }

// Do runs f with a new child of s and closes it, even if f panics.
func (s *Scope) Do(f func(s *Scope), opts ...Option) {
	c := s.open(false, opts)
	done := false
	defer func() {
		if !done {
			c.abandon()
		}
	}()
	f(c)
	if !c.isClosed() {
		c.closer = c.opened.at // looking up the caller again would take as long as a small op
		c.Close()
	}
	done = true
}

// New opens a child scope. It inherits the modes of s, changed by opts.
func (s *Scope) New(opts ...Option) *Scope { return s.open(true, opts) }

// open does what New does. If loose is true, another goroutine may close the scope.
func (s *Scope) open(loose bool, opts []Option) *Scope {
	c := &Scope{parent: s, depth: s.depth + 1, modes: s.modes}
	c.modes.name = ""
	for i, o := range opts {
		if o == nil {
			fail("scope.new", ErrValue, nil, "option %d is nil", i)
		}
		o(&c.modes)
	}
	if c.modes.across != nil {
		fail("scope.new", ErrValue, nil, "Across is an option of Capture")
	}
	c.modes.capture.route(&c.modes)
	c.modes.path = joinNames(s.modes.path, c.modes.name)
	if c.modes.autocast != s.modes.autocast {
		c.modes.casts = &castCache{scope: c}
	}
	c.opened = &scopeSite{at: callSite(), name: c.modes.name, outer: s.opened}
	c.ledger = &ledger{}
	s.markUsed()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		panic(s.closedError("scope.new", nil))
	}
	s.children++
	c.watchModes(s, loose)
	c.nameSpan(loose)
	return c
}

var scopes = sync.Pool{New: func() any { return &Scope{internal: true} }}

// child opens a scope for the library's own intermediate tensors. Every path of the caller must
// close it.
func (s *Scope) child() *Scope {
	c := scopes.Get().(*Scope)
	c.parent, c.depth, c.modes, c.opened, c.closed, c.closedAt = s, s.depth+1, s.modes, s.opened, false, nil
	s.mu.Lock()
	s.children++
	s.mu.Unlock()
	return c
}

// recycle closes an internal scope, unless it is closed already, and returns it for reuse. It does
// not reuse a scope in which a user's function left a child open, because that child still points
// to it.
func (s *Scope) recycle() {
	s.mu.Lock()
	closed, left := s.closed, s.children > 0
	s.mu.Unlock()
	if !closed {
		s.close(nil, true)
	}
	if left {
		return
	}
	s.parent = nil
	s.modes = modes{}
	scopes.Put(s)
}

func (s *Scope) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Device returns the device on which the scope creates tensors. It is the CPU unless the scope was
// opened with [On].
func (s *Scope) Device() device.Device {
	s.markUsed()
	if s.modes.dev != nil {
		return s.modes.dev
	}
	return hostDevice()
}

// Generator returns the generator that random ops of the scope use.
func (s *Scope) Generator() *Generator {
	s.markUsed()
	return s.modes.gen
}

// GradEnabled reports whether ops of the scope record a graph.
func (s *Scope) GradEnabled() bool {
	s.markUsed()
	return !s.modes.noGrad
}

// streamOf returns the stream of s for dev. Code that queues work on the stream calls the method
// route instead.
func (s *Scope) streamOf(dev device.Device) device.Stream {
	if st := s.modes.stream; st != nil && st.Device() == dev {
		return st
	}
	if st := s.modes.capture.firstStream(dev); st != nil {
		return st
	}
	return dev.DefaultStream()
}

// addOwned makes s the owner of handle x. If fresh is true, x's storage has no owner yet either.
func (s *Scope) addOwned(x *Tensor, fresh bool) {
	// Keep x's old scope reachable until the storage is noted in s. Otherwise the garbage
	// collector's cleanup of the old scope might free the storage.
	defer runtime.KeepAlive(x.scope)
	x.scope = s
	if s == root {
		if fresh {
			s.note(x.st)
		}
		return
	}
	s.markUsed()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		x.drop()
		panic(s.closedError(x.op, nil))
	}
	switch n := len(s.owned); {
	case s.owned == nil:
		s.owned = make([]*Tensor, 0, 8) // few scopes own fewer handles, and each growth allocates
	case n == cap(s.owned) && n >= 256:
		s.owned = compact(s.owned)
	}
	s.owned = append(s.owned, x)
	if fresh {
		s.note(x.st)
	}
	s.mu.Unlock()
}

func compact(owned []*Tensor) []*Tensor {
	live := owned[:0]
	for _, t := range owned {
		if !t.freed.Load() {
			live = append(live, t)
		}
	}
	clear(owned[len(live):])
	return live
}

// Close frees everything that s owns, except the given tensors. These move to the parent scope,
// with the part of the graph that they need. To leave the graph behind, pass x.Detach() instead of
// x. Close panics if s is closed already or has open children.
func (s *Scope) Close(keep ...*Tensor) { s.close(keep, false) }

// abandon closes s during a panic. Open children do not matter then.
func (s *Scope) abandon() {
	if !s.isClosed() {
		s.close(nil, true)
	}
}

func (s *Scope) close(keep []*Tensor, force bool) {
	if s == root {
		fail("scope.close", ErrScope, nil, "the root scope cannot be closed")
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		fail("scope.close", ErrScope, nil, "%v is closed already", s)
	}
	if s.children > 0 && !force {
		n := s.children
		s.mu.Unlock()
		fail("scope.close", ErrScope, nil, "%v has %d open child scopes", s, n)
	}
	s.mu.Unlock()
	for _, t := range keep {
		t.use("scope.close")
		if t.scope != s && !t.scope.encloses(s) {
			fail("scope.close", ErrScope, []*Tensor{t}, "the tensor to keep belongs neither to %v nor to one around it", s)
		}
	}
	p := s.parent
	if len(keep) > 0 && !s.internal && p.isClosed() { // without this check addOwned would fail
		panic(p.closedError("scope.close", keep[0]))
	}
	s.end(keep)
	p.mu.Lock()
	p.children--
	p.mu.Unlock()
	if e := s.unusedModeError(); e != nil && !force {
		panic(e)
	}
}

// end marks s as closed, moves the given tensors to the parent and drops everything else.
func (s *Scope) end(keep []*Tensor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owned, nodes := s.owned, s.nodes
	s.closed = true
	defer s.endSpan() // memory that is freed below counts for this span
	switch {
	case s.internal:
	case s.closer != nil:
		s.closedAt = s.closer
	default:
		s.closedAt = callSite()
	}
	storages := s.ledger.clear()
	if len(keep) > 0 {
		s.moveToParent(keep)
	}
	for _, n := range nodes {
		if n.scope == s {
			n.drop()
		}
	}
	for _, t := range owned {
		if t.scope == s {
			t.drop()
		}
	}
	// a storage that a handle in another scope keeps alive needs a cleanup of its own
	for _, st := range storages {
		if !st.freed.Load() && st.ledger.Load() == nil {
			st.watch()
		}
	}
	clear(owned)
	clear(nodes)
	s.owned, s.nodes = nil, nil
	if s.internal {
		s.owned, s.nodes = owned[:0], nodes[:0]
	}
}

// moveToParent moves the given tensors to the parent, together with the nodes and leaves of s that
// their graph needs, and the leaves' gradients. The caller holds s.mu.
func (s *Scope) moveToParent(keep []*Tensor) {
	p := s.parent
	plain := true
	for _, t := range keep {
		plain = plain && t.node == nil && t.leaf == nil && t.grad == nil
	}
	if plain {
		for _, t := range keep {
			if t.scope == s {
				p.addOwned(t, true)
			}
		}
		return
	}
	var stack []*node
	seen := map[*node]bool{}
	push := func(n *node) {
		if n != nil && n.scope == s && !seen[n] {
			seen[n] = true
			stack = append(stack, n)
		}
	}
	var move func(t *Tensor)
	move = func(t *Tensor) {
		mine := t.scope == s
		if mine {
			p.addOwned(t, true)
		}
		push(t.node)
		if t.leaf != nil {
			move(t.leaf)
		}
		// an older tensor keeps its gradient, to which other goroutines may be adding
		if mine && t.grad != nil {
			move(t.grad)
		}
	}
	for _, t := range keep {
		move(t)
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		p.ownNode(n)
		for i := range n.saved {
			// also visit saved tensors that are no operands, such as autocast's cast of a weight
			push(n.saved[i].from.node)
			if v := n.saved[i].packed; v != nil {
				push(v.neededNode())
				if b, ok := v.(*branch); ok && b.at.leaf != nil {
					move(b.at.leaf)
				}
			}
		}
		for _, e := range n.inputs {
			push(e.node)
			if e.leaf != nil {
				move(e.leaf)
			}
		}
	}
}

// ownNode makes s the owner of n. It panics if s is closed.
func (s *Scope) ownNode(n *node) {
	n.scope = s
	n.noted(s)
	if s == root {
		return // Backward frees the values, or the garbage collector frees them with the node
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		n.drop()
		panic(s.closedError(n.op, nil))
	}
	if len(s.nodes) == cap(s.nodes) && len(s.nodes) >= 256 {
		// A long-lived scope removes nodes through which Backward has passed.
		s.nodes = slices.DeleteFunc(s.nodes, func(n *node) bool { return n.dropped.Load() })
	}
	s.nodes = append(s.nodes, n)
	s.mu.Unlock()
}

// encloses reports whether s is c or a scope around it.
func (s *Scope) encloses(c *Scope) bool {
	for c != nil && c.depth > s.depth {
		c = c.parent
	}
	return c == s
}

// String says where the scope was opened and closed.
func (s *Scope) String() string {
	if s == root {
		return "the root scope"
	}
	w := "the scope"
	if s.opened != nil {
		if s.opened.name != "" {
			w += fmt.Sprintf(" %q", s.opened.name)
		}
		if at := s.opened.at.String(); at != "" {
			w += " opened at " + at
		}
	}
	if at := s.closedAt.String(); at != "" {
		w += " and closed at " + at
	}
	return w
}

func (s *Scope) closedError(op string, t *Tensor) *Error {
	var in []*Tensor
	if t != nil {
		in = []*Tensor{t}
	}
	return newError(op, ErrScope, in, fmt.Sprintf("%v is used after it was closed", s)).
		hint("keep a value with Close(x), copy it into an older tensor, or read it with Item or Data before")
}

// Youngest returns the scope that owns the result of an op on these tensors: the youngest of their
// scopes. All other scopes must enclose it.
func Youngest(x ...*Tensor) *Scope {
	if len(x) == 0 {
		fail("youngest", ErrValue, nil, "no tensors are given, so there is no scope")
	}
	return youngest("youngest", x)
}

// youngest returns the scope that owns the result of op on the given operands. It panics if an
// operand may not be used.
func youngest(op string, in []*Tensor) *Scope {
	var y *Scope
	for _, t := range in {
		t.use(op)
		if y == nil || t.scope.depth > y.depth {
			y = t.scope
		}
	}
	for _, t := range in {
		if t.scope != y && !t.scope.encloses(y) {
			e := newError(op, ErrScope, in, fmt.Sprintf("operands belong to two unrelated scopes: %v, and %v", t.scope, y))
			panic(e.hint("make both in one scope; Close(x) hands a value to the scope around"))
		}
	}
	return y
}

var hostOnce = sync.OnceValues(func() (device.Device, error) { return device.Open("cpu") })

// isHost reports whether a device is the CPU or a rank of the CPU. A rank is a device of its own,
// such as cpu:1, with a part of the processor's cores. The CPU and its ranks use the host's memory,
// and their work is done when a call returns. But they are different devices: a tensor on a rank
// stays on the rank.
func isHost(d device.Device) bool {
	_, ok := d.(*cpu.Device)
	return ok
}

// hostDevice returns the CPU, which is always linked in. Tensors are created there by default.
func hostDevice() device.Device {
	d, err := hostOnce()
	if err != nil {
		panic(newError("device", err, nil, err.Error()))
	}
	return d
}
