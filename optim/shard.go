package optim

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Part is the range From … To-1 of a parameter's elements in row-major order.
type Part struct{ From, To int }

// A Sharder is an optimizer that can update only some of its parameters, or parts of parameters.
// With Sharders, ranks can divide the work and the state among themselves (package dist, ZeRO). All
// optimizers of this package except [LBFGS] are Sharders. LBFGS needs sums over all parameters
// several times in a step.
type Sharder interface {
	Optimizer
	StepUnless(found *tensor.Tensor) // a Step that the device may skip; package amp uses it
	// Splits reports whether the optimizer can update a part of a parameter. This is so if the
	// optimizer works element by element. Otherwise a shard consists of whole parameters.
	Splits() bool
	// Shard makes the optimizer update only these parts from now on, and keep state only for them.
	// It reduces existing state to these parts. Steps still need the gradients of whole parameters.
	// Call Shard only once. A parameter must be contiguous if only a part of it is updated.
	//
	// Afterwards StateDict returns the state of the parts. For a part of a parameter, each state
	// tensor is a vector. LoadStateDict accepts the state of whole parameters, as without shards,
	// and keeps the state of the parts.
	Shard(parts map[*tensor.Tensor]Part)
}

// A shard holds the parts of the parameters that an optimizer updates.
type shard struct {
	parts map[*tensor.Tensor]Part
	views []*tensor.Tensor // views that the current step uses
}

// Splits reports whether the optimizer works element by element, so that it can update a part of a
// parameter.
func (b *base) Splits() bool { return b.splits }

// Shard makes the optimizer update only the given parts of its parameters, as [Sharder] describes.
// Parts that do not fit the parameters panic with an *[Error].
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

// cut reduces the state to the parts in sh. It allocates all new tensors before it frees the old
// ones.
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
				v := part.view(t, (*tensor.Tensor).Reshape)
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

// updates reports whether the optimizer updates p or a part of it.
func (b *base) updates(p *tensor.Tensor) bool {
	if b.shard == nil {
		return true
	}
	_, ok := b.shard.parts[p]
	return ok
}

// split returns the part of p to update. ok is false if this is the whole of p.
func (sh *shard) split(p *tensor.Tensor) (part Part, ok bool) {
	if sh == nil {
		return Part{}, false
	}
	part, ok = sh.parts[p]
	return part, ok && part != Part{0, p.Size()}
}

// view returns the elements of x in the part, as a vector in x's scope. reshape is the method
// Reshape, which copies if it must, or the method View, which never copies.
func (part Part) view(x *tensor.Tensor, reshape func(x *tensor.Tensor, dims ...int) *tensor.Tensor) *tensor.Tensor {
	d := x.Detach()
	defer d.Free()
	flat := reshape(d, -1)
	if flat != d {
		defer flat.Free()
	}
	return flat.Narrow(0, part.From, part.To-part.From)
}

// part returns the part of p that a step updates, and its gradient. The gradient is nil if p has
// none, or if p belongs to another shard.
func (b *base) part(p *tensor.Tensor) (x, grad *tensor.Tensor) {
	if grad = p.Grad(); grad == nil || !b.updates(p) {
		return p, nil
	}
	part, split := b.shard.split(p)
	if !split {
		return p, grad
	}
	x = part.view(p, (*tensor.Tensor).View)
	b.shard.views = append(b.shard.views, x)
	grad = part.view(grad, (*tensor.Tensor).Reshape)
	b.shard.views = append(b.shard.views, grad)
	return x, grad
}

// end frees the views of a step.
func (sh *shard) end() {
	if sh == nil {
		return
	}
	for _, v := range sh.views {
		v.Free()
	}
	sh.views = nil
}

// uncapturable raises an error if the optimizer is sharded, because a captured step would lack the
// work of the other shards.
func (sh *shard) uncapturable(name string) {
	if sh == nil {
		return
	}
	e := tensor.NewError(name, tensor.ErrCapture, "the optimizer is sharded, and the steps of the other shards are not in the capture")
	e.Hint = "capture Backward alone, and step after each replay"
	panic(e)
}
