package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Window says how the windows of a pool move over planes of one to three dimensions: element k of the window of place p lies at
// p·Stride + k·Dilation - Before; what lies outside of a plane is not there.
type Window struct {
	Rank                             int
	Kernel, Stride, Dilation, Before [3]int
}

// Pooler is satisfied by devices with kernels for pools. Views are contiguous float32: x and dx [planes, in…], y and g [planes, out…].
type Pooler interface {
	// MaxPoolGrad sets dx to the gradient of the greatest elements, g: of each window that reaches the element near behind where the window
	// begins, in the plane's elements. near has y's shape and is uint8, int16 or int32. What several windows add to an element is added in
	// their order.
	MaxPoolGrad(s Stream, dx, g, near View, w Window) error
	// SumWindows sets y to the sums of the windows of x.
	SumWindows(s Stream, y, x View, w Window) error
	// AddWindows sets dx to the sums of g over the windows that each element is in.
	AddWindows(s Stream, dx, g View, w Window) error
}

// Check says what is wrong with the views of a call beside their memory, "" for nothing. near may be without a buffer.
func (w Window) Check(x, y, near View) string {
	for _, v := range []View{x, y} {
		if v.Type != dtype.F32 || !v.Contiguous() {
			return fmt.Sprintf("%v of %v with strides %v, want contiguous float32", v.Shape, v.Type, v.Strides)
		}
	}
	if w.Rank < 1 || w.Rank > 3 || x.Shape.Rank() != w.Rank+1 || y.Shape.Rank() != w.Rank+1 || x.Shape.At(0) != y.Shape.At(0) {
		return fmt.Sprintf("shapes %v and %v for planes of %d dimensions", x.Shape, y.Shape, w.Rank)
	}
	for i := range w.Rank {
		if w.Kernel[i] < 1 || w.Stride[i] < 1 || w.Dilation[i] < 1 || w.Before[i] < 0 {
			return fmt.Sprintf("kernel %v, stride %v, dilation %v, padding %v", w.Kernel, w.Stride, w.Dilation, w.Before)
		}
	}
	if near.Buf != nil {
		if t := near.Type; near.Shape != y.Shape || !near.Contiguous() || t != dtype.U8 && t != dtype.I16 && t != dtype.I32 {
			return fmt.Sprintf("distances %v of %v for windows %v", near.Shape, near.Type, y.Shape)
		}
	}
	return ""
}

// Planes returns the sizes of a view's planes as three, the first ones 1 where there are fewer.
func (w Window) Planes(s shape.Dims) (v [3]int) {
	v = [3]int{1, 1, 1}
	for i := range w.Rank {
		v[3-w.Rank+i] = s.At(1 + i)
	}
	return v
}

// MaxPoolGradWork is the work of [Pooler].MaxPoolGrad: an addition for each window.
func MaxPoolGradWork(dx, g, near View) Work { return Work{g.Size(), bytesOf(dx, g, near)} }

// WindowsWork is the work of [Pooler].SumWindows and AddWindows: an addition for each element of each window.
func (w Window) WindowsWork(x, y View) Work {
	n := y.Size()
	for i := range w.Rank {
		n *= w.Kernel[i]
	}
	return Work{n, bytesOf(x, y)}
}
