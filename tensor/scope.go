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

// A Scope owns tensors and ends. The result of an op belongs to the youngest scope among its
// operands, so the scope travels with the batch. Closing it gives the memory of all that it owns
// back at once. It also carries the modes that PyTorch keeps in thread-locals: no-grad, default
// device, stream, generator, name.
//
// A mode reaches what belongs to the scope, and nothing else: x.In(s) lends the tensor x to the
// scope s, s.From(x) gives x to it. A scope that was opened with [NoGrad] or [Autocast] and asked
// for nothing before it closes has done nothing. If meanwhile, on the goroutine that opened it, an
// op outside of it recorded a graph or was computed in another type than the mode says, closing it
// is an error.
//
// A scope may be used by several goroutines; it is closed by one.
type Scope struct {
	parent   *Scope
	depth    int
	modes    modes
	opened   *scopeSite
	closedAt *site

	mu       sync.Mutex
	owned    []*Tensor
	nodes    []*node
	children int
	closed   bool
	internal bool // the library's own: recycled, without a net
	ledger   *ledger
	span     device.SpanID         // of its name, in a trace
	vigil    atomic.Pointer[vigil] // nil when something was asked of it, or it sets no mode
}

// modes are inherited by child scopes.
type modes struct {
	noGrad    bool
	withGrad  bool // that there is a graph was said
	sites     bool // record the call site of every result
	dev       device.Device
	stream    device.Stream
	gen       *Generator
	capture   *Graph
	across    []device.Device // of Across, until Capture has taken them
	name      string
	path      string // the names of all scopes around, for reports of memory
	nondet    bool
	composed  bool // no fast kernels
	anomaly   AnomalyCheck
	autocast  dtype.Type // of mixed precision; Invalid: off
	casts     *castCache
	floatType dtype.Type
	tf32      bool // products of float32 may be of tf32

	saver       packer        // of what ops save; nil: they save it as it is
	recomputing bool          // a checkpointed segment is computed again
	span        device.SpanID // of the innermost scope that has a name, in a trace
}

// An Option sets a mode of a scope.
type Option func(*modes)

// NoGrad makes a scope in which results record no graph. An expression over older tensors belongs
// to their scope, and begins with x.In(s) where it is to be of this one; nn.Infer runs a whole
// model so.
func NoGrad() Option { return func(m *modes) { m.noGrad, m.withGrad = true, false } }

// WithGrad undoes [NoGrad] for a child scope, as torch.enable_grad does.
func WithGrad() Option { return func(m *modes) { m.noGrad, m.withGrad = false, true } }

// On sets the device on which the scope creates tensors.
func On(d device.Device) Option { return func(m *modes) { m.dev, m.stream = d, nil } }

// Stream sets the stream on which work of the scope is queued, for its device.
func Stream(s device.Stream) Option { return func(m *modes) { m.stream = s } }

// Seed gives the scope a generator of its own.
func Seed(n uint64) Option { return func(m *modes) { m.gen = NewGenerator(n) } }

// WithGenerator makes the scope draw from g.
func WithGenerator(g *Generator) Option { return func(m *modes) { m.gen = m.capture.generator(g) } }

// Named gives the scope a name for reports of memory and profiles.
func Named(name string) Option { return func(m *modes) { m.name = name } }

// RecordSites records the call site of every result in the scope, for error messages and memory
// reports; otherwise that is done for created tensors and for large ones only.
func RecordSites() Option { return func(m *modes) { m.sites = true } }

// Nondeterministic allows kernels whose float sums have no fixed order
// (torch.use_deterministic_algorithms(False)). So far no kernel is of that kind: results are the
// same with it.
func Nondeterministic() Option { return func(m *modes) { m.nondet = true } }

// Composed makes heavy ops take their composition of primitives, also where the device has a fast
// kernel for them. Tests hold the kernels against it, and it is a way to find out whether a kernel
// is at fault.
func Composed() Option { return func(m *modes) { m.composed = true } }

// joinNames returns the path of a scope of that name in one of that path.
func joinNames(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "/" + name
}

// scopeSite says in words where a scope was opened.
type scopeSite struct {
	at    *site
	name  string
	outer *scopeSite // of the scope around, nil for the root scope
}

func (s *scopeSite) String() string {
	w := "in the scope"
	if s.name != "" {
		w += fmt.Sprintf(" %q", s.name)
	}
	if at := s.at.String(); at != "" {
		return w + " opened at " + at
	}
	for o := s.outer; o != nil; o = o.outer { // opened deep in the library
		if at := o.at.String(); at != "" {
			return w + " inside the one opened at " + at
		}
	}
	return w
}

var root = &Scope{modes: modes{gen: NewGenerator(0), floatType: dtype.F32}}

// Root returns the scope of the process, which never closes: the home of parameters and of all that
// is made outside any scope. What it owns is freed by [Tensor.Free], or after the garbage collector
// finds it unreachable.
func Root() *Scope { return root }

// NewScope opens a scope under the root. See [Do] for the usual form.
func NewScope(opts ...Option) *Scope { return root.New(opts...) }

// Do runs f with a new scope under the root and closes it, also when f panics. In the function of
// another scope, s.Do is meant: that one is inside of s and inherits its modes, as a context within
// a context does in PyTorch.
func Do(f func(s *Scope), opts ...Option) { root.Do(f, opts...) }

// Do runs f with a new child of s and closes it, also when f panics.
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
		c.Close()
	}
	done = true
}

// New opens a child scope. It inherits the modes of s, changed by opts.
func (s *Scope) New(opts ...Option) *Scope { return s.open(true, opts) }

