// Package optim has optimizers: rules that change parameters by their gradients.
//
// A program makes an optimizer for a model's parameters ([NewAdamW], [NewSGD], …), and calls Step
// and ZeroGrad after each Backward. StateDict and LoadStateDict save and restore the optimizer's
// state. [ClipGradNorm] limits gradients, [NewEMA] averages weights, and package sched changes
// learning rates.
//
// An optimizer refers to the parameters, not to the model. Parameters come in groups ([Group]),
// each with its own options. A constructor that takes a plain list makes one group. Step changes in
// place every parameter that has a gradient. It allocates all its memory before it changes
// anything. If memory runs out, parameters and state are therefore unchanged.
//
// A rule that works element by element is one program. The device runs it in a single launch over
// all parameters with the same type and options. A parameter's state (momentum, moments) is in the
// parameter's scope and on its device. If the parameter is moved or converted, so is the state.
//
// In a capture ([tensor.Capture]), Step only records a step. Each replay makes this step, with the
// learning rates, options and counts at the time when it is queued. A capture may hold several
// steps. All parameters of a captured launch must have the same step count. If other steps have
// changed only some of these parameters, their counts differ, and the replay returns an error that
// says to capture again. Capturing LBFGS is an error.
//
// The state is a tree with the structure and names of torch.optim's state. A training that began in
// PyTorch can continue here, and the other way round.
//
// A parameter is a leaf that requires a gradient. A leaf that was frozen by nn.Freeze or
// SetRequiresGrad(false) is accepted too. It has no gradient, so no step changes it. After it is
// unfrozen, the optimizer trains it again. A leaf that neither requires a gradient nor was frozen
// is an error, because no step would ever change it.
//
// Misuse panics with an *[Error]. A tree that does not fit is an *[StateError].
package optim

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Optimizer updates parameters from their gradients.
type Optimizer interface {
	Step()                    // updates every parameter that has a gradient
	ZeroGrad()                // frees the gradients
	LR() float64              // learning rate of the first group
	SetLR(lr float64)         // sets the learning rate of all groups
	Steps() int               // number of steps done
	Params() []*tensor.Tensor // parameters of all groups
	Groups() []*Group
	StateDict() map[string]any // state as a tree, with torch's structure and names
	LoadStateDict(tree map[string]any) error
}

// An Error describes wrong arguments or wrong use of an optimizer.
type Error struct{ Optimizer, Msg string }

func (e *Error) Error() string { return "optim: " + e.Optimizer + ": " + e.Msg }

// Raised marks *Error as a type of error that a panic raises and tensor.Try returns. The interface
// device.Raised requires it.
func (e *Error) Raised() {}

// With is a list of parameters with their configuration, for optimizers with several groups. Unlike
// in torch, a group inherits no options from defaults: a program copies a configuration and changes
// the copy.
type With[C any] struct {
	Params []*tensor.Tensor
	Config C
}

// A Group is a list of parameters that share their options. A change of its fields takes effect
// with the next step.
type Group struct {
	Params []*tensor.Tensor // parameters of the group; must not be changed, AddGroup adds more
	LR     float64          // learning rate
	// InitialLR is the learning rate from which a schedule starts, torch's initial_lr. It is 0
	// until a scheduler sets it.
	InitialLR float64
	// Extra has further values of the group, such as the bounds of a cyclic schedule. They are
	// saved and loaded with the state. Each is a number (int64, float64), a bool, a string, nil, or
	// an []any or a map of such values.
	Extra map[string]any

	optimizer string
	config    config
}

// base is the common part of all optimizers.
type base struct {
	name   string
	groups []*Group
	state  map[*tensor.Tensor]*state
	steps  int
	schema schema
	// late has the steps whose outcome the host does not know yet: the device may have skipped
	// them. The oldest step comes first.
	late []*lateStep
	// turn lets only one graph with steps of this optimizer run at a time.
	turn  *tensor.Exclusive
	ahead map[device.Device]*aheadOf
	// recorded describes the capture that is being recorded.
	recorded *recorded
	// needs returns the indices of the state tensors that a loaded state of a parameter must have.
	// A nil needs means none.
	needs  func(config) []int
	splits bool   // the rule works element by element, as Sharder requires
	shard  *shard // parts of parameters to update; nil means whole parameters
}

func (b *base) bad(format string, a ...any) {
	panic(&Error{b.name, fmt.Sprintf(format, a...)})
}

