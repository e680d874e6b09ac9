package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// blendOp computes the weighted sum of two elements.
var blendOp = &Elementwise{Name: "interpolate", Arity: 4, Expr: x0.Mul(x1).Add(x2.Mul(expr.X(3)))}

// blendFunc resizes an axis to m elements. Each element of the result is a blend of two elements of
// the operand. One launch gathers both, because on small tensors the number of launches decides the
// time.
type blendFunc struct {
	op      string
	axis, m int
	coords  linearCoordinates
}

// linearCoordinates holds a program of kind [coordinateLinear] and the numbers for its params.
type linearCoordinates struct {
	p      *expr.Program
	params [4]float64
}

func (a *axisSampler) linear() linearCoordinates {
	step, offset, next, last := a.step(), !a.align, 1.0, float64(a.n-1)
	// if the size does not change, torch returns each element itself, without a blend
	if a.n == a.m {
		step, offset, next = 1, false, 0
	}
	return linearCoordinates{a.program(coordinateLinear, offset), [4]float64{step, last, next, last}}
}

func (f blendFunc) Name() string { return f.op }

// half returns one half of x's axis as an operand of the given shape. For k = 0 it has the elements
// before the coordinates, for k = 1 the elements after them.
func (f blendFunc) half(x *Tensor, k int, sh shape.Dims) device.View {
	l, _ := x.layout.Narrow(f.axis, k*f.m, f.m, 1).Expand(sh)
	return device.View{Type: x.dtype, Layout: l}
}

func (f blendFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, s := in[0], c.Scope()
	once := onesOf(x.Rank()).With(f.axis, f.m)
	twice := once.With(f.axis, 2*f.m)
	index, weight := alloc(f.op, s, x.st.dev, dtype.I64, twice), alloc(f.op, s, x.st.dev, x.dtype, twice)
	m := mapOps.get()
	m.Program, m.Params = f.coords.p, encode(f.coords.p, f.coords.params[:])
	m.Outs = append(m.Outs[:0], f.half(index, 0, once), f.half(index, 1, once), f.half(weight, 0, once), f.half(weight, 1, once))
	m.Ins = m.Ins[:0]
	launch(f.op, s, m, index, index, weight, weight)
	putMap(m)
	places := index.expand(x.layout.Shape.With(f.axis, 2*f.m))
	both := gathered(f.op, s, device.Gather{Axis: f.axis}, x, places, index)
	freeView(both, places, index)
	y := alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape.With(f.axis, f.m))
	sh := y.layout.Shape
	m = mapOps.get()
	m.Program = blendOp.program([]*Tensor{both, weight, both, weight}, x.dtype, x.dtype)
	m.Outs = append(m.Outs[:0], y.operand())
	m.Ins = append(m.Ins[:0], f.half(both, 0, sh), f.half(weight, 0, sh), f.half(both, 1, sh), f.half(weight, 1, sh))
	launch(f.op, s, m, y, both, weight, both, weight)
	putMap(m)
	both.Free()
	if c.Needs(0) {
		c.Save(index, weight)
	} else {
		index.Free()
		weight.Free()
	}
	return y
}

func (f blendFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

func (f blendFunc) VJP(c *Context, g *Tensor) []*Tensor {
	var sum *Tensor
	for k := range 2 {
		index, weight := c.Saved(0).Narrow(f.axis, k*f.m, f.m), c.Saved(1).Narrow(f.axis, k*f.m, f.m)
		part := Apply(scatterFunc{f.axis, c.n.operands[0].shape, "scatter_add", false}, g.Mul(weight), index.expand(g.layout.Shape))
		if k == 0 {
			sum = part
		} else {
			sum = sumAndFree(sum, part)
		}
	}
	return []*Tensor{sum}
}
