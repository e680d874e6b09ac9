package tensor

import "sync"

// A lean function can often do without intermediate tensors. Then [Apply] makes no scope for them
// and no handles of the operands, which would take longer than a kernel on a few elements. A type
// that embeds a lean function inherits the method lean. If the type's Forward differs, it must
// define its own method lean.
type lean interface {
	Function
	// lean does what Forward does, but c's scope is the scope of the result, and in holds the
	// caller's operands. It leaves only the result and the tensors that it saves, and calls no op
	// that records a graph. If it cannot compute the result like this, lean returns nil and saves
	// nothing.
	lean(c *Context, in []*Tensor) *Tensor
}

// freeUnless frees the tensors in list unless *done is true. A lean function defers freeUnless if
// its launch may panic because of a wrong index. Otherwise the tensors would stay in the caller's
// scope.
func freeUnless(done *bool, list ...*Tensor) {
	if !*done {
		freeAll(&list)
	}
}

// An ownContext is a context together with memory for its lists, so that few allocations are
// needed.
type ownContext struct {
	Context
	operands    []*Tensor // a copy of the operands
	fewOperands [4]*Tensor
	fewNeeds    [4]bool
}

var contexts = sync.Pool{New: func() any { return new(ownContext) }}

// fill sets a new or cleared context for Forward in the given scope. grad says whether a graph is
// recorded.
func (c *ownContext) fill(s *Scope, in []*Tensor, grad bool) *Context {
	c.scope = s
	c.operands, c.needs = append(c.fewOperands[:0], in...), c.fewNeeds[:0]
	for _, t := range in {
		c.needs = append(c.needs, grad && t.needsGrad)
	}
	return &c.Context
}

// applyLean returns the result of f in scope s. It returns nil if f needs intermediate tensors.
func applyLean(f lean, s *Scope, in []*Tensor, grad bool) *Tensor {
	own := contexts.Get().(*ownContext)
	c := own.fill(s, in, grad)
	y := f.lean(c, own.operands)
	if y != nil {
		if y.op = f.Name(); grad {
			record(y, f, in, c.keep)
			y.node.appendExtra(c.extra)
			for _, t := range c.keep { // the graph itself keeps the memory of intermediate tensors
				if t != y && !contains(in, t) {
					t.Free()
				}
			}
		}
	}
	*own = ownContext{}
	contexts.Put(own)
	return y
}
