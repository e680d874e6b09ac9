package shape_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/shape"
)

// Broadcast aligns two shapes at the last dimension. Each pair of sizes must be equal, or one of
// them must be 1.
func ExampleBroadcast() {
	s, _, ok := shape.Broadcast(shape.Of(8, 1, 6), shape.Of(7, 1))
	fmt.Println(s, ok)
	_, dim, ok := shape.Broadcast(shape.Of(2, 3), shape.Of(2, 4))
	fmt.Println(ok, "dimension", dim, "from the end")
	// Output:
	// [8, 7, 6] true
	// false dimension 1 from the end
}

// Dims is a value: it is compared with ==, and its methods return changed copies.
func ExampleDims() {
	s := shape.Of(2, 3, 4)
	fmt.Println(s.Rank(), s.Size(), s.At(1))
	fmt.Println(s.Remove(1), s.Insert(0, 1), s.With(2, 5), s.Append(6))
	fmt.Println(s.Remove(1) == shape.Of(2, 4), s.Contiguous())
	// Output:
	// 3 24 3
	// [2, 4] [1, 2, 3, 4] [2, 3, 5] [2, 3, 4, 6]
	// true [12, 4, 1]
}

// A layout describes a view. Transposing and slicing change only the layout's shape, strides and
// offset. They move no memory.
func Example() {
	l := shape.Dense(shape.Of(3, 4))
	t := l.Transpose(0, 1)
	fmt.Println(t.Shape, t.Strides, t.Contiguous())
	every := l.Narrow(1, 1, 2, 2) // the columns 1 and 3
	fmt.Println(every.Shape, every.Strides, every.Offset)
	_, ok := t.View(shape.Of(12))
	fmt.Println("flat without a copy:", ok)
	// Output:
	// [4, 3] [1, 4] false
	// [3, 2] [4, 2] 1
	// flat without a copy: false
}

// A broadcast dimension has stride 0.
func ExampleLayout_Expand() {
	row, ok := shape.Dense(shape.Of(1, 3)).Expand(shape.Of(2, 3))
	fmt.Println(row.Strides, ok, row.Overlaps())
	// Output: [0, 1] true true
}

// A kernel needs only as many loops as the layouts of its operands require.
func ExampleCollapseTogether() {
	s := shape.Of(2, 3, 4)
	dense := s.Contiguous()
	// rows of 4 elements begin every 8 elements, and matrices every 32 elements
	padded := shape.Of(32, 8, 1)
	c, strides := shape.CollapseTogether(s, []shape.Dims{dense, dense})
	fmt.Println(c, strides)
	c, strides = shape.CollapseTogether(s, []shape.Dims{dense, padded})
	fmt.Println(c, strides)
	// Output:
	// [24] [[1] [1]]
	// [2, 3, 4] [[12, 4, 1] [32, 8, 1]]
}

// Negative dimensions count from the end.
func ExampleAxis() {
	fmt.Println(shape.Axis(-1, 4))
	fmt.Println(shape.Axis(4, 4))
	// Output:
	// 3 true
	// 0 false
}
