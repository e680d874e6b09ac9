package nn

import (
	"reflect"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Base is a struct that every layer embeds. It holds the training flag and the hooks. The zero
// value is in training mode and has no hooks. Base also works in a layer from outside this package,
// if the layer's Forward begins with Enter:
//
//	func (m *Net) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
//		defer m.Enter(&x, &y)()
//		…
//	}
//
// Register hooks on a layer that is used by pointer (&nn.ReLU{}, not nn.ReLU{}), while no other
// goroutine runs the layer. If a hook returns a tensor, this tensor replaces the input, result or
// gradient that the hook is registered for. If it returns nil, nothing is replaced. Hooks of one
// kind run in the order of registration. Each hook receives the tensor that the previous hook
// returned, or the unchanged tensor if that hook returned nil. The function that a registration
// returns removes the hook.
//
// A tensor that a hook receives belongs to the call of the layer. If an outer layer made that call,
// the tensor may be freed when the outer layer returns. s.From(y.Detach()) keeps it in scope s.
type Base struct {
	evaluating bool
	known      uint32 // 1 if mark is set
	hooks      *moduleHooks
	mark       *mark
}

// Training reports whether the layer is in training mode.
func (b *Base) Training() bool { return !b.evaluating }

func (b *Base) setTraining(on bool) { b.evaluating = !on }

func (b *Base) base() *Base { return b }

type moduleHooks struct {
	mu       sync.Mutex
	pre      []*preHook
	forward  []*forwardHook
	backPre  []*preHook
	backward []*backwardHook
}

type (
	preHook struct {
		f func(x *tensor.Tensor) *tensor.Tensor
	}
	forwardHook struct {
		f func(x, y *tensor.Tensor) *tensor.Tensor
	}
	backwardHook struct {
		f func(gradInput, gradOutput *tensor.Tensor) *tensor.Tensor
	}
)

func (b *Base) moduleHooks() *moduleHooks {
	if b.hooks == nil {
		b.hooks = &moduleHooks{}
	}
	return b.hooks
}

// add appends h to a list of hooks and returns the function that removes it.
func add[T comparable](k *moduleHooks, list *[]T, h T) (remove func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*list = append(slices.Clip(*list), h)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if i := slices.Index(*list, h); i >= 0 {
			// Another call may be reading the old list, so h is removed from a clone of it.
			*list = slices.Delete(slices.Clone(*list), i, i+1)
		}
	}
}

// RegisterForwardPreHook registers f. Every call of the layer begins by calling f(x) with the
// layer's input x. If f returns a tensor, this tensor replaces the input. If f returns nil, the
// input does not change.
func (b *Base) RegisterForwardPreHook(f func(x *tensor.Tensor) *tensor.Tensor) (remove func()) {
	k := b.moduleHooks()
	return add(k, &k.pre, &preHook{f})
}

// RegisterForwardHook registers f. Every call of the layer calls f(x, y) last, with the layer's
// input x and result y. If f returns a tensor, this tensor replaces the result. If f returns nil,
// the result does not change. x is the input after the pre-hooks, which may have replaced it.
func (b *Base) RegisterForwardHook(f func(x, y *tensor.Tensor) *tensor.Tensor) (remove func()) {
	k := b.moduleHooks()
	return add(k, &k.forward, &forwardHook{f})
}

// RegisterFullBackwardPreHook registers f for the gradient of the layer's result. Backward calls
// f once for each call of the layer, before it runs the layer's own backward functions. The
// gradient is complete at that time. If f returns a tensor, this tensor replaces the gradient.
func (b *Base) RegisterFullBackwardPreHook(f func(gradOutput *tensor.Tensor) *tensor.Tensor) (remove func()) {
	k := b.moduleHooks()
	return add(k, &k.backPre, &preHook{f})
}

// RegisterFullBackwardHook registers f for the gradients of the layer's input and result.
// Backward calls f once for each call of the layer, when it has computed the gradient of the
// input. If f returns a tensor, this tensor replaces the gradient of the input. If the input
// requires no gradient, gradInput is nil and the value that f returns is ignored. Both gradients
// belong to the run of Backward: s.From(g) keeps gradient g in scope s.
func (b *Base) RegisterFullBackwardHook(f func(gradInput, gradOutput *tensor.Tensor) *tensor.Tensor) (remove func()) {
	k := b.moduleHooks()
	return add(k, &k.backward, &backwardHook{f})
}

func nothing() {}

