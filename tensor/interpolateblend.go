package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// blendOp computes the weighted sum of two elements.
var blendOp = &Elementwise{Name: "interpolate", Arity: 4, Expr: x0.Mul(x1).Add(x2.Mul(expr.X(3)))}

// blendFunc resizes an axis to m elements. Each element of the result is an element of the operand,
// or a blend of two elements. One launch computes the places of both elements, because on small
// tensors the number of launches decides the time.
type blendFunc struct {
	op      string
	axis, m int
	taps    int // number of elements that an element of the result is a blend of
	p       *expr.Program
	params  []float64
}

// nearest returns a function that resizes the axis, taking the nearest elements.
func (a *axisSampler) nearest(step float64, offset bool) blendFunc {
	return blendFunc{a.op, a.axis, a.m, 1, a.program(coordinateNearest, offset), []float64{step, float64(a.n - 1)}}
}

// linear returns a function that resizes the axis, blending two elements.
func (a *axisSampler) linear() blendFunc {
	step, offset, next, last := a.step(), !a.align, 1.0, float64(a.n-1)
	// if the size does not change, torch returns each element itself, without a blend
	if a.n == a.m {
		step, offset, next = 1, false, 0
	}
	return blendFunc{a.op, a.axis, a.m, 2, a.program(coordinateLinear, offset), []float64{step, last, next, last}}
}

func (f blendFunc) Name() string { return f.op }

// half returns one half of x's axis as an operand of the given shape. For k = 0 it has the elements
// before the coordinates, for k = 1 the elements after them.
func (f blendFunc) half(x *Tensor, k int, sh shape.Dims) device.View {
	l, _ := x.layout.Narrow(f.axis, k*f.m, f.m, 1).Expand(sh)
	return device.View{Type: x.dtype, Layout: l}
}

// places returns the places of the elements that are blended into the result, and their weights.
// If taps is 1, the weights are nil.
func (f blendFunc) places(s *Scope, x *Tensor) (index, weight *Tensor) {
	once := onesOf(x.Rank()).With(f.axis, f.m)
	all := once.With(f.axis, f.taps*f.m)
	index = alloc(f.op, s, x.st.dev, dtype.I64, all)
	if f.taps == 1 {
		run(f.op, s, f.p, index, nil, f.params)
		return index, nil
	}
	weight = alloc(f.op, s, x.st.dev, x.dtype, all)
	m := mapOps.get()
	m.Program, m.Params = f.p, encode(f.p, f.params)
	m.Outs = append(m.Outs[:0], f.half(index, 0, once), f.half(index, 1, once), f.half(weight, 0, once), f.half(weight, 1, once))
	m.Ins = m.Ins[:0]
	launch(f.op, s, m, index, index, weight, weight)
	putMap(m)
	return index, weight
}

func (f blendFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, s := in[0], c.Scope()
	index, weight := f.places(s, x)
	tables := []*Tensor{index, weight}[:f.taps]
	var y *Tensor
	if weight != nil { // otherwise a gather is as fast
		y = f.byKernel(s, x, index, weight, f.m, false)
	}
	if y == nil {
		y = f.composed(s, x, index, weight)
	}
	if c.Needs(0) {
		c.Save(tables...)
	} else {
		freeAll(&tables)
	}
	return y
}

func (f blendFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

// byKernel resizes the axis of x to n elements. If back is true, x is the gradient of a resized
// tensor, and byKernel computes the gradient of the operand, whose axis has n elements. byKernel
// returns nil if the device has no kernel for this.
func (f blendFunc) byKernel(s *Scope, x, index, weight *Tensor, n int, back bool) *Tensor {
	planes := func(n int) shape.Dims {
		outer, inner := 1, 1
		for k := range x.Rank() {
			if k < f.axis {
				outer *= x.Dim(k)
			} else if k > f.axis {
				inner *= x.Dim(k)
			}
		}
		return shape.Of(outer, n, inner)
	}
	table := shape.Of(f.taps, f.m)
	o := device.Blend{Out: resultOf(x.dtype, planes(n)), X: resultOf(x.dtype, planes(x.Dim(f.axis))), Index: resultOf(dtype.I64, table), Back: back}
	if weight != nil {
		o.Weight = resultOf(x.dtype, table)
	}
	own := blendOps.supported(s, x.st.dev, o)
	if own == nil {
		return nil
	}
	from := x
	if !x.layout.Contiguous() {
		from = x.copied(s)
	}
	y := alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape.With(f.axis, n))
	own.X.Offset, own.Index.Offset = from.layout.Offset, index.layout.Offset
	if weight != nil {
		own.Weight.Offset = weight.layout.Offset
	}
	launch(f.op, s, own, y, from, index, weight)
	blendOps.put(own)
	return freeView(y, from, x)
}

var blendOps opPool[device.Blend, *device.Blend]

// composed computes the result by other primitives.
func (f blendFunc) composed(s *Scope, x, index, weight *Tensor) *Tensor {
	places := index.expand(x.layout.Shape.With(f.axis, f.taps*f.m))
	both := gathered(f.op, s, device.Gather{Axis: f.axis}, x, places, index)
	freeView(both, places, index)
	if weight == nil {
		return both
	}
	y := alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape.With(f.axis, f.m))
	sh := y.layout.Shape
	m := mapOps.get()
	m.Program = blendOp.program([]*Tensor{both, weight, both, weight}, x.dtype, x.dtype)
	m.Outs = append(m.Outs[:0], y.operand())
	m.Ins = append(m.Ins[:0], f.half(both, 0, sh), f.half(weight, 0, sh), f.half(both, 1, sh), f.half(weight, 1, sh))
	launch(f.op, s, m, y, both, weight, both, weight)
	putMap(m)
	both.Free()
	return y
}

func (f blendFunc) VJP(c *Context, g *Tensor) []*Tensor {
	in := []*Tensor{g, c.Saved(0)}
	if f.taps == 2 {
		in = append(in, c.Saved(1))
	}
	return []*Tensor{Apply(blendGradFunc{f, c.n.operands[0].shape}, in...)}
}

// blendGradFunc is the gradient of blendFunc. Its operands are the gradient of the result, the
// places and the weights.
type blendGradFunc struct {
	blendFunc
	shape shape.Dims // shape of blendFunc's operand
}

func (f blendGradFunc) Forward(c *Context, in []*Tensor) (sum *Tensor) {
	if y := f.lean(c, in); y != nil {
		return y
	}
	g, index, weight := in[0], in[1], f.weight(in)
	for k := range f.taps {
		part := g
		if weight != nil {
			part = g.Mul(weight.Narrow(f.axis, k*f.m, f.m))
		}
		places := index.Narrow(f.axis, k*f.m, f.m).expand(g.layout.Shape)
		part = Apply(scatterFunc{f.axis, f.shape, "scatter_add", false}, part, places)
		if sum = sumWith(sum, part); sum != part {
			part.Free()
		}
	}
	return sum
}

// lean computes the gradient if the device has a kernel for it.
func (f blendGradFunc) lean(c *Context, in []*Tensor) *Tensor {
	return f.byKernel(c.Scope(), in[0], in[1], f.weight(in), f.shape.At(f.axis), true)
}

// weight returns the operand with the weights, or nil if there is none.
func (f blendGradFunc) weight(in []*Tensor) *Tensor {
	if f.taps == 1 {
		return nil
	}
	return in[2]
}

func (f blendGradFunc) VJP(c *Context, g *Tensor) []*Tensor {
	return []*Tensor{Apply(f.blendFunc, g), nil, nil}[:f.taps+1]
}
