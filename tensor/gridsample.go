package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// GridSampleOptions are the options of [Tensor.GridSample]. The zero value has torch's defaults.
type GridSampleOptions = device.GridSampling

// The modes and paddings of [Tensor.GridSample].
const (
	GridBilinear   = device.GridBilinear
	GridNearest    = device.GridNearest
	GridBicubic    = device.GridBicubic
	GridZeros      = device.GridZeros
	GridBorder     = device.GridBorder
	GridReflection = device.GridReflection
)

// GridSample reads images x, [n, c, h, w], at the positions of grid, [n, oh, ow, 2]. The result is
// [n, c, oh, ow], as for torch's F.grid_sample in two dimensions. The last dimension of grid holds
// (x, y): -1 is the left or upper border, and 1 is the right or lower border. [GridSampleOptions]
// says how coordinates become positions, and what is read outside of the image. Both operands have
// one floating point type. 16-bit types are computed in float32.
//
// A coordinate that is not finite lies outside; see [GridSampleOptions]. For such a coordinate
// torch on the CPU may read memory outside of the image. The gradient of grid can jump at borders
// and at elements. At a jump it has torch's value. At a border this is 0. At an element it is the
// value between this element and the next.
func (x *Tensor) GridSample(grid *Tensor, o GridSampleOptions) *Tensor {
	const op = "grid_sample"
	if y := underAutocast(op, AutocastWidest, func(in []*Tensor) *Tensor { return in[0].GridSample(in[1], o) }, x, grid); y != nil {
		return y
	}
	in := []*Tensor{x, grid}
	s := youngest(op, in)
	sameDevice(op, in)
	x.mustFloat(op)
	switch {
	case o.Mode > GridBicubic || o.Padding > GridReflection:
		fail(op, ErrValue, in, "there is no mode %v with padding %v", o.Mode, o.Padding)
	case x.Rank() != 4 || grid.Rank() != 4 || grid.Dim(3) != 2 || grid.Dim(0) != x.Dim(0):
		fail(op, ErrShape, in, "images are [n, channels, height, width] and places [n, height, width, 2]; shapes are %s", shapes(in))
	case x.Dim(2) == 0 || x.Dim(3) == 0:
		fail(op, ErrShape, in, "images of shape %v have no elements", x.Shape())
	case grid.dtype != x.dtype:
		e := newError(op, ErrType, in, "places are "+grid.dtype.String()+", the images "+x.dtype.String())
		panic(e.hint("Cast one of them"))
	}
	return within(s, func(c *Scope) *Tensor {
		t := x.dtype.Compute()
		return Apply(&gridFunc{o}, x.In(c).Cast(t), grid.In(c).Cast(t)).Cast(x.dtype)
	})
}

// gridFunc computes GridSample in float32 and float64.
type gridFunc struct{ device.GridSampling }

func (*gridFunc) Name() string            { return "grid_sample" }
func (*gridFunc) Autocast() AutocastClass { return AutocastOff }

func (f *gridFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, grid, s := in[0], in[1], c.Scope()
	if c.Needs(0) || c.Needs(1) {
		c.Save(x, grid)
	}
	to := shape.Of(x.Dim(0), x.Dim(1), grid.Dim(1), grid.Dim(2))
	o := gridSampleOps.supported(s, x.st.dev, device.GridSample{Out: resultOf(x.dtype, to), X: resultOf(x.dtype, x.layout.Shape),
		Grid: resultOf(x.dtype, grid.layout.Shape), GridSampling: f.GridSampling})
	if o == nil {
		return f.composed(x, grid).reshape(to)
	}
	x, grid = x.Contiguous(), grid.Contiguous()
	y := alloc(f.Name(), s, x.st.dev, x.dtype, to)
	o.X, o.Grid = x.operand(), grid.operand()
	launch(f.Name(), s, o, y, x, grid)
	gridSampleOps.put(o)
	return y
}

func (f *gridFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, grid := c.Saved(0), c.Saved(1)
	d := make([]*Tensor, 2)
	for i, of := range []*Tensor{x, grid} {
		if !c.Wants(i) {
			continue
		}
		if d[i] = f.byKernel(c.Scope(), g, x, grid, of); d[i] != nil {
			continue
		}
		if flat := g.reshape(shape.Of(x.Dim(0), x.Dim(1), grid.Dim(1)*grid.Dim(2))); i == 0 {
			d[0] = f.inputGrad(x, grid, flat)
		} else {
			d[1] = f.pointsGrad(x, grid, flat)
		}
	}
	return d
}