// addGroup checks a group and adds it. The group keeps the pointer c, so the caller must not use it
// again.
func (b *base) addGroup(params []*tensor.Tensor, lr float64, c config) {
	at := ""
	if len(b.groups) > 0 {
		at = fmt.Sprintf(" of group %d", len(b.groups))
	}
	if b.shard != nil {
		b.bad("it is sharded, and its groups are given before")
	}
	if len(params) == 0 {
		b.bad("there are no parameters%s", at)
	}
	switch {
	case lr == 0:
		b.bad("the learning rate LR%s is not set", at)
	case !(lr > 0) || math.IsInf(lr, 1):
		b.bad("invalid learning rate %v%s", lr, at)
	}
	c.complete()
	if msg := c.check(); msg != "" {
		b.bad("%s", msg)
	}
	seen := map[*tensor.Tensor]bool{}
	for _, p := range b.Params() {
		seen[p] = true
	}
	for i, p := range params {
		switch {
		case p == nil:
			b.bad("parameter %d%s is nil", i, at)
		case seen[p]:
			b.bad("parameter %d%s, of shape %v, is given twice", i, at, p.Shape())
		case !p.IsLeaf():
			b.bad("parameter %d%s, of shape %v, is not a leaf but the result of an op; pass the tensor that nn.Parameter or RequiresGrad returned", i, at, p.Shape())
		case !p.Type().IsFloat():
			b.bad("parameter %d%s is of type %v, it must be floating point", i, at, p.Type())
		case !p.NeedsGrad() && !p.IsFrozen():
			b.bad("parameter %d%s, of shape %v, does not require a gradient, so that no step would change it: nn.Parameter(x) or x.RequiresGrad() "+
				"makes a parameter; one that is held still on purpose says so by nn.Freeze or x.SetRequiresGrad(false)", i, at, p.Shape())
		}
		seen[p] = true
	}
	b.groups = append(b.groups, &Group{Params: append([]*tensor.Tensor(nil), params...), LR: lr, optimizer: b.name, config: c})
}

// Groups returns the groups of parameters, in the order in which they were given.
func (b *base) Groups() []*Group { return b.groups }

// LR returns the learning rate of the first group.
func (b *base) LR() float64 { return b.groups[0].LR }

// SetLR sets the learning rate of every group, from the next step on.
func (b *base) SetLR(lr float64) {
	for _, g := range b.groups {
		g.LR = lr
	}
}

// Steps returns the number of steps done. Steps that StepUnless left out do not count.
func (b *base) Steps() int {
	b.settle()
	return b.steps
}

// Params returns the parameters of all groups, in the order in which they were given.
func (b *base) Params() []*tensor.Tensor {
	if len(b.groups) == 1 {
		return b.groups[0].Params
	}
	var out []*tensor.Tensor
	for _, g := range b.groups {
		out = append(out, g.Params...)
	}
	return out
}

// ZeroGrad frees the gradients of the parameters, as torch's zero_grad(set_to_none=True).
func (b *base) ZeroGrad() {
	for _, g := range b.groups {
		for _, p := range g.Params {
			p.ZeroGrad()
		}
	}
}

type state struct {
	step float64 // number of steps that have changed the parameter
	// state tensors in the order of the schema; nil for tensors that are not in use
	tensors []*tensor.Tensor
	scalars []scalar // state scalars in the order of the schema
	// unused is true if the tensors still have their initial values, because the capture that
	// allocated them has not been replayed.
	unused bool
}

// A scalar is a number in the state that torch stores in a tensor without dimensions. It is rounded
// to the precision of that tensor.
type scalar struct {
	v    float64
	wide bool // the tensor in torch is float64 instead of float32
}

// round returns v rounded to the precision of s.
func (s scalar) round(v float64) scalar {
	if !s.wide {
		v = float64(float32(v))
	}
	return scalar{v, s.wide}
}

// times returns s·v, computed in the precision of s.
func (s scalar) times(v float64) scalar {
	if s.wide {
		return scalar{s.v * v, true}
	}
	return scalar{float64(float32(s.v) * float32(v)), false}
}

// A schema has torch's names for the state of a parameter.
type schema struct {
	// tensors are the names of state tensors. They have the parameter's shape, or the shape that
	// the function shape returns.
	tensors  []string
	scalars  []string // names of numbers that torch stores in tensors without dimensions
	stepless bool     // the state has no number of steps
	lenient  bool     // a loaded state may lack tensors, which then get their initial values
	// shape returns the shape of state tensor i for a parameter of shape p, and whether the
	// parameter has this tensor. If shape is nil, all tensors have the parameter's shape.
	shape func(p shape.Dims, i int) (s shape.Dims, used bool)
}

func (s *schema) tensor(name string) int {
	for i, n := range s.tensors {
		if n == name {
			return i
		}
	}
	return -1
}

func (s *schema) scalar(name string) int {
	for i, n := range s.scalars {
		if n == name {
			return i
		}
	}
	return -1
}
