package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Fold adds overlapping windows into images, like torch's F.fold (col2im). Y has the shape [n,
// channels, in…], and X has the shape [n, channels, kernel…, out…]. The window at position p has
// the elements X[n, c, k…, p…]. Fold sets each element of Y to the sum of the window elements at
// its position, at most one for each k. The sum begins with 0, and the elements are added in the
// order of k.
//
// W may be absent. Otherwise it has the shape [channels, kernel…], and element k of a window is
// multiplied by W[c, k…]. For floats this is a fused multiply-add, with one rounding.
//
// X and Y have any layout. W and X have the same type. X and Y have the same computing type, in
// which sums are computed. Each element of Y is rounded once, at the end. Bool is refused.
//
// If X has stride 0 in all dimensions of the kernel, all elements of a window are the same number.
// For such float32 operands, without W and Add, a device may add in another order, which is the
// same in each run.
type Fold struct {
	Y, X, W View
	Window
	Add bool // each sum begins with the old element of Y and not with 0
}

// Name returns "fold".
func (*Fold) Name() string { return "fold" }

// Operand returns operand i: the result comes first, then the inputs.
func (o *Fold) Operand(i int) Operand {
	return nth(i, Operand{"y", &o.Y, true}, Operand{"x", &o.X, false}, Operand{"w", &o.W, false})
}

// Check checks the shapes and types of the operands.
func (o *Fold) Check() (arg, reason string) {
	if arg, reason := o.checkColumns(Operand{"y", &o.Y, true}, Operand{"x", &o.X, false}); reason != "" {
		return arg, reason
	}
	want := shape.Of(o.Y.Shape.At(1)).Append(o.Kernel[:o.Rank]...) // the shape of W
	to, from := o.Y.Type, o.X.Type
	if to == dtype.Bool || from == dtype.Bool || to.Compute() != from.Compute() {
		return "x", fmt.Sprintf("of %v, with sums of %v", from, to)
	}
	if !o.W.Absent() && (o.W.Shape != want || o.W.Type != from) {
		return "w", wrong(&o.W, from, want)
	}
	return "", ""
}

// Work counts an addition for each element of X. Without Add, the first element of each sum needs
// no addition. With W it also counts a multiplication for each element of X.
func (o *Fold) Work() Work {
	if o.Y.Size() == 0 {
		return Work{}
	}
	n := o.X.Size()
	if !o.Add {
		n = max(0, n-o.Y.Size())
	}
	if !o.W.Absent() {
		n += o.X.Size()
	}
	return Work{n, bytesOf(o.Y, o.X, o.W)}
}

// Clone copies the op.
func (o *Fold) Clone() Op { c := *o; return &c }

// One reports whether all elements of a window are the same number. This holds if X has stride 0 in
// all dimensions of the kernel.
func (o *Fold) One() bool {
	for i := range o.Rank {
		if o.Kernel[i] > 1 && o.X.Strides.At(2+i) != 0 {
			return false
		}
	}
	return true
}
