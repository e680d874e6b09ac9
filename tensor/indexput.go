package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// indexPutFunc returns its first operand with the second operand written to the elements that a
// plan selects. The third operand is the plan's combined index.
type indexPutFunc struct {
	p   *indexPlan
	add bool
}

func (f indexPutFunc) Name() string { return f.p.op }

func (f indexPutFunc) Forward(c *Context, in []*Tensor) *Tensor {
	y := in[0].Clone()
	var index *Tensor
	if len(in) > 2 {
		index = in[2]
		c.Save(index)
	}
	f.p.put(c.Scope(), y, in[1], index, f.add)
	return y
}

// lean copies x, which must be contiguous, and writes the value to the copy. The value must have
// the shape and order of the selection. In other cases lean returns nil.
func (f indexPutFunc) lean(c *Context, in []*Tensor) *Tensor {
	p, x, value := f.p, in[0], in[1]
	if len(in) < 3 || p.axis != p.place || !x.layout.Contiguous() {
		return nil
	}
	index, s := in[2], c.Scope()
	flat := p.merged(index.Size())
	l, ok := p.steps.region(shape.Dense(x.layout.Shape)).Permute(p.order).View(p.merged(p.extent()))
	if !ok || value.layout.Shape != flat || p.result() != flat {
		return nil
	}
	y, done := x.copied(s), false
	defer freeUnless(&done, y)
	c.Save(index)
	to, spread := y, expandVector(index, p.axis, flat)
	defer spread.Free()
	if l != y.layout {
		to = y.handle(p.op, s, l)
		defer to.Free()
	}
	to.scatterOp(p.op, s, p.scatter(f.add), value, spread)
	done = true
	return y
}

// scatter returns the options of the primitive that writes values by the combined index.
func (p *indexPlan) scatter(add bool) device.Scatter {
	o := device.Scatter{Kind: device.ScatterSet, Axis: p.axis, Wrap: p.wrap}
	if add {
		o.Kind = device.ScatterAdd
	}
	return o
}

func (f indexPutFunc) VJP(c *Context, g *Tensor) []*Tensor {
	rest := []*Tensor{}
	if c.NumSaved() > 0 {
		rest = append(rest, c.Saved(0))
	}
	grads := make([]*Tensor, 2+len(rest))
	if grads[0] = g; c.Needs(0) && !f.add {
		zero := c.Scope().On(g.st.dev).Typed(g.dtype).Full(0)
		grads[0] = Apply(indexPutFunc{f.p, false}, append([]*Tensor{g, zero}, rest...)...)
	}
	if c.Needs(1) {
		var index *Tensor
		if len(rest) > 0 {
			index = rest[0]
		}
		grads[1] = f.p.apply(g, index).sumTo(c.n.operands[1].shape)
	}
	return grads
}

// bare returns the plan without its tensors, so that the graph does not keep them.
func (p *indexPlan) bare() *indexPlan {
	b := *p
	b.x, b.fewParts = nil, [2]indexPart{}
	b.steps = append(b.fewSteps[:0], p.steps...)
	b.parts = append(b.fewParts[:0], make([]indexPart, len(p.parts))...)
	return &b
}

// put broadcasts value and writes it to the elements of x that the plan selects.
func (p *indexPlan) put(s *Scope, x, value, index *Tensor, add bool) {
	v := x.handle(p.op, s, p.steps.region(x.layout))
	value = value.expand(p.result())
	if index == nil {
		if add {
			value = v.Add(value)
		}
		v.store(p.op, s, value)
		return
	}
	o, flat := p.scatter(add), p.merged(index.Size())
	value = value.reshape(flat.Remove(p.axis).Insert(p.place, index.Size())).MoveAxis(p.place, p.axis)
	to := v.Permute(p.order...)
	spread := expandVector(index, p.axis, flat)
	if l, ok := to.layout.View(p.merged(p.extent())); ok {
		x.handle(p.op, s, l).scatterOp(p.op, s, o, value, spread)
		return
	}
	c := to.Contiguous() // the indexed dimensions cannot be joined without a copy
	c.reshape(p.merged(p.extent())).scatterOp(p.op, s, o, value, spread)
	to.store(p.op, s, c)
}

// value returns the tensor to be written. If the plan's only index is a mask and v is one number,
// it also returns the mask. Then the caller need not know how many elements the mask selects.
func (p *indexPlan) value(s *Scope, v any, add bool) (value, mask *Tensor) {
	m := s.On(p.x.st.dev).Typed(p.x.dtype)
	number := func(v float64) *Tensor {
		return m.Full(p.x.fittedNumber(p.op, v))
	}
	long := func(v int64) *Tensor {
		if v < 1<<53 && v > -1<<53 { // a float64 can hold v exactly
			return number(float64(v))
		}
		if p.x.dtype != dtype.I64 {
			p.x.fittedNumber(p.op, float64(v))
		}
		return s.On(p.x.st.dev).Typed(dtype.I64).From([]int64{v}).reshape(shape.Dims{}).Cast(p.x.dtype)
	}
	switch v := v.(type) {
	case *Tensor:
		value = v.In(s)
	case float64:
		value = number(v)
	case float32:
		value = number(float64(v))
	case int:
		value = long(int64(v))
	case int64:
		value = long(v)
	case int32:
		value = long(int64(v))
	case bool:
		value = number(indicator(v))
	default:
		fail(p.op, ErrType, []*Tensor{p.x}, "the value is a %T; there are numbers, bool and *Tensor", v)
	}
	if len(p.flips) > 0 {
		e := newError(p.op, ErrValue, []*Tensor{p.x}, "a range with a negative step cannot be assigned to")
		panic(e.hint("turn the value round with Flip"))
	}
	if value.dtype != p.x.dtype {
		if len(p.parts) > 0 && value.Rank() > 0 {
			e := newError(p.op, ErrType, append(p.operands(p.x), value), "the value is "+value.dtype.String()+", the tensor "+p.x.dtype.String())
			panic(e.hint("use Cast"))
		}
		value = value.Cast(p.x.dtype)
	}
	if len(p.parts) == 1 && p.parts[0].mask != nil && value.Size() == 1 && value.Rank() <= p.shape.Rank()-p.parts[0].rank+1 && !add {
		q := p.parts[0]
		mask = q.mask.In(s)
		for range p.shape.Rank() - q.dim - q.rank {
			mask = mask.Unsqueeze(-1)
		}
		value = value.reshape(shape.Dims{})
	}
	return value, mask
}

