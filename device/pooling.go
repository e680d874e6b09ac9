package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Window says how the windows of a pool move over planes of one to three dimensions. Element k of
// the window of place p lies at p·Stride + k·Dilation - Before. What lies outside of a plane is
// left out.
type Window struct {
	Rank                             int
	Kernel, Stride, Dilation, Before [3]int
}

// A SumWindows sets Y, [planes, out…], to the sums of the windows of X, [planes, in…]; both are
// contiguous float32.
type SumWindows struct {
	Y, X View
	Window
}

// Name returns "window sums".
func (*SumWindows) Name() string { return "window sums" }

// Operand returns the result, then the operand.
func (o *SumWindows) Operand(i int) Operand {
	return nth(i, Operand{"y", &o.Y, true}, Operand{"x", &o.X, false})
}

// Check compares the shapes and types.
func (o *SumWindows) Check() (arg, reason string) { return o.check(o.Operand(1), o.Operand(0)) }

// Work counts an addition for each element of each window.
func (o *SumWindows) Work() Work { return o.work(&o.X, &o.Y) }

// Clone copies the op.
func (o *SumWindows) Clone() Op { c := *o; return &c }

// An AddWindows sets DX, [planes, in…], to the sums of G, [planes, out…], over the windows that
// each element is in: the gradient of [SumWindows].
type AddWindows struct {
	DX, G View
	Window
}

// Name returns "window sums gradient".
func (*AddWindows) Name() string { return "window sums gradient" }

// Operand returns the result, then the operand.
func (o *AddWindows) Operand(i int) Operand {
	return nth(i, Operand{"dx", &o.DX, true}, Operand{"g", &o.G, false})
}

// Check compares the shapes and types.
func (o *AddWindows) Check() (arg, reason string) { return o.check(o.Operand(0), o.Operand(1)) }

// Work counts an addition for each element of each window.
func (o *AddWindows) Work() Work { return o.work(&o.DX, &o.G) }

// Clone copies the op.
func (o *AddWindows) Clone() Op { c := *o; return &c }

// A MaxPoolGrad sets DX, [planes, in…], to the gradient of the greatest elements, G, [planes,
// out…]: of each window that reaches the element Near behind where the window begins, in the
// plane's elements. Near has G's shape and is uint8, int16 or int32. What several windows add to an
// element is added in their order. DX and G are contiguous float32.
type MaxPoolGrad struct {
	DX, G, Near View
	Window
}

// Name returns "max pool gradient".
func (*MaxPoolGrad) Name() string { return "max pool gradient" }

// Operand returns the result, then the operands.
func (o *MaxPoolGrad) Operand(i int) Operand {
	return nth(i, Operand{"dx", &o.DX, true}, Operand{"g", &o.G, false}, Operand{"near", &o.Near, false})
}

// Check compares the shapes and types.
func (o *MaxPoolGrad) Check() (arg, reason string) {
	n := &o.Near
	if t := n.Type; n.Shape != o.G.Shape || !n.Contiguous() || t != dtype.U8 && t != dtype.I16 && t != dtype.I32 {
		return "near", fmt.Sprintf("distances %v of %v for windows %v", n.Shape, t, o.G.Shape)
	}
	return o.check(o.Operand(0), o.Operand(1))
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

// check checks planes x and their windows y.
func (w *Window) check(x, y Operand) (arg, reason string) {
	s, to := &x.View.Shape, &y.View.Shape
	for _, o := range [...]Operand{x, y} {
		if o.View.Type != dtype.F32 || !o.View.Contiguous() {
			return o.Name, sparse(o.View, dtype.F32, o.View.Shape)
		}
	}
	if w.Rank < 1 || w.Rank > 3 || s.Rank() != w.Rank+1 || to.Rank() != w.Rank+1 || s.At(0) != to.At(0) {
		return y.Name, fmt.Sprintf("shapes %v and %v for planes of %d dimensions", *s, *to, w.Rank)
	}
	for i := range w.Rank {
		if w.Kernel[i] < 1 || w.Stride[i] < 1 || w.Dilation[i] < 1 || w.Before[i] < 0 {
			return "window", fmt.Sprintf("kernel %v, stride %v, dilation %v, padding %v",
				w.Kernel, w.Stride, w.Dilation, w.Before)
		}
	}
	return "", ""
}

// Planes returns the sizes of a view's planes as three, the first ones 1 where there are fewer.
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
