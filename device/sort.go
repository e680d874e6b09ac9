package device

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// An Argsort sets each row of Out, I64, to the positions of the first elements of that row of X in
// ascending order, or in descending order. Both are of rank 2 and have the same rows; Out has at
// most X's columns. NaN is the greatest; 0 and -0 are equal, as are all NaN. Equal elements keep
// their order, also if descending.
type Argsort struct {
	Out, X     View
	Descending bool
}

// Name returns "argsort".
func (*Argsort) Name() string { return "argsort" }

// Operand returns the result, then the operand.
func (o *Argsort) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"x", &o.X, false})
}

// Check compares the shapes and types.
func (o *Argsort) Check() (arg, reason string) {
	to, from := &o.Out.Shape, &o.X.Shape
	if to.Rank() != 2 || from.Rank() != 2 || to.At(0) != from.At(0) || to.At(1) > from.At(1) || o.Out.Type != dtype.I64 {
		return "out", fmt.Sprintf("%v of %v for x of shape %v", *to, o.Out.Type, *from)
	}
	return "", ""
}

// Work counts n·⌈log₂ n⌉ comparisons a row.
func (o *Argsort) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	return Work{o.X.Size() * bits.Len(uint(max(o.X.Shape.At(1)-1, 0))), bytesOf(o.Out, o.X)}
}

// Clone copies the op.
func (o *Argsort) Clone() Op { c := *o; return &c }

// SortKey is the integer that an element of type t, X(0), is ordered by: an I32, or of F64 and I64
// an I64. Of a float it is its bits, the lower ones of negative numbers reversed; NaN is the
// greatest, and -0 is 0. Descending keys are complements.
func SortKey(t dtype.Type, descending bool) *expr.Expr {
	to, most := dtype.I32, uint64(math.MaxInt32)
	if t == dtype.F64 || t == dtype.I64 {
		to, most = dtype.I64, math.MaxInt64
	}
	x := expr.X(0)
	key := x.Cvt(to)
	if t.IsFloat() {
		wide := x.Cvt(t.Compute())
		b := wide.Bitcast(to)
		key = b.Lt(expr.Bits(to, 0)).Select(b.Xor(expr.Bits(to, most)), b)
		key = wide.Eq(expr.C(0)).Select(expr.Bits(to, 0), key)
		key = wide.Ne(wide).Select(expr.Bits(to, most), key)
	}
	if descending {
		key = key.Not()
	}
	return key
}
