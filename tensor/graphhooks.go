package tensor

import (
	"slices"
	"sync"
)

// hooks are what a user has hung on a gradient: on that of a leaf, or on that of a node's result.
type hooks struct {
	mu     sync.Mutex
	grad   []*gradHook
	post   []*postHook
	retain []*Tensor // results that keep their gradient

	watched []watchedAs // of a leaf: by whom, as which
}

type gradHook struct{ f func(g *Tensor) *Tensor }

type postHook struct{ f func(x *Tensor) }

// hooksOf returns the hooks of x's gradient, made when there are none yet.
func (x *Tensor) hooksOf() *hooks {
	at := &x.base().hooks
	if x.node != nil {
		at = &x.node.hooks
	}
	if at.Load() == nil {
		at.CompareAndSwap(nil, &hooks{})
	}
	return at.Load()
}

// remover returns a function that takes h out of a list of hooks.
func remover[T comparable](k *hooks, list *[]T, h T) func() {
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if i := slices.Index(*list, h); i >= 0 {
			*list = slices.Delete(slices.Clone(*list), i, i+1) // a run may be reading the old one
		}
	}
}

// RegisterHook has f called with the gradient of x, a leaf or a result that requires one, whenever
// it is computed. That is once a run, with all contributions added up, before the gradient goes on
// or into the leaf. What f returns replaces the gradient, in its shape, type and device; nil leaves
// it. Hooks of one tensor run in the order of their registration, each on what the one before
// returned. remove takes the hook away.
//
// g belongs to a scope that ends with f; s.From(g) keeps it in scope s. It may share memory with
// other gradients and must not be changed in place. A hook on a result stays with the value that it
// was registered for when the tensor is changed in place. [Gradients] returns what the hooks of its
// inputs returned; torch's grad does so unless it goes on behind an input that is a result.
func (x *Tensor) RegisterHook(f func(g *Tensor) *Tensor) (remove func()) {
	const op = "register_hook"
	x.use(op)
	x.current(op)
	if f == nil {
		fail(op, ErrValue, []*Tensor{x}, "the hook is nil")
	}
	if !x.needsGrad {
		x.gradless(op, "a hook on a tensor that does not require a gradient would never be called")
	}
	k, h := x.hooksOf(), &gradHook{f}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.grad = append(slices.Clip(k.grad), h)
	return remover(k, &k.grad, h)
}

// RegisterPostAccumulateGradHook has f called with the leaf x whenever Backward has added to its
// gradient. That is once a run, as soon as the gradient is complete, while Backward goes on with
// the rest. f may read, change and free x.Grad(), and change x in a scope without gradients, as an
// optimizer does. It may be called from several goroutines if these call Backward. [Gradients] adds
// to no leaf and does not call it.
func (x *Tensor) RegisterPostAccumulateGradHook(f func(x *Tensor)) (remove func()) {
	const op = "register_post_accumulate_grad_hook"
	x.use(op)
	x.current(op)
	switch {
	case f == nil:
		fail(op, ErrValue, []*Tensor{x}, "the hook is nil")
	case x.node != nil:
		fail(op, ErrGrad, []*Tensor{x}, "gradients are added to leaves; this is a result")
	case !x.needsGrad:
		x.gradless(op, "the tensor does not require a gradient")
	}
	k, h := x.hooksOf(), &postHook{f}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.post = append(slices.Clip(k.post), h)
	return remover(k, &k.post, h)
}

// RetainGrad makes the result x keep its gradient. Backward or [Gradients] then adds to x.Grad()
// what x's hooks returned. A leaf keeps its gradient anyway.
func (x *Tensor) RetainGrad() {
	const op = "retain_grad"
	x.use(op)
	x.current(op)
	if !x.needsGrad {
		x.gradless(op, "the tensor does not require a gradient")
	}
	if x.node != nil {
		x.hooksOf().addRetainer(x)
	}
}

func (k *hooks) addRetainer(x *Tensor) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.retain, x) {
		k.retain = append(slices.Clip(k.retain), x)
	}
}

// hang gives x the place n in the graph. A gradient that x retains is that of its new value.
func (x *Tensor) hang(n *node) {
	if x.node != nil && n != nil {
		if k := x.node.hooks.Load(); k != nil {
			k.mu.Lock()
			i := slices.Index(k.retain, x)
			if i >= 0 {
				k.retain = slices.Delete(slices.Clone(k.retain), i, i+1)
			}
			k.mu.Unlock()
			if i >= 0 {
				n.hooks.CompareAndSwap(nil, &hooks{})
				n.hooks.Load().addRetainer(x)
			}
		}
	}
	x.node, x.needsGrad = n, n != nil
}

// list returns the hooks that are registered now.
func (k *hooks) list() (grad []*gradHook, post []*postHook, retain []*Tensor) {
	if k == nil {
		return nil, nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.grad, k.post, k.retain
}

// hooked runs hooks on the gradient g of a result of op, or of a leaf, and returns what goes on.
func (e *engine) hooked(k *hooks, g *Tensor, op string) *Tensor {
	grad, _, retain := k.list()
	for _, h := range grad {
		g = e.hook(h, g, op)
	}
	for _, x := range retain {
		e.accumulate(x, g.handleWithGraph(e.scope))
	}
	return g
}

func (e *engine) hook(h *gradHook, g *Tensor, op string) *Tensor {
	s := e.scope.child()
	defer s.recycle()
	given := g.handleWithGraph(s)
	r := h.f(given)
	if r == nil || r == given {
		return g
	}
	r.use("hook")
	in := []*Tensor{g, r}
	switch {
	case r.layout.Shape != g.layout.Shape:
		fail("hook", ErrShape, in, "the hook on the gradient of %s returned shape %v for %v", op, r.layout.Shape, g.layout.Shape)
	case r.dtype != g.dtype:
		fail("hook", ErrType, in, "the hook on the gradient of %s returned type %v for %v", op, r.dtype, g.dtype)
	case r.st.dev != g.st.dev:
		fail("hook", ErrDevice, in, "the hook on the gradient of %s returned a tensor on %s for one on %s", op, r.st.dev.Name(), g.st.dev.Name())
	}
	if r.scope != s && r.scope != e.scope {
		r = r.handleWithGraph(s) // its owner keeps it
	}
	g.Free()
	return e.bring(r)
}

// accumulated runs the hooks of a leaf whose gradient is complete.
func (e *engine) accumulated(leaf *Tensor) {
	_, post, _ := leaf.hooks.Load().list()
	for _, h := range post {
		if !leaf.freed.Load() {
			h.f(leaf)
		}
	}
}
