package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// blendOp is the sum of two elements with weights.
var blendOp = &Elementwise{Name: "interpolate", Arity: 4, Expr: x0.Mul(x1).Add(x2.Mul(expr.X(3)))}

// blendFunc resizes an axis to m elements. Each element of the result is a blend of two elements of
// the operand. One launch gathers both, because on small tensors the number of launches decides the
// time.
type blendFunc struct {
	op      string
	axis, m int
	coords  linearCoordinates
}

// linearCoordinates holds a program of [coordinateLinear] and its numbers.
type linearCoordinates struct {
	p      *expr.Program
	params [4]float64
}

func (a *axisSampler) linear() linearCoordinates {
	step, offset, next, last := a.step(), !a.align, 1.0, float64(a.n-1)
	if a.n == a.m { // if the size stays, torch returns each element itself
		step, offset, next = 1, false, 0
	}
	return linearCoordinates{a.program(coordinateLinear, offset), [4]float64{step, last, next, last}}
}

func (f blendFunc) Name() string { return f.op }

// half returns one half of the axis: k is 0 for the elements before the coordinates, otherwise 1.
func (f blendFunc) half(s *Scope, x *Tensor, k int) *Tensor {
	return x.handle(f.op, s, x.layout.Narrow(f.axis, k*f.m, f.m, 1))
}

func (f blendFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, s := in[0], c.Scope()
	twice := onesOf(x.Rank()).With(f.axis, 2*f.m)
	index, weight := alloc(f.op, s, x.st.dev, dtype.I64, twice), alloc(f.op, s, x.st.dev, x.dtype, twice)
	u, t := f.half(s, weight, 0), f.half(s, weight, 1)
	runMap(f.op, s, f.coords.p, []*Tensor{f.half(s, index, 0), f.half(s, index, 1), u, t}, nil, encode(f.coords.p, f.coords.params[:]))
	both := gathered(f.op, s, device.Gather{Axis: f.axis}, x, index.expand(x.layout.Shape.With(f.axis, 2*f.m)), index)
	y := alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape.With(f.axis, f.m))
	parts := []*Tensor{f.half(s, both, 0), u, f.half(s, both, 1), t}
	run(f.op, s, blendOp.program(parts, x.dtype, x.dtype), y, parts, nil)
	if c.Needs(0) {
		c.Save(index, weight)
	}
	return y
}

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
