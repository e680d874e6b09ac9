package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// Searcher is satisfied by devices that look values up in sorted rows by themselves.
type Searcher interface {
	// Search sets each element of out, I64 of the values' shape [rows, m], to the number of elements of that row of sorted, [rows, n] in ascending
	// order and of the values' type, that are less than its value, or if right not greater. That of NaN is n.
	Search(s Stream, out, sorted, values View, right bool) error
}

// CheckSearch is [CheckScan] for Search.
func CheckSearch(out, sorted, values *View) (arg, reason string) {
	if values.Shape.Rank() != 2 || out.Shape != values.Shape || out.Type != dtype.I64 {
		return "out", fmt.Sprintf("%v of %v for values of shape %v", out.Shape, out.Type, values.Shape)
	}
	if sorted.Shape.Rank() != 2 || sorted.Shape.At(0) != values.Shape.At(0) || sorted.Type != values.Type {
		return "sorted", fmt.Sprintf("%v of %v for values of shape %v and type %v", sorted.Shape, sorted.Type, values.Shape, values.Type)
	}
	return "", ""
}
