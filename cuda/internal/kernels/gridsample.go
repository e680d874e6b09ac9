package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// gridSpec describes a kernel that samples images, or the kernel of its gradient. A thread computes
// one element of the result, or the gradient of one point of the grid.
type gridSpec struct {
	device.GridSampling
	typ  dtype.Type
	grad bool
	wide bool
}

func (s gridSpec) name() string {
	name := fmt.Sprintf("grid_%v_%v", s.Mode, s.Padding)
	if s.AlignCorners {
		name += "_corners"
	}
	if s.grad {
		name += "_grad"
	}
	name = fmt.Sprintf("%s_%v", name, s.typ)
	if s.wide {
		name += "_w"
	}
	return name
}

// GridSample plans the sampling of x at the points of grid, and stores the samples in out. Images
// are contiguous, with the shape [n, c, h, w]. GridSample implements [device.GridSample].
func GridSample(out, x, grid Operand, s device.GridSampling) ([]Launch, error) {
	return planGrid(gridSpec{GridSampling: s, typ: x.Type}, out.Shape.Size(), out, x, grid)
}

// GridSampleGrad plans dgrid, the gradient of grid, from g, the gradient of the result.
func GridSampleGrad(dgrid, g, x, grid Operand, s device.GridSampling) ([]Launch, error) {
	return planGrid(gridSpec{GridSampling: s, typ: x.Type, grad: true}, grid.Shape.Size()/2, g, x, grid, dgrid)
}

func planGrid(s gridSpec, n int, out, x, grid Operand, more ...Operand) ([]Launch, error) {
	if n == 0 {
		return nil, nil
	}
	points := grid.Shape.At(1) * grid.Shape.At(2)
	s.wide = max(out.Shape.Size(), x.Shape.Size(), grid.Shape.Size()) > narrowLimit
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 96)
	p.index(s.wide, n)
	p.packCoordinates([]int{x.Shape.At(0), max(1, x.Shape.At(1)), points}, s.wide)
	p.index(s.wide, x.Shape.At(1))
	p.u32(uint32(x.Shape.At(2)))
	p.u32(uint32(x.Shape.At(3)))
	for _, o := range append([]Operand{out, x, grid}, more...) {
		p.u64(o.start())
	}
	l, err := p.launch(k, min(ceilDiv(n, mapThreads), maxBlocks))
	return []Launch{l}, err
}

func (s gridSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	if s.grad && s.Mode == device.GridBicubic && s.typ == dtype.F64 {
		b.MinBlocks(2) // sixteen weights and their derivatives need many registers
	} else {
		roomForRegisters(b)
	}
	t, it := storage(s.typ), indexType(s.wide)
	n := b.Param("n", it)
	split := declareCoordinates(b, "d", 3, s.wide)
	channels := b.Param("channels", it)
	h, w := b.Param("h", ptx.U32), b.Param("w", ptx.U32)
	out, x, grid := b.Pointer("out", t), b.Pointer("x", t), b.Pointer("grid", t)
	var to ptx.Ptr
	if s.grad {
		to = b.Pointer("dgrid", t)
	}
	points, plane := split.size[1], h.Cvt(it).Mul(w.Cvt(it))
	id, step := globalIndex(b, s.wide)
	b.For(id, n, step, func(i ptx.Value, _ ptx.Loop) {
		var sample, c, p ptx.Value
		if s.grad {
			sample = i.Div(points)
			p = i.Sub(sample.Mul(points))
		} else {
			at := split.split(i)
			sample, c, p = at[0], at[1], at[2]
		}
		from := grid.At(sample.Mul(points).Add(p).Mul(num(2)))
		across, slopeX := s.taps(b, from.Load(), w)
		down, slopeY := s.taps(b, from.At(num(1)).Load(), h)
		if !s.grad {
			image := x.At(sample.Mul(channels).Add(c).Mul(plane))
			sum := b.Var(b.Const(t, real(0)))
			s.forEach(b, across, down, w, it, func(at ptx.Value, x, y gridTap) {
				sum.Set(sum.Get().Add(image.At(at).Load().Mul(y.w.Mul(x.w))))
			})
			out.At(i).Store(sum.Get())
			return
		}
		d := to.At(i.Mul(num(2)))
		if s.Mode == device.GridNearest {
			d.Store(b.Const(t, real(0)))
			d.At(num(1)).Store(b.Const(t, real(0)))
			return
		}
		dx, dy := b.Var(b.Const(t, real(0))), b.Var(b.Const(t, real(0)))
		s.forEach(b, across, down, w, it, func(at ptx.Value, ax, ay gridTap) {
			sum := b.Var(b.Const(t, real(0)))
			b.For(b.Const(it, num(0)), channels, num(1), func(c ptx.Value, _ ptx.Loop) {
				row := sample.Mul(channels).Add(c)
				sum.Set(sum.Get().Add(x.At(row.Mul(plane)).At(at).Load().Mul(out.At(row.Mul(points)).At(p).Load())))
			})
			dx.Set(dx.Get().Add(sum.Get().Mul(ay.w.Mul(ax.d))))
			dy.Set(dy.Get().Add(sum.Get().Mul(ay.d.Mul(ax.w))))
		})
		d.Store(dx.Get().Mul(slopeX))
		d.At(num(1)).Store(dy.Get().Mul(slopeY))
	})
	return [3]int{mapThreads, 1, 1}
}

