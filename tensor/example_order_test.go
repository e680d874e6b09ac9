package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// CumSum adds up along a dimension. CumMax also returns the position of the greatest entry so far.
func ExampleTensor_CumSum() {
	x := tensor.From([][]float32{{1, 3, 2}, {4, 0, 5}})
	values, indices := x.CumMax(1)
	fmt.Println(x.CumSum(1).Floats(), values.Floats(), indices.Floats())
	// Output: [1 4 6 4 4 9] [1 3 3 4 4 5] [0 1 1 0 0 2]
}

// Sort and TopK return values and their old positions.
func ExampleTensor_TopK() {
	x := tensor.From([][]float32{{3, 1, 2}, {4, 6, 5}})
	values, indices := x.TopK(2, 1, true, true)
	sorted, _ := x.Sort(1, true)
	fmt.Println(values.Floats(), indices.Floats(), sorted.Floats())
	// Output: [3 2 6 5] [0 2 1 2] [3 2 1 6 5 4]
}

// Quantiles computes several quantiles at once. They form the first dimension of the result.
func ExampleTensor_Quantiles() {
	x := tensor.From([]float32{4, 1, 3, 2, 0})
	median, _ := x.Median()
	fmt.Println(x.Quantiles([]float64{0.25, 0.5, 0.9}, tensor.Linear).Floats(), median.Item())
	// Output: [1 2 3.5999999046325684] 2
}

// Unique also returns how often each element occurs.
func ExampleTensor_Unique() {
	values, _, counts := tensor.From([]int64{3, 1, 3, 2, 3}).Unique(tensor.UniqueOptions{Counts: true})
	fmt.Println(values.Floats(), counts.Floats())
	// Output: [1 2 3] [1 1 3]
}

// Searchsorted returns the positions of values in an ordered vector, and Bucketize the bucket of
// each value.
func ExampleTensor_Searchsorted() {
	bounds := tensor.From([]float32{0, 10, 20})
	x := tensor.From([]float32{-1, 10, 15, 30})
	fmt.Println(bounds.Searchsorted(x, false).Floats(), x.Bucketize(bounds, true).Floats())
	// Output: [0 1 2 3] [0 2 2 3]
}
