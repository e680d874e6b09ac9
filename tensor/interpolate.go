package tensor

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// An InterpolateMode says how [Tensor.Interpolate] computes values between elements.
type InterpolateMode uint8

// The modes of interpolation.
const (
	// InterpolateNearest takes the element whose index is the position rounded down: torch's
	// "nearest".
	InterpolateNearest InterpolateMode = iota
	// InterpolateNearestExact takes the element whose centre is nearest: torch's "nearest-exact".
	InterpolateNearestExact
	// InterpolateLinear interpolates between two elements in each dimension: torch's "linear",
	// "bilinear" and "trilinear".
	InterpolateLinear
	// InterpolateCubic interpolates between four elements in each of two dimensions: torch's
	// "bicubic".
	InterpolateCubic
	// InterpolateArea takes the mean of all elements that an element of the result covers, by
	// adaptive average pooling: torch's "area".
	InterpolateArea
)

// String returns torch's name of the mode.
func (m InterpolateMode) String() string {
	if m > InterpolateArea {
		return fmt.Sprintf("InterpolateMode(%d)", uint8(m))
	}
	return [...]string{"nearest", "nearest-exact", "linear", "bicubic", "area"}[m]
}

// InterpolateOptions select the size of the result and the method. Set either Size or Scale, with
// one number for all spatial dimensions, or one number for each.
type InterpolateOptions struct {
	Size []int // size of the result
	// Scale holds factors. The size of the result is the product of the input's size and the
	// factor, rounded down. Coordinates are computed with the factor as given.
	Scale []float64
	Mode  InterpolateMode
	// AlignCorners aligns the centres of the first and last elements of input and result, instead
	// of their outer borders. It is for Linear and Cubic.
	AlignCorners bool
	// Antialias widens the filter if the result is smaller than the input, so that every element
	// counts. It is for Linear and Cubic in two dimensions.
	Antialias bool
}

// Interpolate resizes the spatial dimensions of x, as torch's F.interpolate does. x is [batch,
// channels, …] with one to three spatial dimensions. Let a spatial dimension have size n in the
// input and size m in the result. Element i of the result has a position in the input. Let s be
// n/m, or 1/Scale if Scale is set. The position is s·i for Nearest. It is s·(i + ½) - ½ for Linear
// and Cubic, but at least 0 for Linear. With AlignCorners it is i·(n-1)/(m-1). Cubic uses Keys'
// kernel with a = -¾ (Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981),
// in two dimensions only.
//
// Coordinates and weights are computed in x's own type. For 16-bit floats they are computed in
// float32, and for Cubic in float64. Elements with a weight of 0 are multiplied too, so an infinite
// element makes the result NaN. The gradient is the exact derivative. torch's gradient differs for
// Nearest with a Scale that does not change the size: torch sends each gradient to the element with
// the same index.
//
// With Antialias, element i is computed with the weights of a filter around s·(i + ½), divided by
// their sum. If s is more than 1 the filter is stretched by s. For Linear it is a triangle. For
// Cubic it is Keys' kernel with a = -½, not -¾, as in Pillow and torch.
//
// x must be floating point, except for Nearest and NearestExact, which accept any type. torch's
// Linear and Cubic for uint8 images are not supported. There is no recompute_scale_factor: use Size
// instead.
func (x *Tensor) Interpolate(o InterpolateOptions) *Tensor {
	const op = "interpolate"
	x.use(op)
	if o.Mode != InterpolateArea {
		if y := underAutocast(op, AutocastHigh, func(in []*Tensor) *Tensor { return in[0].Interpolate(o) }, x); y != nil {
			return y
		}
	}
	in := []*Tensor{x}
	rank := x.Rank() - 2
	if rank < 1 || rank > 3 {
		fail(op, ErrShape, in, "needs an input [n, channels, …] of one to three spatial dimensions, it has shape %v", x.Shape())
	}
	switch {
	case o.Mode > InterpolateArea:
		fail(op, ErrValue, in, "there is no mode %v", o.Mode)
	case o.Mode == InterpolateCubic && rank != 2:
		fail(op, ErrShape, in, "bicubic interpolation is for two spatial dimensions, there are %d", rank)
	case o.AlignCorners && o.Mode != InterpolateLinear && o.Mode != InterpolateCubic:
		fail(op, ErrValue, in, "corners are aligned in linear and bicubic interpolation, not in mode %v", o.Mode)
	case o.Antialias && (rank != 2 || o.Mode != InterpolateLinear && o.Mode != InterpolateCubic):
		fail(op, ErrValue, in, "antialiasing is for linear and bicubic interpolation in two dimensions, not for mode %v in %d", o.Mode, rank)
	case o.Antialias && x.Dim(1) == 0:
		x.hasChannels(op, rank)
	case (len(o.Size) == 0) == (len(o.Scale) == 0):
		fail(op, ErrValue, in, "either a size or a scale is to be given")
	}
	if o.Mode != InterpolateNearest && o.Mode != InterpolateNearestExact {
		x.needsFloat(op)
	}
	for i := range rank {
		if x.Dim(2+i) == 0 {
			fail(op, ErrShape, in, "dimension %d has no elements", 2+i)
		}
	}
	to, scale := x.interpolatedSize(op, rank, o)
	if o.Mode == InterpolateArea {
		return x.adaptiveAvg(op, rank, to[:rank])
	}
	return within(x.scope, func(c *Scope) *Tensor {
		y := x.In(c)
		if o.Mode == InterpolateLinear || o.Mode == InterpolateCubic {
			y = y.Cast(x.dtype.Compute())
		}
		for i := rank - 1; i >= 0; i-- {
			a := axisSampler{op: op, c: c, axis: 2 + i, n: x.Dim(2 + i), m: to[i], scale: scale[i], align: o.AlignCorners, t: dtype.F32}
			if y.dtype == dtype.F64 || o.Mode == InterpolateCubic {
				a.t = dtype.F64
			}
			sample := a.sample
			if o.Antialias {
				sample = a.smooth
			}
			wide := sample(y, o.Mode)
			y.Free() // free y now, so that the next axis can reuse its memory
			y = wide
		}
		return y.Cast(x.dtype)
	})
}

