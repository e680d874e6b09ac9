package tensor

import (
	"slices"
	"sync"
)

// hooks holds the functions registered for a gradient: of a leaf, or of a node's result.
type hooks struct {
	mu     sync.Mutex
	grad   []*gradHook
	post   []*postHook
	retain []*Tensor // results that retain their gradient

	watched []watchedAs // for a leaf: each watch, and the leaf's index in it
}

type gradHook struct{ f func(g *Tensor) *Tensor }

type postHook struct{ f func(x *Tensor) }

// hooksOf returns the hooks of x's gradient. It creates them at the first call.
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

// remover returns a function that removes h from a list of hooks.
func remover[T comparable](k *hooks, list *[]T, h T) func() {
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if i := slices.Index(*list, h); i >= 0 {
			// copy the list, because a run may be reading the old list
			*list = slices.Delete(slices.Clone(*list), i, i+1)
		}
	}
}

// RegisterHook registers f to be called with the gradient of x whenever it is computed. x is a leaf
// that requires a gradient, or a result. f is called once per run, after all contributions are
// added, before the gradient is passed on or added to the leaf. The tensor that f returns replaces
// the gradient. It must have the same shape, type and device. nil leaves the gradient unchanged.
// Hooks of one tensor run in the order of registration, and each receives the gradient that the
// previous hook returned. The returned function removes the hook.
//
// g belongs to a scope that ends when f returns; s.From(g) moves it to scope s. g may share memory
// with other gradients and must not be changed in place. If a result is changed in place later, its
// hook receives the gradient of the old value. [Gradients] returns the gradients that the hooks of
// its inputs returned. torch's grad returns them too, except for an input that is a result and lies
// on the way to another input.
func (x *Tensor) RegisterHook(f func(g *Tensor) *Tensor) (remove func()) {
	const op = "register_hook"
	x.use(op)
	x.mustBeCurrent(op)
	if f == nil {
		fail(op, ErrValue, []*Tensor{x}, "the hook is nil")
	}
	if !x.needsGrad {
		x.failWithoutGrad(op, "a hook on a tensor that does not require a gradient would never be called")
	}
	k, h := x.hooksOf(), &gradHook{f}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.grad = append(slices.Clip(k.grad), h)
	return remover(k, &k.grad, h)
}

// RegisterPostAccumulateGradHook registers f to be called with the leaf x whenever Backward has
// added to its gradient. Backward calls f once per run, as soon as the gradient is complete, before
// it continues. f may read, change and free x.Grad(). f may change x in a scope without gradients,
// as an optimizer does. If several goroutines call Backward, each of them may call f. [Gradients]
// adds to no leaf and does not call f.
func (x *Tensor) RegisterPostAccumulateGradHook(f func(x *Tensor)) (remove func()) {
	const op = "register_post_accumulate_grad_hook"
	x.use(op)
	x.mustBeCurrent(op)
	switch {
	case f == nil:
		fail(op, ErrValue, []*Tensor{x}, "the hook is nil")
	case x.node != nil:
		fail(op, ErrGrad, []*Tensor{x}, "gradients are added to leaves; this is a result")
	case !x.needsGrad:
		x.failWithoutGrad(op, "the tensor does not require a gradient")
	}
	k, h := x.hooksOf(), &postHook{f}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.post = append(slices.Clip(k.post), h)
	return remover(k, &k.post, h)
}

// RetainGrad makes the result x keep its gradient. Backward and [Gradients] then add the gradient,
// after x's hooks have run, to x.Grad(). A leaf keeps its gradient anyway.
func (x *Tensor) RetainGrad() {
	const op = "retain_grad"
	x.use(op)
	x.mustBeCurrent(op)
	if !x.needsGrad {
		x.failWithoutGrad(op, "the tensor does not require a gradient")
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

// setNode makes n the node of x. If x retains its gradient, it now retains the gradient of the new
// value.
func (x *Tensor) setNode(n *node) {
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

// hooked runs hooks on g, the gradient of op's result or of a leaf. It returns the gradient to pass
// on.
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
		r = r.handleWithGraph(s) // another scope owns r and keeps its handle
	}
	g.Free()
	return e.bring(r)
}

// runPostHooks runs the post-accumulate hooks of a leaf whose gradient is complete.
func (e *engine) runPostHooks(leaf *Tensor) {
	_, post, _ := leaf.hooks.Load().list()
	for _, h := range post {
		if !leaf.freed.Load() {
			h.f(leaf)
		}
	}
}
