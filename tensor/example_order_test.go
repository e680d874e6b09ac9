package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// CumSum adds up along a dimension; CumMax also says where the greatest entry so far was.
func ExampleTensor_CumSum() {
	x := tensor.From([][]float32{{1, 3, 2}, {4, 0, 5}})
	values, indices := x.CumMax(1)
	fmt.Println(x.CumSum(1).Floats(), values.Floats(), indices.Floats())
	// Output: [1 4 6 4 4 9] [1 3 3 4 4 5] [0 1 1 0 0 2]
}