// Enter begins a call of Forward. It runs the forward pre-hooks, which may replace the input *x. It
// returns a function that Forward must defer. This function runs the forward hooks, which may
// replace the result *y. [Base] shows an example.
//
// If Forward panics with a *[tensor.Error], the returned function adds the layer's name to the
// error. Only the innermost layer that has a name adds it. Functions that visit all layers of a
// model, such as [Parameters], [To] and [Train], give the layers their names.
func (b *Base) Enter(x, y **tensor.Tensor) func() {
	if t := device.Tracing(); t != nil {
		return b.traced(t, x, y)
	}
	m := b.marked()
	switch {
	case b.hooks != nil:
		return m.guarded(b.hooks.enter(x, y))
	case m != nil:
		return m.leave
	}
	return nothing
}

func (k *moduleHooks) enter(x, y **tensor.Tensor) func() {
	k.mu.Lock()
	pre, forward, backPre, backward := k.pre, k.forward, k.backPre, k.backward
	k.mu.Unlock()
	for _, h := range pre {
		if r := h.f(*x); r != nil {
			*x = r
		}
	}
	var call *backCall
	if len(backPre) > 0 || len(backward) > 0 {
		call = &backCall{pre: backPre, hooks: backward, grads: map[*tensor.Scope]*tensor.Tensor{}}
		if call.input = len(backward) > 0 && (*x).NeedsGrad() && (*x).Scope().GradEnabled(); call.input {
			*x = tensor.Apply(&hookOp{"backward_hook", call.atInput}, *x)
		}
	}
	in := *x // Forward may assign another tensor to its variable x
	return func() {
		if *y == nil { // Forward is panicking
			return
		}
		for _, h := range forward {
			if r := h.f(in, *y); r != nil {
				*y = r
			}
		}
		if call != nil && (*y).NeedsGrad() && (*y).Scope().GradEnabled() {
			*y = tensor.Apply(&hookOp{"backward_hook", call.atResult}, *y)
		}
	}
}

// hookOp is an op that returns its operand unchanged. In Backward it calls gradHook with the
// gradient.
type hookOp struct {
	name     string
	gradHook func(c *tensor.Context, g *tensor.Tensor) *tensor.Tensor
}

func (p *hookOp) Name() string { return p.name }

func (p *hookOp) Forward(_ *tensor.Context, in []*tensor.Tensor) *tensor.Tensor { return in[0] }

func (p *hookOp) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	return []*tensor.Tensor{p.gradHook(c, g)}
}

// backCall holds the backward hooks of one call of a layer.
type backCall struct {
	pre   []*preHook
	hooks []*backwardHook
	input bool // true if a second hookOp receives the gradient of the input

	mu sync.Mutex
	// grads maps the scope of each run of Backward in progress to the gradient of the result.
	grads map[*tensor.Scope]*tensor.Tensor
}

func (k *backCall) atResult(c *tensor.Context, g *tensor.Tensor) *tensor.Tensor {
	for _, h := range k.pre {
		g = replaced("the hook before the layer's backward", g, h.f(g))
	}
	switch {
	case k.input:
		g := c.Keep(g)
		k.mu.Lock()
		k.grads[g.Scope()] = g
		k.mu.Unlock()
	default:
		for _, h := range k.hooks {
			h.f(nil, g)
		}
	}
	return g
}

func (k *backCall) atInput(c *tensor.Context, g *tensor.Tensor) *tensor.Tensor {
	run := c.Keep(g).Scope()
	k.mu.Lock()
	out := k.grads[run]
	delete(k.grads, run)
	k.mu.Unlock()
	// In a second derivative, g may come from a path that does not contain the layer's result.
	if out == nil {
		return g
	}
	for _, h := range k.hooks {
		g = replaced("the hook on the layer's backward", g, h.f(g, out))
	}
	return g
}

// replaced returns the gradient after a hook was called with g: the hook's result r, or g if r is
// nil.
func replaced(what string, g, r *tensor.Tensor) *tensor.Tensor {
	switch {
	case r == nil:
		return g
	case r.Shape() != g.Shape():
		misuse("hook", tensor.ErrShape, what+" returned another shape", g, r)
	case r.Type() != g.Type():
		misuse("hook", tensor.ErrType, what+" returned another type", g, r)
	}
	return r
}

// Hooked reports whether any layer of a model has hooks. Copies of the model call these hooks too.
func Hooked(m any) bool {
	found := false
	visit(m, &visitor{lazy: func(string, lazyLayer) {}, pre: func(_ string, v reflect.Value, _ bool) {
		if b := promoted(v); b != nil && b.hooks != nil {
			found = found || b.hooks.exist()
		}
	}})
	return found
}

// Hooked reports whether the layer itself has hooks. Code that computes the layer's result without
// Forward calls no hooks, so it should check Hooked first.
func (b *Base) Hooked() bool { return b.hooks != nil && b.hooks.exist() }

func (k *moduleHooks) exist() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pre)+len(k.forward)+len(k.backPre)+len(k.backward) > 0
}
