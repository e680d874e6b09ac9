package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/shape"
)

// Unfold copies the windows of images to columns, like torch's F.unfold (im2col). X has the shape
// [n, channels, in…], and Y has the shape [n, channels, kernel…, out…]. Y[n, c, k…, p…] is element
// k of the window at position p. It is 0 if that element is outside the image.
//
// X and Y may have any layout and any type, but both have the same type. Elements are copied bit
// for bit. The gradient of an Unfold is a [Fold].
type Unfold struct {
	Y, X View
	Window
}

// Name returns "unfold".
func (*Unfold) Name() string { return "unfold" }

// Operand returns operand i: the result comes first, then the input.
func (o *Unfold) Operand(i int) Operand {
	return nth(i, Operand{"y", &o.Y, true}, Operand{"x", &o.X, false})
}

// Check checks the shapes and types of the operands.
func (o *Unfold) Check() (arg, reason string) {
	if o.X.Type != o.Y.Type {
		return "x", fmt.Sprintf("of %v, its columns are of %v", o.X.Type, o.Y.Type)
	}
	return o.checkColumns(Operand{"x", &o.X, false}, Operand{"y", &o.Y, true})
}

// Work counts only the bytes, because an Unfold does no arithmetic.
func (o *Unfold) Work() Work {
	if o.Y.Size() == 0 {
		return Work{}
	}
	return Work{0, bytesOf(o.Y, o.X)}
}

// Clone copies the op.
func (o *Unfold) Clone() Op { c := *o; return &c }

// checkColumns checks that the images, [n, channels, in…], and their columns, [n, channels,
// kernel…, out…], have shapes that fit together.
func (w *Window) checkColumns(planes, columns Operand) (arg, reason string) {
	in, s := &planes.View.Shape, &columns.View.Shape
	if w.Rank < 1 || w.Rank > 3 || in.Rank() != w.Rank+2 || s.Rank() != 2*w.Rank+2 || s.Head(2) != in.Head(2) {
		return "x", fmt.Sprintf("columns of shape %v for planes of %d dimensions, %v", *s, w.Rank, *in)
	}
	if arg, reason := w.checkSizes(); reason != "" {
		return arg, reason
	}
	if kernel := shape.Of(w.Kernel[:w.Rank]...); s.Tail(2).Head(w.Rank) != kernel {
		return columns.Name, fmt.Sprintf("shape %v for windows of %v", *s, kernel)
	}
	return "", ""
}