// fit removes leading dimensions of size 1 from value, if value has more dimensions than the plan's
// selection. An assignment in Python does the same. fit panics if value does not broadcast to the
// selection.
func (p *indexPlan) fit(value *Tensor) *Tensor {
	to, s := p.result(), value.layout.Shape
	for s.Rank() > to.Rank() && s.At(0) == 1 {
		s = s.Remove(0)
	}
	if _, ok := shape.Dense(s).Expand(to); !ok {
		fail(p.op, ErrShape, []*Tensor{p.x, value}, "a value of shape %v does not broadcast to the places, of shape %v", value.layout.Shape, to)
	}
	return value.reshape(s)
}

// changed returns x with v written to the elements that the plan selects.
func (p *indexPlan) changed(x *Tensor, v any, add bool) *Tensor {
	in := p.operands(x)
	t, ok := v.(*Tensor)
	if ok {
		in = append(in, t)
	}
	own := youngest(p.op, in)
	// If the only index is a vector of int64, at most one intermediate tensor is needed: a copy.
	if ok && len(p.parts) == 1 && len(p.flips) == 0 && t.dtype == x.dtype {
		if index := p.parts[0].index; index != nil && index.scope == own && index.dtype == dtype.I64 && index.Rank() == 1 {
			places := p.combine(own, x, t)
			defer freeView(nil, places, index)
			value := p.fit(t)
			defer freeView(nil, value, t)
			return Apply(indexPutFunc{p.bare(), add}, x, value, places)
		}
	}
	return within(own, func(c *Scope) *Tensor {
		value, mask := p.value(c, v, add)
		if mask != nil && p.isAll(x.layout.Shape) {
			return Where(mask, value, x.In(c))
		}
		var index []*Tensor
		if len(p.parts) > 0 {
			index = append(index, p.combine(c, x, value))
		}
		return Apply(indexPutFunc{p.bare(), add}, append([]*Tensor{x.In(c), p.fit(value)}, index...)...)
	})
}

// IndexPut returns x with value written, or added if accumulate is true, to the elements that
// [Tensor.Index] would select by ix. It is torch.index_put. value is a number, or a tensor of x's
// type that broadcasts to the shape of Index's result. A tensor of another type is converted if
// there are no index tensors or if it has rank 0. If ix selects an element several times, the last
// value in row-major order wins. But as in PyTorch, each of these values receives the element's
// gradient. If accumulate is true, the values are added in row-major order.
func (x *Tensor) IndexPut(value any, accumulate bool, ix ...any) *Tensor {
	const op = "index_put"
	if v, ok := value.(*Tensor); ok {
		in := []*Tensor{x, v}
		for _, i := range ix {
			if t, ok := i.(*Tensor); ok {
				in = append(in, t) // t is listed only to find the youngest scope
			}
		}
		if y := underAutocast(op, AutocastWidest, func(in []*Tensor) *Tensor { return in[0].IndexPut(in[1], accumulate, ix...) }, in...); y != nil {
			return y
		}
	}
	p := x.plan(op, ix)
	p.checkValue(value)
	return p.changed(x, value, accumulate)
}

// checkValue returns the plan's operands. If value is a tensor, checkValue appends it and checks
// all operands together.
func (p *indexPlan) checkValue(value any) (in []*Tensor) {
	in = p.operands()
	if t, ok := value.(*Tensor); ok {
		in = append(in, t)
		youngest(p.op, append(in, p.x))
		sameDevice(p.op, append(in, p.x))
	}
	return in
}

// IndexPutInPlace is [Tensor.IndexPut] in place, torch's index_put_.
func (x *Tensor) IndexPutInPlace(value any, accumulate bool, ix ...any) *Tensor {
	const op = "index_put"
	p := x.plan(op, ix)
	in := p.checkValue(value)
	return x.change(op, in, func() *Tensor { return p.changed(x, value, accumulate) }, func(s *Scope) {
		c := s.child()
		defer c.recycle()
		c.modes.noGrad = true
		to := x.detachedIn(c)
		value, mask := p.value(c, value, accumulate)
		if value.st == x.st { // value is read while x is written
			value = value.Clone()
		}
		if mask != nil {
			v := to.handle(op, c, p.steps.region(to.layout))
			v.store(op, c, Where(mask, value, v))
			return
		}
		var index *Tensor
		if len(p.parts) > 0 {
			if index = p.combine(c); index.st == x.st {
				index = index.Clone()
			}
		}
		p.put(c, to, p.fit(value), index, accumulate)
	})
}

// SetIndex is Python's x[…] = value: it writes value, a number or a tensor, to the elements that
// [Tensor.Index] would select. It is [Tensor.IndexPutInPlace] without accumulating, and returns x.
// If a number is written where a mask is true, the mask's count is not copied to the host.
func (x *Tensor) SetIndex(value any, ix ...any) *Tensor {
	return x.IndexPutInPlace(value, false, ix...)
}
