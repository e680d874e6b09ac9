package dist

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// ZeRO is an optimizer whose state is divided among the ranks of a group: stage 1 of S. Rajbhandari
// et al., arXiv:1910.02054, and torch.distributed.optim.ZeroRedundancyOptimizer. Each rank holds
// the optimizer's state for 1/World of the parameters' elements, and its Step changes these
// elements. Then each rank copies the elements that the other ranks have changed.
//
//	opt := dist.NewZeRO(g, optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3}))
//
// A ZeRO is used like the optimizer that it wraps. Groups, schedules, clipping and amp.GradScaler
// see whole parameters. The ranks must have equal parameters and gradients, as in data parallel
// training. The results have the same bits as without ZeRO.
//
// If an optimizer's rule works element by element, all elements of a type are divided into ranges
// of equal length. A range may begin within a parameter. For other rules (Muon, Adafactor), each
// rank gets whole parameters, the largest first. LBFGS is not an [optim.Optimizer] and cannot be
// divided: it computes dot products over all parameters many times in a step.
//
// All ranks must call Step, StepUnless and Consolidate. All ranks must also call StateDict, unless
// the state is consolidated. Misuse panics with an *[Error].
type ZeRO struct {
	optimizer
	sharder   optim.Sharder // the wrapped optimizer, with methods for parts of parameters
	g         *Group
	params    []*tensor.Tensor
	split     *partition
	room      int         // number of bytes, over all ranks, that one round of copying moves
	fullState *wholeState // state of all ranks, after Consolidate; otherwise nil
}

// optimizer is embedded in ZeRO. It provides the methods that ZeRO does not change.
type optimizer = optim.Optimizer

// member holds the properties of a parameter that must be equal on all ranks.
type member struct {
	group  int
	shape  shape.Dims
	typ    dtype.Type
	frozen bool
	dense  bool // the parameter is contiguous
}

// String returns a text such as "float32 of shape [3, 4], in group 0".
func (m member) String() string {
	s := fmt.Sprintf("%v of shape %v, in group %d", m.typ, m.shape, m.group)
	if m.frozen {
		s += ", frozen"
	}
	if !m.dense {
		s += ", not contiguous"
	}
	return s
}

// roster describes a rank's optimizer. The ranks exchange and compare rosters when they make a
// ZeRO.
type roster struct {
	optimizer string
	members   []member
}

// differs returns an error that says how roster b, of rank r, differs from roster a, of rank 0.
func (a roster) differs(r int, b roster) error {
	switch {
	case a.optimizer != b.optimizer:
		return fmt.Errorf("%w: the optimizer of rank %d is a %s, that of rank 0 a %s", ErrMismatch, r, b.optimizer, a.optimizer)
	case len(a.members) != len(b.members):
		return fmt.Errorf("%w: rank %d has %d parameters, rank 0 has %d", ErrMismatch, r, len(b.members), len(a.members))
	}
	for i, m := range a.members {
		if b.members[i] != m {
			return fmt.Errorf("%w: parameter %d of rank %d is %v; of rank 0 it is %v", ErrMismatch, i, r, b.members[i], m)
		}
	}
	return nil
}

// NewZeRO wraps an optimizer of this rank's whole parameters, and divides its state among the
// ranks. The parameters must be on g's device. All ranks call NewZeRO, with parameters of equal
// values. State that the optimizer already has is divided too. Groups cannot be added later.
func NewZeRO(g *Group, opt optim.Optimizer) *ZeRO {
	const op = "zero"
	own, ok := opt.(optim.Sharder)
	if !ok {
		panic(g.misuse(op, tensor.ErrValue, fmt.Sprintf("a %T cannot be shared by ranks: it is no optim.Sharder", opt)))
	}
	z := &ZeRO{optimizer: opt, sharder: own, g: g, room: roomOfGather, params: slices.Clone(opt.Params())}
	mine := roster{optimizer: fmt.Sprintf("%T", opt)}
	for k, group := range opt.Groups() {
		for _, p := range group.Params {
			mine.members = append(mine.members, member{k, p.Shape(), p.Type(), p.IsFrozen(), p.IsContiguous()})
		}
	}
	z.check(op, mine.members)
	g.exchange(op, mine, func(values []any) (any, error) {
		for r, v := range values {
			if err := values[0].(roster).differs(r, v.(roster)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	z.split = newPartition(mine.members, g.World(), own.Splits())
	own.Shard(z.split.parts(g.Rank(), z.params))
	return z
}

// check checks that the parameters are on g's device and have not changed in type or shape.
func (z *ZeRO) check(op string, members []member) {
	for i, p := range z.params {
		switch {
		case p.Device() != z.g.Device():
			panic(z.g.misuse(op, tensor.ErrDevice, fmt.Sprintf("parameter %d, of shape %v, is on %s", i, p.Shape(), p.Device().Name())))
		case p.Type() != members[i].typ || p.Shape() != members[i].shape:
			panic(z.g.misuse(op, tensor.ErrType, fmt.Sprintf("parameter %d is %v of shape %v now; when it was shared it was %v", i, p.Type(), p.Shape(), members[i])))
		}
	}
}

// Step changes every parameter that has a gradient. Each rank changes its own part, and allocates
// the state of that part in its first Step. Step returns when all ranks have called it, and does
// not wait for a device. If memory is exhausted, this rank's parameters and state are unchanged.
func (z *ZeRO) Step() { z.step(z.sharder.Step) }

// StepUnless does what Step does, but changes nothing if found is not 0. The argument found is a
// tensor of one element on the device, and must be equal on all ranks. A GradScaler of package
// amp supplies found.
func (z *ZeRO) StepUnless(found *tensor.Tensor) { z.step(func() { z.sharder.StepUnless(found) }) }

func (z *ZeRO) step(own func()) {
	const op = "zero step"
	defer profile.Span("Optimizer.step")()
	z.check(op, z.split.members)
	if c := tensor.CapturingGrads(z.params...); c != nil {
		e := tensor.NewError(op, tensor.ErrCapture, "the parts of other ranks are not in the capture of this one")
		e.Hint = "capture Backward alone, and step after each replay"
		panic(e)
	}
	tensor.Youngest(z.params...).Do(func(s *tensor.Scope) {
		t := z.newGathering(s)
		own()
		z.fullState = nil
		t.run()
	}, tensor.On(z.g.Device()), tensor.NoGrad())
}

// LoadStateDict loads this rank's part from the state of a whole optimizer. Such a state comes from
// StateDict, with any number of ranks, or from an optimizer without ZeRO. Each rank calls
// LoadStateDict with the same state. The error is an *[optim.StateError]. After an error this
// rank's state is unchanged.
func (z *ZeRO) LoadStateDict(tree map[string]any) error {
	z.fullState = nil
	return z.sharder.LoadStateDict(tree)
}

// String returns a text such as "ZeRO over 4 ranks of Adam(12 parameters in 1 groups, lr 0.001)".
func (z *ZeRO) String() string {
	return fmt.Sprintf("ZeRO over %d ranks of %v", z.g.World(), z.sharder)
}
