package device

import (
	"fmt"
	"math/bits"

	"github.com/flambeau-go/flambeau/dtype"
)

// Search counts elements of sorted rows, like torch.searchsorted. Sorted has the shape [rows, n],
// with each row in ascending order. Values has the shape [rows, m] and the type of Sorted. Out is
// I64 and has the shape of Values. For each value, Out gets the number of elements less than the
// value in the same row of Sorted. If Right is set, elements equal to the value are counted too. If
// the value is NaN, Out gets n.
type Search struct {
	Out, Sorted, Values View
	Right               bool
}

// Name returns "search".
func (*Search) Name() string { return "search" }

// Operand returns operand i: the result comes first, then the inputs.
func (o *Search) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"sorted", &o.Sorted, false},
		Operand{"values", &o.Values, false})
}

// Check checks the shapes and types of the operands.
func (o *Search) Check() (arg, reason string) {
	v, s := &o.Values, &o.Sorted
	if v.Shape.Rank() != 2 || o.Out.Shape != v.Shape || o.Out.Type != dtype.I64 {
		return "out", fmt.Sprintf("%v of %v for values of shape %v", o.Out.Shape, o.Out.Type, v.Shape)
	}
	if s.Shape.Rank() != 2 || s.Shape.At(0) != v.Shape.At(0) || s.Type != v.Type {
		return "sorted", fmt.Sprintf("%v of %v for values of shape %v and type %v", s.Shape, s.Type, v.Shape, v.Type)
	}
	return "", ""
}

// Work counts ⌈log₂(n+1)⌉ comparisons for each value.
func (o *Search) Work() Work {
	if o.Out.Size() == 0 {
		return Work{}
	}
	return Work{o.Values.Size() * bits.Len(uint(o.Sorted.Shape.At(1))), bytesOf(o.Out, o.Sorted, o.Values)}
}

// Clone copies the op.
func (o *Search) Clone() Op { c := *o; return &c }
