package nn

import (
	"reflect"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Base is embedded by every layer: the training flag and the hooks. The zero value is in training
// and has no hooks. A layer of a user's own that embeds it has them too, if its Forward begins with
// Enter:
//
//	func (m *Net) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
//		defer m.Enter(&x, &y)()
//		…
//	}
//
// Hooks are registered on a layer that is used by pointer (&nn.ReLU{}, not nn.ReLU{}), while no
// other goroutine runs it. A hook that returns a tensor replaces what it was called with; nil
// leaves that as it is. Hooks of one kind run in the order of their registration, each on what the
// one before returned. The function that registering returns takes the hook away.
//
// What a hook sees belongs to the call: within another layer it may be freed when that returns.
// s.From(y.Detach()) keeps it in scope s.
type Base struct {
	evaluating bool
	known      uint32 // 1: mark is set
	hooks      *moduleHooks
	mark       *mark
}

// Training reports whether the layer is in training mode.
func (b *Base) Training() bool { return !b.evaluating }

func (b *Base) setTraining(on bool) { b.evaluating = !on }

// base finds the Base of a layer.
func (b *Base) base() *Base { return b }

// moduleHooks are a layer's hooks.
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

// add puts h into a list of hooks and returns what takes it out.
func add[T comparable](k *moduleHooks, list *[]T, h T) (remove func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*list = append(slices.Clip(*list), h)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if i := slices.Index(*list, h); i >= 0 {
			*list = slices.Delete(slices.Clone(*list), i, i+1) // a call may be reading the old one
		}
	}
}

// RegisterForwardPreHook has f called with the input of every call, before the layer.
func (b *Base) RegisterForwardPreHook(f func(x *tensor.Tensor) *tensor.Tensor) (remove func()) {
	k := b.moduleHooks()
	return add(k, &k.pre, &preHook{f})
}

// RegisterForwardHook has f called with the input and the result of every call, after the layer; it
// may replace the result. x is what the layer saw.
func (b *Base) RegisterForwardHook(f func(x, y *tensor.Tensor) *tensor.Tensor) (remove func()) {
	k := b.moduleHooks()
	return add(k, &k.forward, &forwardHook{f})
}

// RegisterFullBackwardPreHook has f called with the gradient of the result of every call, when it
// is complete, before it goes into the layer.
func (b *Base) RegisterFullBackwardPreHook(f func(gradOutput *tensor.Tensor) *tensor.Tensor) (remove func()) {
	k := b.moduleHooks()
	return add(k, &k.backPre, &preHook{f})
}

// RegisterFullBackwardHook has f called with the gradient of the input and that of the result of
// every call, when the gradient of the input has been computed. f may replace that. gradInput is
// nil where the input requires no gradient; what f returns is then ignored. Both belong to the run
// of Backward: s.From(g) keeps one in scope s.
func (b *Base) RegisterFullBackwardHook(f func(gradInput, gradOutput *tensor.Tensor) *tensor.Tensor) (remove func()) {
	k := b.moduleHooks()
	return add(k, &k.backward, &backwardHook{f})
}

func nothing() {}

// Enter begins a call of Forward: it runs the hooks of the layer that come before it and may
// replace the input *x. The function that it returns, deferred, runs those that come after it and
// may replace the result *y. See [Base]. It also puts the layer's name into a *[tensor.Error] that
// leaves Forward, as it was when the model was last walked ([Parameters], [To], [Train],
// [LoadStateDict] …), of the innermost layer that has one.
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
			*x = tensor.Apply(&passage{"backward_hook", call.atInput}, *x)
		}
	}
	in := *x // Forward may use the variable for something else
	return func() {
		if *y == nil { // a panic is on its way
			return
		}
		for _, h := range forward {
			if r := h.f(in, *y); r != nil {
				*y = r
			}
		}
		if call != nil && (*y).NeedsGrad() && (*y).Scope().GradEnabled() {
			*y = tensor.Apply(&passage{"backward_hook", call.atResult}, *y)
		}
	}
}

// passage lets a tensor pass, and looks at its gradient on the way back.
type passage struct {
	name string
	back func(c *tensor.Context, g *tensor.Tensor) *tensor.Tensor
}

func (p *passage) Name() string { return p.name }

func (p *passage) Forward(_ *tensor.Context, in []*tensor.Tensor) *tensor.Tensor { return in[0] }

func (p *passage) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	return []*tensor.Tensor{p.back(c, g)}
}

// backCall is what the gradients of one call of a layer pass.
type backCall struct {
	pre   []*preHook
	hooks []*backwardHook
	input bool // the gradient of the input passes too

	mu sync.Mutex
	// of the result, for each run of Backward that is under way
	grads map[*tensor.Scope]*tensor.Tensor
}

// atResult sees the gradient of the result.
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

// atInput sees the gradient of the input.
func (k *backCall) atInput(c *tensor.Context, g *tensor.Tensor) *tensor.Tensor {
	run := c.Keep(g).Scope()
	k.mu.Lock()
	out := k.grads[run]
	delete(k.grads, run)
	k.mu.Unlock()
	if out == nil { // it did not come through the result: a second derivative
		return g
	}
	for _, h := range k.hooks {
		g = replaced("the hook on the layer's backward", g, h.f(g, out))
	}
	return g
}

// replaced returns what a hook made of g.
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

// Hooked reports whether a layer of a model has hooks, which a copy of the model would call too.
func Hooked(m any) bool {
	found := false
	visit(m, &visitor{lazy: func(string, lazyLayer) {}, before: func(_ string, v reflect.Value, _ bool) {
		if b := promoted(v); b != nil && b.hooks != nil {
			found = found || b.hooks.any()
		}
	}})
	return found
}

// Hooked reports whether the layer itself has hooks, which see what its Forward takes and returns:
// what does less than Forward asks for that first.
func (b *Base) Hooked() bool { return b.hooks != nil && b.hooks.any() }

// any reports whether there are hooks.
func (k *moduleHooks) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pre)+len(k.forward)+len(k.backPre)+len(k.backward) > 0
}