// A gridTap is one of the elements of the image that a point reads along one dimension. It holds
// the element's index, and whether the element is inside the image. The field w is the element's
// weight, and d is the derivative of the weight with respect to the point's position.
type gridTap struct{ index, inside, w, d ptx.Value }

// forEach calls f for each element of the image that a point of the grid reads.
func (s gridSpec) forEach(b *ptx.Builder, across, down []gridTap, w ptx.Value, indexType ptx.Type, f func(offset ptx.Value, x, y gridTap)) {
	for _, y := range down {
		for _, x := range across {
			b.If(y.inside.And(x.inside), func() { f(y.index.Cvt(indexType).Mul(w.Cvt(indexType)).Add(x.index.Cvt(indexType)), x, y) })
		}
	}
}

// taps returns the elements that a point with the coordinate x reads in a dimension of size n. They
// are the same as on the CPU. The result slope is the derivative of the position, in elements, with
// respect to x.
func (s gridSpec) taps(b *ptx.Builder, x, n ptx.Value) (list []gridTap, slope ptx.Value) {
	t := x.Type()
	c := func(v float64) ptx.Value { return b.Const(t, real(v)) }
	size := n.Cvt(t)
	slope = size.Mul(c(0.5))
	low := c(-0.5)
	if s.AlignCorners {
		slope, low = size.Sub(c(1)).Mul(c(0.5)), c(0)
	}
	at := x.Add(c(1)).FMA(slope, low)
	if s.Mode != device.GridBicubic {
		var sign ptx.Value
		at, sign = s.pad(b, at, size)
		slope = slope.Mul(sign)
	}
	first := at.Floor()
	u := at.Sub(first)
	v := c(1).Sub(u)
	switch s.Mode {
	case device.GridNearest:
		first = at.RoundEven()
		list = []gridTap{{w: c(1), d: c(0)}}
	case device.GridBilinear:
		list = []gridTap{{w: v, d: c(-1)}, {w: u, d: c(1)}}
	default:
		inner := func(u, v ptx.Value) ptx.Value { return u.Mul(u).Mul(c(-1.25)).Add(u).Add(c(1)).Mul(v) }
		outer := func(u, v ptx.Value) ptx.Value { return u.Mul(v).Mul(v).Mul(c(-0.75)) }
		innerSlope := func(u ptx.Value) ptx.Value { return c(3.75).Mul(u).Sub(c(4.5)).Mul(u) }
		outerSlope := func(u, v ptx.Value) ptx.Value { return c(-0.75).Mul(v).Mul(v.Sub(c(2).Mul(u))) }
		first = first.Sub(c(1))
		list = []gridTap{{w: outer(u, v), d: outerSlope(u, v)}, {w: inner(u, v), d: innerSlope(u)},
			{w: inner(v, u), d: innerSlope(v).Neg()}, {w: outer(v, u), d: outerSlope(v, u).Neg()}}
	}
	for k := range list {
		to := first.Add(c(float64(k)))
		if s.Mode == device.GridBicubic {
			to, _ = s.pad(b, to, size)
		}
		list[k].inside = to.Ge(c(0)).And(to.Le(size.Sub(c(1))))
		list[k].index = to.Cvt(ptx.U32)
	}
	return list, slope
}

// pad maps a position outside of a dimension of the given size into it. The result sign is the
// derivative of this mapping: 1, or -1 where the position is reflected, or 0 where it is clamped to
// the border.
func (s gridSpec) pad(b *ptx.Builder, position, size ptx.Value) (mapped, sign ptx.Value) {
	t := position.Type()
	c := func(v float64) ptx.Value { return b.Const(t, real(v)) }
	last := size.Sub(c(1))
	sign = c(1)
	switch s.Padding {
	case device.GridZeros:
		return position, sign
	case device.GridReflection:
		low, span := c(-0.5), size
		if s.AlignCorners {
			low, span = c(0), last
		}
		double := c(2).Mul(span)
		far := position.Sub(low)
		sign = far.Lt(c(0)).Select(c(-1), sign)
		far = far.Abs()
		far = far.Sub(far.Div(double).Trunc().Mul(double))
		back := far.Gt(span)
		sign = back.Select(sign.Neg(), sign)
		position = back.Select(double.Sub(far), far).Add(low)
		position = span.Eq(c(0)).Select(c(0), position)
	}
	low, high := position.Gt(c(0)).Not(), position.Ge(last)
	return low.Select(c(0), high.Select(last, position)), low.Or(high).Select(c(0), sign)
}
