package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Window says how the windows of a [Fold], an [Unfold] or a pooling op move over a plane. A plane
// is an image of one to three dimensions. The window at position p contains the plane's elements
// at p·Stride + k·Dilation - Before, for each k below Kernel. A window may extend beyond the
// plane. Elements beyond it are left out, or count as 0 in an Unfold.
type Window struct {
	Rank                             int
	Kernel, Stride, Dilation, Before [3]int
}

// SumWindows sets Y, [planes, out…], to the sums over the windows of X, [planes, in…]. X and Y are
// contiguous float32.
type SumWindows struct {
	Y, X View
	Window
}

// Name returns "window sums".
func (*SumWindows) Name() string { return "window sums" }

// Operand returns operand i: the result comes first, then the input.
func (o *SumWindows) Operand(i int) Operand {
	return nth(i, Operand{"y", &o.Y, true}, Operand{"x", &o.X, false})
}

// Check checks the shapes and types of the operands.
func (o *SumWindows) Check() (arg, reason string) {
	return o.check(o.Operand(1), o.Operand(0), dtype.F32)
}

// Work counts an addition for each element of each window.
func (o *SumWindows) Work() Work { return o.work(&o.X, &o.Y) }

// Clone copies the op.
func (o *SumWindows) Clone() Op { c := *o; return &c }

// MaxPoolGrad sets DX, [planes, in…], to the gradient of the maximum of each window. G, [planes,
// out…], is the gradient of these maxima. Near has the shape of G and says where each maximum lies:
// the distance from the beginning of the window, in elements of the plane. Near is uint8, int16 or
// int32. If several windows have their maximum in the same element, their gradients are added in
// the order of the windows, in float32 if G is a 16-bit float. DX and G are contiguous and have the
// same floating-point type. Each element of DX is rounded once.
type MaxPoolGrad struct {
	DX, G, Near View
	Window
}

// Name returns "max pool gradient".
func (*MaxPoolGrad) Name() string { return "max pool gradient" }

// Operand returns operand i: the result comes first, then the inputs.
func (o *MaxPoolGrad) Operand(i int) Operand {
	return nth(i, Operand{"dx", &o.DX, true}, Operand{"g", &o.G, false}, Operand{"near", &o.Near, false})
}

// Check checks the shapes and types of the operands.
func (o *MaxPoolGrad) Check() (arg, reason string) {
	n := &o.Near
	if t := n.Type; n.Shape != o.G.Shape || !n.Contiguous() || t != dtype.U8 && t != dtype.I16 && t != dtype.I32 {
		return "near", fmt.Sprintf("distances %v of %v for windows %v", n.Shape, t, o.G.Shape)
	}
	t := o.DX.Type
	if !t.IsFloat() {
		return "dx", fmt.Sprintf("of %v, which has no gradients", t)
	}
	return o.check(o.Operand(0), o.Operand(1), t)
}

// Work counts an addition for each window.
func (o *MaxPoolGrad) Work() Work {
	if o.DX.Size() == 0 {
		return Work{}
	}
	return Work{o.G.Size(), bytesOf(o.DX, o.G, o.Near)}
}

// Clone copies the op.
func (o *MaxPoolGrad) Clone() Op { c := *o; return &c }

// check checks that x and y have type t, and that y has one element for each window of x.
func (w *Window) check(x, y Operand, t dtype.Type) (arg, reason string) {
	s, to := &x.View.Shape, &y.View.Shape
	for _, o := range [...]Operand{x, y} {
		if o.View.Type != t || !o.View.Contiguous() {
			return o.Name, sparse(o.View, t, o.View.Shape)
		}
	}
	if w.Rank < 1 || w.Rank > 3 || s.Rank() != w.Rank+1 || to.Rank() != w.Rank+1 || s.At(0) != to.At(0) {
		return y.Name, fmt.Sprintf("shapes %v and %v for planes of %d dimensions", *s, *to, w.Rank)
	}
	return w.checkSizes()
}

// checkSizes checks the kernel, stride, dilation and padding of the window.
func (w *Window) checkSizes() (arg, reason string) {
	for i := range w.Rank {
		if w.Kernel[i] < 1 || w.Stride[i] < 1 || w.Dilation[i] < 1 || w.Before[i] < 0 {
			return "window", fmt.Sprintf("kernel %v, stride %v, dilation %v, padding %v",
				w.Kernel, w.Stride, w.Dilation, w.Before)
		}
	}
	return "", ""
}

// Planes returns the sizes of the last Rank dimensions of shape s. The result always has three
// numbers: if Rank is less than three, the leading numbers are 1.
func (w *Window) Planes(s shape.Dims) (v [3]int) {
	v = [3]int{1, 1, 1}
	for i := range w.Rank {
		v[3-w.Rank+i] = s.At(1 + i)
	}
	return v
}

func (w *Window) work(x, y *View) Work {
	n := y.Size()
	for i := range w.Rank {
		n *= w.Kernel[i]
	}
	return Work{n, bytesOf(*x, *y)}
}
