package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// GridMode says which elements near a sampling point are read, and how they are weighted.
type GridMode uint8

// These are the modes, with PyTorch's numbers.
const (
	GridBilinear GridMode = iota // the four elements around the point
	// the nearest element; if two are equally near, the element with the even index
	GridNearest
	// the sixteen elements around the point, weighted by R. Keys' cubic kernel with a = -¾
	GridBicubic
)

// String returns PyTorch's name of the mode.
func (m GridMode) String() string { return nameOf(int(m), "bilinear", "nearest", "bicubic") }

// GridPadding says what lies outside the image.
type GridPadding uint8

// These are the paddings, with PyTorch's numbers.
const (
	GridZeros      GridPadding = iota // the image continues with zeros
	GridBorder                        // the image continues with its border elements
	GridReflection                    // the image continues with its mirror images
)

// String returns PyTorch's name of the padding.
func (p GridPadding) String() string { return nameOf(int(p), "zeros", "border", "reflection") }

func nameOf(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprint(i)
}

// GridSampling says how images are read at points between their elements. The coordinates -1 and 1
// are the borders of an image. With AlignCorners, the borders are the centers of the first and the
// last element. Without it, they are the outer edges of these elements. In a dimension of size n,
// the coordinate x is the position
//
//	(x+1)/2·(n-1)    with AlignCorners
//	(x+1)·n/2 - ½    without
//
// Padding says what is read outside the image. In mode bicubic it applies separately to each of the
// sixteen elements; in the other modes it applies to the point. A coordinate that is infinite or
// NaN lies outside: with GridZeros it reads zeros. With the other paddings it reads an element at
// the border, and NaN reads the first element. In mode bicubic the weights for such a coordinate
// are NaN, so the result is NaN.
type GridSampling struct {
	Mode         GridMode
	Padding      GridPadding
	AlignCorners bool
}

// GridSample interpolates images, as torch's grid_sample does. X holds the images, [n, c, h, w],
// and Grid holds the sampling points, [n, oh, ow, 2]. The last dimension of Grid is (x, y). Out is
// [n, c, oh, ow]. All views are contiguous, and either all are float32 or all are float64. If h or
// w is 0, Out must have size 0 too.
type GridSample struct {
	Out, X, Grid View
	GridSampling
}

// Name returns "grid sample".
func (*GridSample) Name() string { return "grid sample" }

// Operand returns operand i: the result comes first, then the inputs.
func (o *GridSample) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"x", &o.X, false}, Operand{"grid", &o.Grid, false})
}

// Check checks the shapes and types of the operands.
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

// taps returns how many elements of each channel of X are read for an element of Out.
func (s *GridSampling) taps() int { return [...]int{4, 1, 16}[s.Mode] }

// Work counts a product and a sum for each element of X that is read. It counts the bytes of each
// operand once.
func (o *GridSample) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	return Work{2 * o.taps() * o.Out.Size(), bytesOf(o.Out, o.X, o.Grid)}
}

// Clone copies the op.
func (o *GridSample) Clone() Op { c := *o; return &c }

// GridSampleGrad computes a gradient of [GridSample]. G is the gradient of GridSample's result. If
// Input is set, D becomes the gradient of X, and the elements of X are not read. Otherwise D
// becomes the gradient of Grid. D has the shape of X or of Grid. The numbers that make up an
// element of D are added in a fixed order.
type GridSampleGrad struct {
	D, G, X, Grid View
	Input         bool
	GridSampling
}

// Name returns "grid sample gradient", or "grid sample input gradient" if Input is set.
func (o *GridSampleGrad) Name() string {
	if o.Input {
		return "grid sample input gradient"
	}
	return "grid sample gradient"
}

// Operand returns operand i: the result comes first, then the inputs.
func (o *GridSampleGrad) Operand(i int) Operand {
	return nth(i, Operand{"d", &o.D, true}, Operand{"g", &o.G, false}, Operand{"x", &o.X, false},
		Operand{"grid", &o.Grid, false})
}

// Check checks the shapes and types of the operands.
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

// Work counts two products and two sums for each element of X that is read, if D is the gradient of
// Grid. For the gradient of X it counts one product and one sum.
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