// open is New; loose says that the scope may be closed by another goroutine.
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
	s.asked()
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

// child opens a scope for the library's own intermediates. The caller closes it on every path.
func (s *Scope) child() *Scope {
	c := scopes.Get().(*Scope)
	c.parent, c.depth, c.modes, c.opened, c.closed, c.closedAt = s, s.depth+1, s.modes, s.opened, false, nil
	s.mu.Lock()
	s.children++
	s.mu.Unlock()
	return c
}

// recycle closes an internal scope; it may be closed already. One in which a user's function left a
// child open is not used again: that child still points to it.
func (s *Scope) recycle() {
	if !s.isClosed() {
		s.close(nil, true)
	}
	s.mu.Lock()
	left := s.children > 0
	s.mu.Unlock()
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

// Device returns the device on which the scope creates tensors: the CPU unless it was opened with
// [On].
func (s *Scope) Device() device.Device {
	s.asked()
	if s.modes.dev != nil {
		return s.modes.dev
	}
	return hostDevice()
}

// Generator returns the generator from which random ops of the scope draw.
func (s *Scope) Generator() *Generator {
	s.asked()
	return s.modes.gen
}

// GradEnabled reports whether ops of the scope record a graph.
func (s *Scope) GradEnabled() bool {
	s.asked()
	return !s.modes.noGrad
}

// streamOf returns the stream of s for dev. Who queues work there asks for the route.
func (s *Scope) streamOf(dev device.Device) device.Stream {
	if st := s.modes.stream; st != nil && st.Device() == dev {
		return st
	}
	if st := s.modes.capture.first(dev); st != nil {
		return st
	}
	return dev.DefaultStream()
}

// own makes s the owner of handle x; fresh says that its storage has no owner yet either.
func (s *Scope) own(x *Tensor, fresh bool) {
	// its ledger may not be queued before the storage is noted here
	defer runtime.KeepAlive(x.scope)
	x.scope = s
	if s == root {
		if fresh {
			s.note(x.st)
		}
		return
	}
	s.asked()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		x.drop()
		panic(s.closedError(x.op, nil))
	}
	if len(s.owned) == cap(s.owned) && len(s.owned) >= 256 {
		s.owned = compact(s.owned)
	}
	s.owned = append(s.owned, x)
	if fresh {
		s.note(x.st)
	}
	s.mu.Unlock()
}

// compact drops handles that are freed already.
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

// Close frees all that s owns but keep. That moves to the parent, with the part of the graph that
// it still needs (keep x.Detach() to cut the graph off). Close panics if s is closed already or has
// open children.
func (s *Scope) Close(keep ...*Tensor) { s.close(keep, false) }

// abandon closes s during a panic: open children no longer matter.
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
	if len(keep) > 0 && p.isClosed() {
		panic(p.closedError("scope.close", keep[0]))
	}
	s.end(keep)
	p.mu.Lock()
	p.children--
	p.mu.Unlock()
	if e := s.unheeded(); e != nil && !force {
		panic(e)
	}
}

// end closes s for use, moves keep to the parent and drops the rest.
func (s *Scope) end(keep []*Tensor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owned, nodes := s.owned, s.nodes
	s.closed = true
	defer s.endSpan() // what is freed here belongs to it
	if !s.internal {
		s.closedAt = callSite()
	}
	storages := s.ledger.clear()
	if len(keep) > 0 {
		s.hand(keep)
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
	for _, st := range storages { // what a scope without an end has a handle of needs another net
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

// hand moves keep, and the nodes and leaves of s that their graph needs, with their gradients, to
// the parent. s.mu is held.
func (s *Scope) hand(keep []*Tensor) {
	p := s.parent
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
			p.own(t, true)
		}
		push(t.node)
		if t.leaf != nil {
			move(t.leaf)
		}
		// that of an older tensor lives with it, and others may be adding to it
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
			push(n.saved[i].from.node) // of what is no operand too: autocast's cast of a weight
			if v := n.saved[i].packed; v != nil {
				push(v.holds())
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

// ownNode makes s responsible for the values that n saved.
func (s *Scope) ownNode(n *node) {
	n.scope = s
	n.noted(s)
	if s == root {
		return // freed by Backward, or with the storages when nothing reaches the node
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		n.drop()
		panic(s.closedError(n.op, nil))
	}
	if len(s.nodes) == cap(s.nodes) && len(s.nodes) >= 256 {
		// A long-lived scope forgets the nodes that Backward has passed.
		s.nodes = slices.DeleteFunc(s.nodes, func(n *node) bool { return n.dropped.Load() })
	}
	s.nodes = append(s.nodes, n)
	s.mu.Unlock()
}

// encloses reports whether s is c or one of the scopes around it.
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

// Youngest returns the scope to which the result of an op on these tensors belongs: the youngest
// among theirs, which the others enclose.
func Youngest(x ...*Tensor) *Scope {
	if len(x) == 0 {
		fail("youngest", ErrValue, nil, "no tensors are given, so there is no scope")
	}
	return youngest("youngest", x)
}

// youngest returns the scope to which the result of op on in belongs, after checking that every
// operand may be used.
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

// isHost reports whether a device is the CPU or a rank of it. Its memory is the
// host's, and its work is done when a call returns. To be the CPU is another question: a rank's
// tensors stay on the rank.
func isHost(d device.Device) bool {
	_, ok := d.(*cpu.Device)
	return ok
}

// hostDevice returns the CPU, which is always linked in: where tensors are created if nothing says
// where.
func hostDevice() device.Device {
	d, err := hostOnce()
	if err != nil {
		panic(newError("device", err, nil, err.Error()))
	}
	return d
}
