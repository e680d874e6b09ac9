package optim

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Part is the elements From to To-1 of a parameter, in the order of its indices, the last the
// fastest.
type Part struct{ From, To int }

// A Sharder is an optimizer that can change some of its parameters, or parts of them, and leave
// the rest to others: what lets ranks share the state (package dist, ZeRO). Those of this
// package are, but for [LBFGS], which sums over all parameters several times in a step.
type Sharder interface {
	Optimizer
	StepUnless(found *tensor.Tensor) // see package amp
	// Splits reports whether parts of a parameter can be changed without the rest: the rule goes
	// element by element. Otherwise a shard has whole parameters alone.
	Splits() bool
	// Shard makes the optimizer change these parts from now on, and remember of them alone; it
	// cuts the state that it has. Steps need the gradients of whole parameters, as before. It is
	// called once. A parameter with a part that is not whole is contiguous.
	//
	// StateDict then gives the state of the parts: what it remembers of each element of a part
	// that is not whole is a tensor of one dimension. LoadStateDict takes the state of all, as
	// without shards, and keeps that of the parts.
	Shard(parts map[*tensor.Tensor]Part)
}

// A shard is what an optimizer changes of its parameters.
type shard struct {
	parts map[*tensor.Tensor]Part
	views []*tensor.Tensor // of the step that goes on
}

// Splits reports whether the rule goes element by element: see [Sharder].
func (b *base) Splits() bool { return b.splits }

// Shard makes the optimizer change these parts of its parameters alone: see [Sharder]. Parts
// that do not fit the parameters panic with an *[Error].
func (b *base) Shard(parts map[*tensor.Tensor]Part) {
	b.settle()
	switch {
	case b.shard != nil:
		b.bad("it is sharded already")
	case b.recorded != nil:
		b.bad("it cannot be sharded while a step of it is captured")
	}
	sh := &shard{parts: map[*tensor.Tensor]Part{}}
	for i, p := range b.Params() {
		part, ok := parts[p]
		if !ok {
			continue
		}
		sh.parts[p] = part
		_, split := sh.split(p)
		switch at := fmt.Sprintf("the part %d to %d of parameter %d, of shape %v, ", part.From, part.To, i, p.Shape()); {
		case part.From < 0 || part.To < part.From || part.To > p.Size():
			b.bad("%sdoes not lie in it", at)
		case split && !b.splits:
			b.bad("%sis not all of it, and the rule needs that", at)
		case split && !p.IsContiguous():
			b.bad("%sis not all of it, and it is not contiguous", at)
		}
	}
	if len(sh.parts) != len(parts) {
		b.bad("%d of the parts are of tensors that are not its parameters", len(parts)-len(sh.parts))
	}
	b.cut(sh)
}

// cut leaves of the state what a shard remembers. What is new is made first.
func (b *base) cut(sh *shard) {
	kept := map[*tensor.Tensor]*state{}
	done := false
	defer func() {
		for p, st := range kept {
			if !done && st != b.state[p] {
				st.free()
			}
		}
	}()
	for p := range sh.parts {
		st := b.state[p]
		part, split := sh.split(p)
		if st == nil || !split {
			if st != nil {
				kept[p] = st
			}
			continue
		}
		c := *st
		c.tensors = make([]*tensor.Tensor, len(st.tensors))
		kept[p] = &c
		for i, t := range st.tensors {
			if t != nil {
				v := part.of(t, (*tensor.Tensor).Reshape)
				c.tensors[i] = p.Scope().On(t.Device()).Typed(t.Type()).Empty(v.Size())
				c.tensors[i].Copy(v)
				v.Free()
			}
		}
	}
	done = true
	for p, st := range b.state {
		if kept[p] != st {
			st.free()
		}
	}
	b.state, b.shard = kept, sh
}

// has reports whether the optimizer changes something of p.
func (b *base) has(p *tensor.Tensor) bool {
	if b.shard == nil {
		return true
	}
	_, ok := b.shard.parts[p]
	return ok
}

// split returns the part of p, if it is not all of it.
func (sh *shard) split(p *tensor.Tensor) (part Part, ok bool) {
	if sh == nil {
		return Part{}, false
	}
	part, ok = sh.parts[p]
	return part, ok && part != Part{0, p.Size()}
}

// of returns these elements of x as a view of one dimension, in x's scope. as is Reshape, or View
// where a copy would be wrong.
func (part Part) of(x *tensor.Tensor, as func(x *tensor.Tensor, dims ...int) *tensor.Tensor) *tensor.Tensor {
	d := x.Detach()
	defer d.Free()
	flat := as(d, -1)
	if flat != d {
		defer flat.Free()
	}
	return flat.Narrow(0, part.From, part.To-part.From)
}

// part returns what a step changes of p, and its gradient: nil if there is none, or p is another
// shard's.
func (b *base) part(p *tensor.Tensor) (x, grad *tensor.Tensor) {
	if grad = p.Grad(); grad == nil || !b.has(p) {
		return p, nil
	}
	part, split := b.shard.split(p)
	if !split {
		return p, grad
	}
	x = part.of(p, (*tensor.Tensor).View)
	b.shard.views = append(b.shard.views, x)
	grad = part.of(grad, (*tensor.Tensor).Reshape)
	b.shard.views = append(b.shard.views, grad)
	return x, grad
}

// end drops the views of a step.
func (sh *shard) end() {
	if sh == nil {
		return
	}
	for _, v := range sh.views {
		v.Free()
	}
	sh.views = nil
}

// uncapturable refuses a capture of a shard's steps: what other shards do is not in it.
func (sh *shard) uncapturable(name string) {
	if sh == nil {
		return
	}
	e := tensor.NewError(name, tensor.ErrCapture, "the optimizer is sharded, and the steps of the other shards are not in the capture")
	e.Hint = "capture Backward alone, and step after each replay"
	panic(e)
}
