package device

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A SortPick says which positions of a sorted row an [Argsort] stores in Out.
type SortPick uint8

// These are the positions that an [Argsort] can store. Only PickFirst may store more than one
// position for each row.
const (
	PickFirst SortPick = iota // the first positions; the number of Out's columns says how many
	PickRank                  // the position of the element with index Rank in ascending order
	// the position of the median, or of the first NaN if the row has one; for an even length, the
	// median is the lower of the two middle elements
	PickMedian
	PickNanMedian // the position of the median of the elements that are not NaN
	// the last position of the most frequent element; if several are equally frequent, the last
	// position of the smallest of them. NaN equals no other NaN
	PickMode
)

// Argsort sorts the rows of X. Out is an I64 view. Each row of Out gets the positions of the
// elements of the same row of X, in sorted order. Both views have rank 2 and the same number of
// rows. Out may have fewer columns than X. In this case it gets only the first positions. NaN is
// the greatest value. 0 and -0 are equal, and all NaN are equal. The sort is stable, even if
// Descending is set. If Pick is not PickFirst, the order is ascending and Out has one column.
type Argsort struct {
	Out, X     View
	Descending bool
	Pick       SortPick
	Rank       int // for PickRank: an index from 0 to the number of X's columns - 1
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
	switch {
	case o.Pick > PickMode:
		return "pick", fmt.Sprintf("there is no pick %d", o.Pick)
	case o.Pick != PickFirst && (to.At(1) != 1 || o.Descending):
		return "out", fmt.Sprintf("%d columns, descending %v, for one position in ascending order", to.At(1), o.Descending)
	case o.Pick == PickRank && (o.Rank < 0 || o.Rank >= from.At(1)):
		return "rank", fmt.Sprintf("%d in rows of %d elements", o.Rank, from.At(1))
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

// SortKey returns an expression that computes an integer sort key from X(0), an element of type t.
// Keys are in the same order as the elements. The key is an I64 for F64 and I64, otherwise an I32.
// The key of a float is its bits. For negative floats, the bits below the sign are inverted. NaN
// has the greatest key, and -0 has the key of 0. If descending is set, the key is the complement of
// the ascending key.
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