// byKernel returns the gradient of operand, which is x or grid. byKernel returns nil if the device
// has no kernel for it, or if the gradient must be differentiable.
func (f *gridFunc) byKernel(s *Scope, g, x, grid, operand *Tensor) *Tensor {
	if !s.modes.noGrad {
		return nil
	}
	op := f.Name() + ".grad"
	view := func(t *Tensor) device.View { return resultOf(t.dtype, t.layout.Shape) }
	o := gridSampleGradOps.supported(s, x.st.dev, device.GridSampleGrad{D: view(operand), G: view(g), X: view(x), Grid: view(grid),
		Input: operand == x, GridSampling: f.GridSampling})
	if o == nil {
		return nil
	}
	g, x, grid = g.Contiguous(), x.Contiguous(), grid.Contiguous()
	d := alloc(op, s, x.st.dev, operand.dtype, operand.layout.Shape)
	o.G, o.X, o.Grid = g.operand(), x.operand(), grid.operand()
	launch(op, s, o, d, g, x, grid)
	gridSampleGradOps.put(o)
	return d
}

// A gridTap is one of the elements that are read along one dimension, for all points. Its tensors
// have the shape [n, 1, points].
type gridTap struct {
	index   *Tensor // index of the element
	outside *Tensor // whether the element lies outside of the image
	w       *Tensor // weight of the element, 0 outside of the image
	d       *Tensor // derivative of the weight with respect to the position
}

// taps returns the taps for coordinate k of the points. The taps lie along dimension 3-k of the
// images, which has size n. slope is the derivative of the position with respect to the coordinate.
func (f *gridFunc) taps(grid *Tensor, k, n int) (taps []gridTap, slope *Tensor) {
	x := grid.Select(-1, k).reshape(shape.Of(grid.Dim(0), 1, grid.Dim(1)*grid.Dim(2)))
	aligned := 0
	if f.AlignCorners {
		aligned = 1
	}
	ops := &gridOps[f.Padding][aligned]
	place := ops
	if f.Mode == GridBicubic { // padding maps the elements that are read, not the position
		place = &gridOps[GridZeros][aligned]
	}
	at := place.position.Apply([]*Tensor{x}, float64(n))
	slope = place.slope.Apply([]*Tensor{x}, float64(n))
	first := at.Floor()
	u := at.Sub(first)
	v := u.RSubScalar(1)
	switch f.Mode {
	case GridNearest:
		// The mode GridNearest uses no derivatives, so d may be anything.
		first, taps = at.Round(), []gridTap{{w: u.OnesLike(), d: u.OnesLike()}}
	case GridBilinear:
		taps = []gridTap{{w: v, d: u.OnesLike().Neg()}, {w: u, d: u.OnesLike()}}
	default:
		inner := func(u *Tensor) *Tensor { return u.MulScalar(3.75).SubScalar(4.5).Mul(u) }
		outer := func(u, v *Tensor) *Tensor { return v.MulScalar(sharpness).Mul(v.Sub(u.MulScalar(2))) }
		first = first.SubScalar(1)
		taps = []gridTap{{w: cubicOuter(u, v), d: outer(u, v)}, {w: cubicInner(u, v), d: inner(u)},
			{w: cubicInner(v, u), d: inner(v).Neg()}, {w: cubicOuter(v, u), d: outer(v, u).Neg()}}
	}
	for i := range taps {
		to := first.AddScalar(float64(i))
		if f.Mode == GridBicubic {
			to = ops.pad.Apply([]*Tensor{to}, float64(n))
		}
		t := &taps[i]
		// t.outside is true for NaN too.
		t.outside = to.GeScalar(0).LogicalAnd(to.LeScalar(float64(n - 1))).LogicalNot()
		t.index = to.MaskedFill(t.outside, 0).Long()
		t.w, t.d = t.w.MaskedFill(t.outside, 0), t.d.MaskedFill(t.outside, 0)
	}
	return taps, slope
}

// forEachTap calls h for each element that is read. h receives the element's index within the image
// of one channel, and whether the element lies outside of the image, both as [n, 1, points].
// forEachTap returns the derivatives of positions with respect to coordinates.
func (f *gridFunc) forEachTap(x, grid *Tensor, h func(index, outside *Tensor, across, down gridTap)) (slopeX, slopeY *Tensor) {
	across, slopeX := f.taps(grid, 0, x.Dim(3))
	down, slopeY := f.taps(grid, 1, x.Dim(2))
	for _, i := range down {
		for _, j := range across {
			h(i.index.MulScalar(float64(x.Dim(3))).Add(j.index), i.outside.LogicalOr(j.outside), j, i)
		}
	}
	return slopeX, slopeY
}

// planes joins height and width of the images: it returns x as [n, c, elements].
func (f *gridFunc) planes(x *Tensor) *Tensor {
	return x.reshape(shape.Of(x.Dim(0), x.Dim(1), x.Dim(2)*x.Dim(3)))
}

