package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// GridMode says which elements around a place are read, and with which weights.
type GridMode uint8

// The modes, with PyTorch's numbers.
const (
	GridBilinear GridMode = iota // the four around it
	GridNearest                  // the nearest, of two at a distance of ½ the even one
	GridBicubic                  // the sixteen around it, by Keys' kernel with a = -¾
)

// String returns PyTorch's name.
func (m GridMode) String() string { return nameOf(int(m), "bilinear", "nearest", "bicubic") }

// GridPadding says what lies outside of the image.
type GridPadding uint8

// The paddings, with PyTorch's numbers.
const (
	GridZeros      GridPadding = iota // zeros
	GridBorder                        // the nearest element of the border
	GridReflection                    // the image, mirrored as often as it takes
)

// String returns PyTorch's name.
func (p GridPadding) String() string { return nameOf(int(p), "zeros", "border", "reflection") }

func nameOf(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprint(i)
}

// GridSampling says how images are read at places between their elements. A coordinate of -1 is one
// border of an image and 1 the other: the middle of the first and of the last element with
// AlignCorners, without it their outer edges. In a dimension of size n a coordinate x is the place
//
//	(x+1)/2·(n-1)    with AlignCorners
//	(x+1)·n/2 - ½    without
//
// Outside of the image Padding is for places, in mode bicubic for the elements that are read. A
// coordinate that is not finite lies outside: with GridZeros it reads zeros. Else it reads an
// element of the border, the first one for NaN; in mode bicubic it has no weights then, and gives
// NaN.
type GridSampling struct {
	Mode         GridMode
	Padding      GridPadding
	AlignCorners bool
}

// A GridSample reads images X, [n, c, h, w], at the places of Grid, [n, oh, ow, 2], of which the
// last dimension is (x, y), into Out, [n, c, oh, ow]. All are contiguous and of one type, float32
// or float64. Where h or w is 0, so is the size of Out.
type GridSample struct {
	Out, X, Grid View
	GridSampling
}

// Name returns "grid sample".
func (*GridSample) Name() string { return "grid sample" }

// Operand returns the result, then the operands.
func (o *GridSample) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"x", &o.X, false}, Operand{"grid", &o.Grid, false})
}

// Check compares the shapes and types.
func (o *GridSample) Check() (arg, reason string) {
	return o.check("out", &o.Out, &o.X, &o.Grid)
}

func (s *GridSampling) check(name string, out, x, grid *View) (arg, reason string) {
	n, g := x.Shape, grid.Shape
	switch {
	case s.Mode > GridBicubic || s.Padding > GridReflection:
		return "mode", fmt.Sprintf("there is no mode %v with padding %v", s.Mode, s.Padding)
	case x.Type != dtype.F32 && x.Type != dtype.F64:
		return "x", fmt.Sprintf("of %v, want float32 or float64", x.Type)
	case n.Rank() != 4 || !x.Contiguous():
		return "x", fmt.Sprintf("%v with strides %v, want contiguous [n, c, h, w]", n, x.Strides)
	case g.Rank() != 4 || g.At(0) != n.At(0) || g.At(3) != 2 || grid.Type != x.Type || !grid.Contiguous():
		return "grid", fmt.Sprintf("%v of %v with strides %v, want contiguous [%d, oh, ow, 2] of %v", g, grid.Type, grid.Strides, n.At(0), x.Type)
	}
	if want := shape.Of(n.At(0), n.At(1), g.At(1), g.At(2)); out.Shape != want || out.Type != x.Type || !out.Contiguous() {
		return name, sparse(out, x.Type, want)
	}
	if out.Size() > 0 && n.At(2)*n.At(3) == 0 {
		return "x", fmt.Sprintf("%v: an image has no elements", n)
	}
	return "", ""
}

// taps is the number of elements that are read for a result.
func (s *GridSampling) taps() int { return [...]int{4, 1, 16}[s.Mode] }

// Work counts a product and a sum for each element that is read, and for each that once.
func (o *GridSample) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	return Work{2 * o.taps() * o.Out.Size(), bytesOf(o.Out, o.X, o.Grid)}
}

// Clone copies the op.
func (o *GridSample) Clone() Op { c := *o; return &c }

// A GridSampleGrad sets D to a gradient of [GridSample], given that of its result, G. It is the
// gradient of Grid, or if Input is set that of X, whose elements are not read then. D has the shape
// of what it is the gradient of. Each element of it is added up in an order that does not change.
type GridSampleGrad struct {
	D, G, X, Grid View
	Input         bool
	GridSampling
}

// Name returns "grid sample gradient", and of what.
func (o *GridSampleGrad) Name() string {
	if o.Input {
		return "grid sample input gradient"
	}
	return "grid sample gradient"
}

// Operand returns the result, then the operands.
func (o *GridSampleGrad) Operand(i int) Operand {
	return nth(i, Operand{"d", &o.D, true}, Operand{"g", &o.G, false}, Operand{"x", &o.X, false},
		Operand{"grid", &o.Grid, false})
}

// Check compares the shapes and types.
func (o *GridSampleGrad) Check() (arg, reason string) {
	if arg, reason := o.check("g", &o.G, &o.X, &o.Grid); reason != "" {
		return arg, reason
	}
	of := &o.Grid
	if o.Input {
		of = &o.X
	}
	if o.D.Shape != of.Shape || o.D.Type != of.Type || !o.D.Contiguous() {
		return "d", sparse(&o.D, of.Type, of.Shape)
	}
	return "", ""
}

// Work counts two products and sums for each element that is read, one for the input's gradient.
func (o *GridSampleGrad) Work() Work {
	if o.D.Size() == 0 {
		return Work{}
	}
	if o.Input {
		return Work{2 * o.taps() * o.G.Size(), bytesOf(o.D, o.G, o.Grid)}
	}
	return Work{4 * o.taps() * o.G.Size(), bytesOf(o.D, o.G, o.X, o.Grid)}
}

// Clone copies the op.
func (o *GridSampleGrad) Clone() Op { c := *o; return &c }