// interpolatedSize returns the size of the result, and the given scales, or 0 if there are none.
func (x *Tensor) interpolatedSize(op string, rank int, o InterpolateOptions) (to [3]int, scale [3]float64) {
	in := []*Tensor{x}
	if len(o.Size) > 0 {
		return sizesFor(op, in, "the result", rank, o.Size, 1, 1), scale
	}
	if len(o.Scale) != 1 && len(o.Scale) != rank {
		fail(op, ErrValue, in, "%d scales for %d dimensions; give one for all, or one for each", len(o.Scale), rank)
	}
	for i := range rank {
		scale[i] = o.Scale[min(i, len(o.Scale)-1)]
		n := math.Floor(float64(x.Dim(2+i)) * scale[i])
		if !(scale[i] > 0) || n < 1 || n > math.MaxInt32 {
			fail(op, ErrValue, in, "a scale of %v makes dimension %d, of size %d, have the size %v", scale[i], 2+i, x.Dim(2+i), n)
		}
		to[i] = int(n)
	}
	return to, scale
}

// axisSampler resizes one axis from n to m elements.
type axisSampler struct {
	op    string
	c     *Scope
	axis  int
	n, m  int
	scale float64 // scale that the caller gave, or 0 if there is none
	align bool
	t     dtype.Type // type of coordinates and weights
}

// A coordinateKey identifies a program. From the coordinate of each element of the result, the
// program computes the values that the field kind names.
type coordinateKey struct {
	t      dtype.Type
	offset bool
	kind   coordinateKind
}

type coordinateKind uint8

const (
	coordinateItself  coordinateKind = iota
	coordinateNearest                // a program for the index of the nearest element
	coordinateLinear                 // a program for two indices, and the weights of their elements
)

var coordinatePrograms cache[coordinateKey, *expr.Program]

