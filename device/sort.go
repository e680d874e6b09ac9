package device

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Argsort sorts the rows of X. Each row of Out, which is I64, gets positions of elements of X, in
// ascending or descending order of the elements. Both views have rank 2 and the same number of
// rows. Out may have fewer columns than X, and then gets the first positions only. NaN is the
// greatest value. 0 and -0 are equal, and all NaN are equal. Equal elements keep their order, also
// in descending order.
type Argsort struct {
	Out, X     View
	Descending bool
}

// Name returns "argsort".
func (*Argsort) Name() string { return "argsort" }

// Operand returns operand i: the result comes first, then the input.
func (o *Argsort) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"x", &o.X, false})
}

// Check checks the shapes and types of the operands.
func (o *Argsort) Check() (arg, reason string) {
	to, from := &o.Out.Shape, &o.X.Shape
	if to.Rank() != 2 || from.Rank() != 2 || to.At(0) != from.At(0) || to.At(1) > from.At(1) || o.Out.Type != dtype.I64 {
		return "out", fmt.Sprintf("%v of %v for x of shape %v", *to, o.Out.Type, *from)
	}
	return "", ""
}

// Work counts n·⌈log₂ n⌉ comparisons for each row.
func (o *Argsort) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	return Work{o.X.Size() * bits.Len(uint(max(o.X.Shape.At(1)-1, 0))), bytesOf(o.Out, o.X)}
}

// Clone copies the op.
func (o *Argsort) Clone() Op { c := *o; return &c }

// SortKey returns an expression of X(0), of type t, for an integer key that orders like X(0). The
// key is an I64 for F64 and I64, otherwise an I32. The key of a float is its bits. For negative
// floats the bits below the sign are inverted. NaN has the greatest key, and -0 has the key of 0. A
// descending key is the complement of the ascending key.
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
