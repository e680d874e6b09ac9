package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// Slice is Python's x[start:stop:step] for one dimension.
func ExampleTensor_Slice() {
	x := tensor.From([]float32{0, 1, 2, 3, 4, 5})
	fmt.Println(x.Slice(0, 1, 5, 2).Floats(), x.Slice(0, -2, tensor.End, 1).Floats(), x.Slice(0, tensor.End, -tensor.End, -1).Floats())
	// Output: [1 3] [4 5] [5 4 3 2 1 0]
}

// Windows are a view, so a moving average needs no copy.
func ExampleTensor_Unfold() {
	x := tensor.From([]float32{1, 3, 5, 4, 0})
	fmt.Println(x.Unfold(0, 3, 1).Mean(-1).Floats())
	// Output: [3 4 3]
}

// Einsum names dimensions by letters, and sums over the letters that the result lacks.
func ExampleEinsum() {
	a := tensor.From([][]float32{{1, 2}, {3, 4}})
	b := tensor.From([][]float32{{1, 0}, {1, 1}})
	fmt.Println(tensor.Einsum("ij,jk->ik", a, b).Floats(), tensor.Einsum("ii", a).Item(), tensor.Einsum("ij,ij->i", a, b).Floats())
	// Output: [3 2 7 4] 5 [1 7]
}

// Max returns values and their positions. The gradient goes to these positions.
func ExampleTensor_Max() {
	x := tensor.From([][]float32{{1, 5, 2}, {7, 0, 3}}).RequiresGrad()
	values, indices := x.Max(1)
	values.Sum().Backward()
	fmt.Println(values.Floats(), indices.Floats(), x.Grad().Floats())
	// Output: [5 7] [1 0] [0 1 0 1 0 0]
}
