// Package optim has optimizers: rules that change parameters by their gradients.
//
// One makes an optimizer of a model's parameters ([NewAdamW], [NewSGD], …), and calls Step and
// ZeroGrad after each Backward. StateDict and LoadStateDict save and restore it. [ClipGradNorm]
// limits gradients, [NewEMA] averages weights, and package sched changes learning rates.
//
// An optimizer holds the parameters, not the model. Parameters come in groups ([Group]), each with
// its own options. A constructor that takes a plain list makes one group. Step changes in place
// every parameter that has a gradient. It allocates all its memory before it changes anything. So
// running out of memory leaves parameters and state as they were.
//
// A rule that works element by element is one program. The device runs it in a single launch over
// all parameters with the same type and options. State (momentum, moments) lives in each
// parameter's own scope and on its device. It follows when a parameter is moved or converted.
//
// In a capture ([tensor.Capture]) Step records and does not count as a step. Each replay is a step,
// with the learning rates, options and counts at the time when it is queued. A capture may hold
// several steps. All parameters of one launch have one count there. If other steps have changed
// some of these parameters and not the rest, their counts differ. The replay is then an error that
// says to capture again. To capture LBFGS is an error.
//
// The state is a tree with the shape and names of torch.optim's. So a run that began in PyTorch can
// go on here, and the other way round.
//
// A parameter is a leaf that requires a gradient. A leaf that nn.Freeze or SetRequiresGrad(false)
// froze is accepted too. It has no gradient, so no step changes it, and it trains on after it is
// unfrozen. A leaf that neither requires a gradient nor was frozen is refused, because no step
// would ever change it.
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

// An Optimizer changes parameters by their gradients.
type Optimizer interface {
	Step()                    // changes every parameter that has a gradient
	ZeroGrad()                // frees the gradients
	LR() float64              // learning rate of the first group
	SetLR(lr float64)         // changes it, in all groups
	Steps() int               // how often Step was called
	Params() []*tensor.Tensor // of all groups
	Groups() []*Group
	StateDict() map[string]any // the state, in torch's form
	LoadStateDict(tree map[string]any) error
}

// An Error says what is wrong with the arguments of an optimizer.
type Error struct{ Optimizer, Msg string }

func (e *Error) Error() string { return "optim: " + e.Optimizer + ": " + e.Msg }

// Raised makes the error one that tensor.Try returns: see device.Raised.
func (e *Error) Raised() {}

// With is a list of parameters with the configuration that holds for it: what constructors of
// optimizers with several groups take. Where torch fills in what a group leaves out from the
// defaults, here one configuration is copied and changed.
type With[C any] struct {
	Params []*tensor.Tensor
	Config C
}

// A Group is parameters that share their options. What is changed in it holds from the next step
// on.
type Group struct {
	Params []*tensor.Tensor // to be read; the optimizer's AddGroup adds
	LR     float64          // learning rate
	// InitialLR is the learning rate that a schedule starts from, torch's initial_lr; 0 as long as
	// no scheduler has set it.
	InitialLR float64
	// Extra is what is kept with the group beyond the optimizer's options, such as the bounds of a
	// cyclic schedule. Its values are those of a plain tree: numbers (int64, float64), bool,
	// string, nil, []any and maps of them. It is saved and loaded with the state.
	Extra map[string]any

	optimizer string
	config    config
}

// base is what all optimizers share.
type base struct {
	name   string
	groups []*Group
	state  map[*tensor.Tensor]*state
	steps  int
	schema schema
	late   []*lateStep       // the oldest first
	turn   *tensor.Exclusive // of graphs with steps of this optimizer
	ahead  map[device.Device]*aheadOf
	// recorded is of the capture that goes on.
	recorded *recorded
	// the tensors of state without which a parameter's is not complete; nil: none
	needs  func(config) []int
	splits bool   // elements are changed one by one: see Sharder
	shard  *shard // the parts that are changed; nil: all
}

func (b *base) bad(format string, a ...any) {
	panic(&Error{b.name, fmt.Sprintf(format, a...)})
}

// addGroup checks a group and takes it in. c is the group's own.
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
			b.bad("parameter %d%s, of shape %v, is not a leaf", i, at, p.Shape())
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

// SetLR changes the learning rate of every group from the next step on.
func (b *base) SetLR(lr float64) {
	for _, g := range b.groups {
		g.LR = lr
	}
}

// Steps returns how often Step was called; steps that StepUnless left out do not count.
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

// state is what an optimizer remembers of one parameter.
type state struct {
	step    float64          // how often the parameter was changed
	tensors []*tensor.Tensor // by the names of the schema; nil: not in use
	scalars []scalar         // by the names of the schema
	// its tensors are those that it began with: a captured step made them and has not run
	unused bool
}

// A scalar is a number that torch keeps in a tensor without dimensions: it has the precision of
// one.
type scalar struct {
	v    float64
	wide bool // float64; else float32
}

// of returns v rounded to the precision of s.
func (s scalar) of(v float64) scalar {
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

// A schema names what an optimizer remembers of a parameter, as torch does.
type schema struct {
	tensors  []string // of the parameter's shape, or what shape says
	scalars  []string // without dimensions
	stepless bool     // without a count of steps
	lenient  bool     // tensors may be missing, and begin anew then
	// shape is that of tensor i of a parameter of shape p, and whether it has one; nil: all have
	// the parameter's.
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
