package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// ScatterKind says what a scatter does with an element that its target already has.
type ScatterKind uint8

// The ways to scatter. Set lets the last position in row-major order win; the others combine with what is there. Max and Min
// propagate NaN. The sum of truth values is "or", their product "and".
const (
	ScatterSet ScatterKind = iota
	ScatterAdd
	ScatterProd
	ScatterMax
	ScatterMin
)

// String returns the kind in lower case.
func (k ScatterKind) String() string {
	return [...]string{"set", "add", "prod", "max", "min"}[k]
}

// CheckIndexed says what is wrong with the shapes and types of a gather (dense is out, table is src) or a scatter (dense is
// src, table is dst): the argument at fault and why. The reason is empty where they fit. Drivers share it; that the views lie
// in their memory they check themselves.
func CheckIndexed(denseName string, dense *View, tableName string, table, index *View, axis int) (arg, reason string) {
	switch {
	case index.Type != dtype.I64 && index.Type != dtype.I32:
		return "index", fmt.Sprintf("of %v, want int64 or int32", index.Type)
	case dense.Type != table.Type:
		return denseName, fmt.Sprintf("%v, but %s is %v", dense.Type, tableName, table.Type)
	case dense.Shape != index.Shape:
		return "index", fmt.Sprintf("shape %v, but %s has %v", index.Shape, denseName, dense.Shape)
	case table.Shape.Rank() != index.Shape.Rank() || axis < 0 || axis >= table.Shape.Rank():
		return "axis", fmt.Sprintf("%d for shapes %v and %v", axis, table.Shape, index.Shape)
	}
	for k := range table.Shape.Rank() {
		if k != axis && index.Shape.At(k) > table.Shape.At(k) {
			return "index", fmt.Sprintf("shape %v is larger than %v in dimension %d", index.Shape, table.Shape, k)
		}
	}
	return "", ""
}
