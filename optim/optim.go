// Package optim is optimizers: rules that change parameters by their gradients.
//
// An optimizer holds the parameters, not the model. Step changes them in place, each rule one program that the device runs over
// all parameters in a single launch where it can. State (momentum, moments) lives in each parameter's own scope and on its
// device; it follows when a parameter is moved.
package optim

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Optimizer changes parameters by their gradients.
type Optimizer interface {
	Step()            // changes every parameter that has a gradient
	ZeroGrad()        // frees the gradients
	LR() float64      // learning rate
	SetLR(lr float64) // changes it, for schedules
	Steps() int       // how often Step was called
	Params() []*tensor.Tensor
}

// An Error says what is wrong with the arguments of an optimizer.
type Error struct{ Optimizer, Msg string }

func (e *Error) Error() string { return "optim: " + e.Optimizer + ": " + e.Msg }

// base is what all optimizers share.
type base struct {
	name   string
	params []*tensor.Tensor
	lr     float64
	steps  int
}

func newBase(name string, params []*tensor.Tensor, lr float64) base {
	bad := func(format string, a ...any) { panic(&Error{name, fmt.Sprintf(format, a...)}) }
	if len(params) == 0 {
		bad("there are no parameters")
	}
	switch {
	case lr == 0:
		bad("the learning rate LR is not set")
	case !(lr > 0) || math.IsInf(lr, 1):
		bad("invalid learning rate %v", lr)
	}
	seen := map[*tensor.Tensor]bool{}
	for i, p := range params {
		switch {
		case p == nil:
			bad("parameter %d is nil", i)
		case seen[p]:
			bad("parameter %d, of shape %v, is given twice", i, p.Shape())
		case !p.IsLeaf():
			bad("parameter %d, of shape %v, is not a leaf", i, p.Shape())
		case !p.Type().IsFloat():
			bad("parameter %d is of type %v, it must be floating point", i, p.Type())
		}
		seen[p] = true
	}
	return base{name: name, params: append([]*tensor.Tensor(nil), params...), lr: lr}
}

// LR returns the learning rate.
func (b *base) LR() float64 { return b.lr }

// SetLR changes the learning rate from the next step on.
func (b *base) SetLR(lr float64) { b.lr = lr }

// Steps returns how often Step was called.
func (b *base) Steps() int { return b.steps }

// Params returns the parameters, in the order in which they were given.
func (b *base) Params() []*tensor.Tensor { return b.params }

// ZeroGrad frees the gradients of the parameters, as torch's zero_grad(set_to_none=True).
func (b *base) ZeroGrad() {
	for _, p := range b.params {
		p.ZeroGrad()
	}
}

// A rule is one program of an optimizer over (parameter, gradient, state…) → (parameter, state…).
type rule struct {
	name     string
	outs     []*expr.Expr
	programs map[dtype.Type]*expr.Program
}

// program returns the rule's code for parameters of type t; state has the same type.
func (r *rule) program(t dtype.Type, operands int) *expr.Program {
	if p := r.programs[t]; p != nil {
		return p
	}
	out, in := make([]dtype.Type, len(r.outs)), make([]dtype.Type, operands)
	for i := range out {
		out[i] = t
	}
	for i := range in {
		in[i] = t
	}
	p := expr.MustLower(r.outs, out, in, -1)
	if r.programs == nil {
		r.programs = map[dtype.Type]*expr.Program{}
	}
	r.programs[t] = p
	return p
}

// A group of parameters shares device, type and scalars, and is updated by one launch.
type group struct {
	dev       device.Device
	t         dtype.Type
	outs, ins [][]*tensor.Tensor
	scalars   []float64
}

// apply updates the groups.
func (r *rule) apply(groups []*group) {
	for _, g := range groups {
		p := r.program(g.t, len(g.ins[0]))
		tensor.Do(func(s *tensor.Scope) {
			bits := make([]uint64, len(g.scalars))
			slots := make([]int64, len(g.scalars))
			for i, v := range g.scalars {
				if i < len(p.Params) && p.Params[i] != dtype.Invalid {
					bits[i] = expr.Encode(p.Params[i], v)
				}
				slots[i] = int64(bits[i])
			}
			tensor.Update(r.name, p, g.outs, g.ins, s.From(slots), bits)
		}, tensor.NoGrad(), tensor.On(g.dev))
	}
}

// zerosLike returns zeros of p's shape in p's scope and on its device.
func zerosLike(p *tensor.Tensor) *tensor.Tensor {
	return p.Scope().On(p.Device()).Typed(p.Type()).Zeros(p.Shape().Slice()...)
}

// groups sorts the parameters that have gradients by device and type; scalars and state are the caller's.
type grouping struct {
	list []*group
}

func (gs *grouping) add(p *tensor.Tensor, key []float64, outs, ins []*tensor.Tensor) {
	for _, g := range gs.list {
		if g.dev == p.Device() && g.t == p.Type() && equal(g.scalars, key) {
			g.outs, g.ins = append(g.outs, outs), append(g.ins, ins)
			return
		}
	}
	gs.list = append(gs.list, &group{p.Device(), p.Type(), [][]*tensor.Tensor{outs}, [][]*tensor.Tensor{ins}, key})
}

func equal(a, b []float64) bool {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			return false
		}
	}
	return true
}

// follow moves state to where its parameter is now.
func follow(p *tensor.Tensor, state ...*tensor.Tensor) {
	for _, s := range state {
		if s.Device() != p.Device() {
			s.MoveTo(p.Device())
		}
	}
}