// program returns a program over Param(0), the step, and Param(1), the last index. The coordinate
// of element i is step·i, or step·(i + ½) - ½ if offset is true. The coordinate is rounded once,
// because torch's image kernels fuse the operations too.
func (a *axisSampler) program(kind coordinateKind, offset bool) *expr.Program {
	return coordinatePrograms.get(coordinateKey{a.t, offset, kind}, func() *expr.Program {
		at := expr.Index(dtype.I64).Cvt(a.t)
		if offset {
			at = expr.Param(0, a.t).FMA(at.Add(expr.C(0.5)), expr.C(-0.5))
		} else {
			at = expr.Param(0, a.t).Mul(at)
		}
		out, types := []*expr.Expr{at}, []dtype.Type{a.t}
		switch kind {
		case coordinateNearest:
			if offset {
				at = at.Add(expr.C(0.5))
			}
			// For float64 tensors too, torch rounds a coordinate to float32 before it rounds down.
			out = []*expr.Expr{atMost(at.Cvt(dtype.F32).Floor(), expr.Param(1, dtype.F32)).Cvt(dtype.I64)}
			types = []dtype.Type{dtype.I64}
		case coordinateLinear:
			last, step, end := expr.Param(1, a.t), expr.Param(2, dtype.I64), expr.Param(3, dtype.I64)
			at = atLeast(at, expr.C(0))
			whole := atMost(at.Floor(), last)
			t, i := limit(at.Sub(whole), expr.C(0), expr.C(1)), whole.Cvt(dtype.I64)
			out = []*expr.Expr{i, i.Add(step).Min(end), expr.C(1).Sub(t), t}
			types = []dtype.Type{dtype.I64, dtype.I64, a.t, a.t}
		}
		return expr.MustLower(out, types, nil, -1)
	})
}

// coordinates returns the positions in the input of the result's elements 0 … m-1.
func (a *axisSampler) coordinates(like *Tensor, step float64, offset bool) *Tensor {
	y := alloc(a.op, a.c, like.st.dev, a.t, shape.Of(a.m))
	run(a.op, a.c, a.program(coordinateItself, offset), y, nil, []float64{step})
	return y
}

// step returns how far apart in the input two neighbouring elements of the result lie.
func (a *axisSampler) step() float64 {
	switch {
	case a.align && a.m > 1:
		return float64(a.n-1) / float64(a.m-1)
	case a.align:
		return 0
	case a.scale > 0:
		return 1 / a.scale
	}
	return float64(a.n) / float64(a.m)
}

func (a *axisSampler) sample(x *Tensor, mode InterpolateMode) *Tensor {
	switch mode {
	case InterpolateNearest, InterpolateNearestExact:
		step := a.step()
		if even := a.m / a.n; mode == InterpolateNearest && x.Rank() == 4 && a.m%a.n == 0 && even <= 2 {
			// if the size stays equal or doubles, torch uses this step, whatever scale is given
			step = 1 / float64(even)
		}
		return Apply(a.nearest(step, mode == InterpolateNearestExact), x)
	case InterpolateLinear:
		return Apply(a.linear(), x)
	}
	first, t := a.split(a.coordinates(x, a.step(), !a.align))
	u := t.RSubScalar(1)
	var y *Tensor
	for k, w := range []*Tensor{cubicOuter(t, u), cubicInner(t, u), cubicInner(u, t), cubicOuter(u, t)} {
		part := a.weighted(x, first.AddScalar(float64(k-1)).Clamp(0, float64(a.n-1)), w)
		if y == nil {
			y = part
		} else {
			y = sumAndFree(y, part)
		}
	}
	return y
}

// split returns the index of the element at or before each coordinate, and the distance of the
// coordinate from it.
func (a *axisSampler) split(coords *Tensor) (first, t *Tensor) {
	whole := coords.Floor().ClampMax(float64(a.n - 1))
	return whole.Long(), coords.Sub(whole).Clamp(0, 1)
}

// weighted returns the elements of the axis that index selects, times w.
func (a *axisSampler) weighted(x, index, w *Tensor) *Tensor {
	part := x.indexSelect(a.op, a.axis, index)
	y := part.Mul(w.Cast(x.dtype).reshape(onesOf(x.Rank()).With(a.axis, a.m)))
	part.Free()
	return y
}

func sumAndFree(x, y *Tensor) *Tensor {
	sum := x.Add(y)
	x.Free()
	y.Free()
	return sum
}

// sharpness is the parameter a of Keys' kernel in torch.
const sharpness = -0.75

// cubicInner returns Keys' kernel for a distance t of at most 1, (a+2)·t³ - (a+3)·t² + 1, in a form
// without cancellation. u is 1-t.
func cubicInner(t, u *Tensor) *Tensor {
	return t.Square().MulScalar(-(sharpness + 2)).Add(t).AddScalar(1).Mul(u)
}

// cubicOuter returns Keys' kernel for a distance d = 1+t between 1 and 2, a·d³ - 5a·d² + 8a·d - 4a
// = a·t·(1-t)². u is 1-t.
func cubicOuter(t, u *Tensor) *Tensor { return t.Mul(u).Mul(u).MulScalar(sharpness) }
