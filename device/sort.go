package device

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Sorter is satisfied by devices that order the elements of rows.
type Sorter interface {
	// Argsort sets each row of out, I64, to the positions of the first elements of that row of x in ascending order, or in
	// descending order; out and x are of rank 2 and have the same rows, and out has at most x's columns. NaN is the greatest; 0
	// and -0 are equal, as are all NaN. Equal elements keep their order, also if descending.
	Argsort(s Stream, out, x View, descending bool) error
}

// CheckArgsort is [CheckScan] for Argsort.
func CheckArgsort(out, x *View) (arg, reason string) {
	if out.Shape.Rank() != 2 || x.Shape.Rank() != 2 || out.Shape.At(0) != x.Shape.At(0) || out.Shape.At(1) > x.Shape.At(1) || out.Type != dtype.I64 {
		return "out", fmt.Sprintf("%v of %v for x of shape %v", out.Shape, out.Type, x.Shape)
	}
	return "", ""
}

// SortKey is the integer that an element of type t, X(0), is ordered by: an I32, or of F64 and I64 an I64. Of a float it is its
// bits, the lower ones of negative numbers reversed; NaN is the greatest, and -0 is 0. Descending keys are complements.
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