// read returns the elements at the given indices as [n, c, points]. It returns 0 for points outside
// of the image.
func (f *gridFunc) read(planes, index, outside *Tensor) *Tensor {
	to := planes.layout.Shape.With(2, index.Dim(2))
	return Apply(gatherFunc{2, f.Name()}, planes, index.expand(to)).MaskedFill(outside, 0)
}

// composed computes GridSample by other ops. It returns [n, c, points].
func (f *gridFunc) composed(x, grid *Tensor) (y *Tensor) {
	p := f.planes(x)
	f.forEachTap(x, grid, func(at, outside *Tensor, across, down gridTap) {
		y = sumWith(y, f.read(p, at, outside).Mul(down.w.Mul(across.w)))
	})
	return y
}

func (f *gridFunc) inputGrad(x, grid, g *Tensor) (d *Tensor) {
	to := f.planes(x).layout.Shape
	f.forEachTap(x, grid, func(at, outside *Tensor, across, down gridTap) {
		part := g.Mul(down.w.Mul(across.w)).MaskedFill(outside, 0)
		d = sumWith(d, Apply(scatterFunc{2, to, f.Name() + ".grad", false}, part, at.expand(g.layout.Shape)))
	})
	return d.reshape(x.layout.Shape)
}

func (f *gridFunc) pointsGrad(x, grid, g *Tensor) *Tensor {
	if f.Mode == GridNearest {
		return grid.ZerosLike()
	}
	var dx, dy *Tensor
	p := f.planes(x)
	slopeX, slopeY := f.forEachTap(x, grid, func(at, outside *Tensor, across, down gridTap) {
		sum := f.read(p, at, outside).Mul(g).Sum(1).Unsqueeze(1)
		dx, dy = sumWith(dx, sum.Mul(down.w.Mul(across.d))), sumWith(dy, sum.Mul(down.d.Mul(across.w)))
	})
	return Stack(-1, dx.Mul(slopeX), dy.Mul(slopeY)).reshape(grid.layout.Shape)
}

// sumWith returns sum + x, or x if sum is nil.
func sumWith(sum, x *Tensor) *Tensor {
	if sum == nil {
		return x
	}
	return sum.Add(x)
}

var (
	gridSampleOps     opPool[device.GridSample, *device.GridSample]
	gridSampleGradOps opPool[device.GridSampleGrad, *device.GridSampleGrad]
)

// gridOps[padding][0] has the functions without aligned corners, and gridOps[padding][1] those with
// aligned corners. p0 is the size of the dimension. The function position maps a coordinate to a
// position and applies the padding to it. slope is the derivative of position. pad only applies the
// padding.
var gridOps = func() (ops [3][2]struct{ position, slope, pad *Elementwise }) {
	for p := range ops {
		for i := range ops[p] {
			low, slope, span := expr.C(-0.5), p0.Mul(expr.C(0.5)), p0
			if i == 1 {
				low, slope, span = zeroC, p0.Sub(unit).Mul(expr.C(0.5)), p0.Sub(unit)
			}
			at, _ := gridPad(device.GridPadding(p), x0, low, span)
			to, sign := gridPad(device.GridPadding(p), x0.Add(unit).FMA(slope, low), low, span)
			op := func(e *expr.Expr, grad ...*expr.Expr) *Elementwise {
				return &Elementwise{Name: "grid_sample", Arity: 1, Params: []float64{4}, Expr: e, Grad: grad, NoGrad: grad == nil}
			}
			ops[p][i].position, ops[p][i].slope, ops[p][i].pad = op(to, x1.Mul(slope.Mul(sign))), op(slope.Mul(sign)), op(at)
		}
	}
	return ops
}()

// gridPad maps the position pos to a position inside a dimension of size p0. For reflection the
// image is mirrored at low and at low+span, again and again. sign is the derivative of the mapped
// position.
func gridPad(p device.GridPadding, pos, low, span *expr.Expr) (mapped, sign *expr.Expr) {
	sign = unit
	switch p {
	case GridZeros:
		return pos, sign
	case GridReflection:
		far, double := pos.Sub(low), span.Add(span)
		sign = far.Lt(zeroC).Select(expr.C(-1), unit)
		far = far.Abs()
		far = far.Sub(far.Div(double).Trunc().Mul(double))
		back := far.Gt(span)
		sign = back.Select(sign.Neg(), sign)
		pos = span.Eq(zeroC).Select(zeroC, back.Select(double.Sub(far), far).Add(low))
	}
	last := p0.Sub(unit)
	inside := pos.Gt(zeroC).And(pos.Lt(last))
	return inside.Select(pos, pos.Ge(last).And(pos.Gt(zeroC)).Select(last, zeroC)), inside.Select(sign, zeroC)
}
