package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// GridMode says which elements around a place are read, and their weights.
type GridMode uint8

// The modes, with PyTorch's numbers.
const (
	GridBilinear GridMode = iota // the four elements around the place
	GridNearest                  // the nearest element; of two at a distance of ½, the even one
	// the sixteen elements around the place, with Keys' kernel for a = -¾
	GridBicubic
)

// String returns PyTorch's name.
func (m GridMode) String() string { return nameOf(int(m), "bilinear", "nearest", "bicubic") }

// GridPadding says what lies outside the image.
type GridPadding uint8

// The paddings, with PyTorch's numbers.
const (
	GridZeros      GridPadding = iota // zeros lie outside
	GridBorder                        // the nearest element of the border lies outside
	GridReflection                    // the image lies outside, mirrored as often as needed
)

// String returns PyTorch's name.
func (p GridPadding) String() string { return nameOf(int(p), "zeros", "border", "reflection") }

func nameOf(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprint(i)
}

// GridSampling says how images are read at places between their elements. The coordinates -1 and 1
// are the borders of an image. With AlignCorners these are the middles of the first and the last
// element, otherwise their outer edges. In a dimension of size n a coordinate x is the place
//
//	(x+1)/2·(n-1)    with AlignCorners
//	(x+1)·n/2 - ½    without
//
// Padding is applied to places outside the image, but in mode bicubic to the elements that are
// read. A coordinate that is not finite lies outside: with GridZeros it reads zeros. With the other
// paddings it reads an element of the border, the first one for NaN. In mode bicubic its weights
// are undefined, so the result is NaN.
type GridSampling struct {
	Mode         GridMode
	Padding      GridPadding
	AlignCorners bool
}

// GridSample reads images X, [n, c, h, w], at the places of Grid, [n, oh, ow, 2], into Out, [n, c,
// oh, ow]. The last dimension of Grid is (x, y). All views are contiguous and of one type, float32
// or float64. If h or w is 0, Out has size 0 too.
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

// taps returns how many elements are read for a result.
func (s *GridSampling) taps() int { return [...]int{4, 1, 16}[s.Mode] }

// Work counts a product and a sum for each element that is read, and the bytes of each view once.
func (o *GridSample) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	return Work{2 * o.taps() * o.Out.Size(), bytesOf(o.Out, o.X, o.Grid)}
}

// Clone copies the op.
func (o *GridSample) Clone() Op { c := *o; return &c }

// GridSampleGrad sets D to a gradient of [GridSample]; G is the gradient of its result. D is the
// gradient of Grid or, if Input is set, of X, whose elements are not read then. D has the shape of
// Grid or X. Each element's terms are added in a fixed order.
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

// Work counts two products and two sums for each element that is read; for the input's gradient,
// one of each.
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
