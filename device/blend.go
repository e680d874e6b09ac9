package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Blend resizes the middle axis of X, [outer, n, inner], to that of Out, [outer, m, inner]. Index
// and Weight have the shape [taps, m]. Element j of the result is a sum in the order of k:
//
//	Out[o, j, i] = Σₖ X[o, Index[k, j], i] · Weight[k, j]
//
// If Back is set, Blend computes the gradient of this resizing: X is [outer, m, inner], and Out is
// [outer, n, inner]. For each k, Blend adds the terms below in the order of j, starting from 0. It
// then adds the sums for all k:
//
//	Out[o, p, i] = Σₖ Σⱼ X[o, j, i] · Weight[k, j], where Index[k, j] = p
//
// There are one or two taps. With one tap, Weight may be absent: then nothing is multiplied. All
// products and sums are rounded. For each k, Index must not decrease along j. X, Out and Weight are
// all float32 or all float64, Index is int64, and all views are contiguous.
type Blend struct {
	Out, X, Index, Weight View
	Back                  bool
}

// Name returns "blend", or "blend gradient" if Back is set.
func (o *Blend) Name() string {
	if o.Back {
		return "blend gradient"
	}
	return "blend"
}

// Operand returns operand i: the result comes first, then the inputs.
func (o *Blend) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"x", &o.X, false}, Operand{"index", &o.Index, false}, Operand{"weight", &o.Weight, false})
}

// Axes returns n, the number of positions that Index can select, and m, the number of columns of
// Index.
func (o *Blend) Axes() (n, m int) {
	if o.Back {
		return o.Out.Shape.At(1), o.X.Shape.At(1)
	}
	return o.X.Shape.At(1), o.Out.Shape.At(1)
}

// Check checks the shapes and types of the operands.
func (o *Blend) Check() (arg, reason string) {
	x, to := o.X.Shape, o.Out.Shape
	switch {
	case o.X.Type != dtype.F32 && o.X.Type != dtype.F64:
		return "x", fmt.Sprintf("of %v, want float32 or float64", o.X.Type)
	case x.Rank() != 3 || !o.X.Contiguous():
		return "x", fmt.Sprintf("%v with strides %v, want contiguous [outer, n, inner]", x, o.X.Strides)
	case to.Rank() != 3 || to.With(1, x.At(1)) != x || o.Out.Type != o.X.Type || !o.Out.Contiguous():
		return "out", fmt.Sprintf("%v of %v with strides %v, want contiguous [%d, m, %d] of %v", to, o.Out.Type, o.Out.Strides, x.At(0), x.At(2), o.X.Type)
	}
	_, m := o.Axes()
	want := shape.Of(1, m)
	if o.Index.Shape.Rank() == 2 && o.Index.Shape.At(0) == 2 {
		want = shape.Of(2, m)
	}
	if o.Index.Shape != want || o.Index.Type != dtype.I64 || !o.Index.Contiguous() {
		return "index", sparse(&o.Index, dtype.I64, want)
	}
	if o.Weight.Absent() {
		if want.At(0) > 1 {
			return "weight", "absent, but there are two taps"
		}
	} else if o.Weight.Shape != want || o.Weight.Type != o.X.Type || !o.Weight.Contiguous() {
		return "weight", sparse(&o.Weight, o.X.Type, want)
	}
	return "", ""
}

// Work counts a product and a sum for each tap of an element.
func (o *Blend) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	n := o.Out.Size()
	if o.Back {
		n = o.X.Size()
	}
	return Work{2 * o.Index.Shape.At(0) * n, bytesOf(o.Out, o.X, o.Index, o.Weight)}
}

// Clone copies the op.
func (o *Blend) Clone() Op { c := *o; return &c }
