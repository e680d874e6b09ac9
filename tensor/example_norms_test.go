package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// Each row is normalised to mean 0 and variance 1.
func ExampleTensor_LayerNorm() {
	x := tensor.From([][]float32{{1, 3}, {-10, 10}})
	fmt.Println(x.LayerNorm([]int{2}, nil, nil, 0).Floats())
	// Output: [-1 1 -1 1]
}

// In training BatchNorm uses the batch's own statistics, and mixes them into the running
// statistics. Outside of training it uses the running statistics.
func ExampleTensor_BatchNorm() {
	mean, variance := tensor.Zeros(1), tensor.Ones(1)
	x := tensor.From([][]float32{{0}, {2}, {4}})
	x.BatchNorm(mean, variance, nil, nil, true, 0.5, 1e-5)
	fmt.Println(mean.Item(), variance.Item())
	fmt.Printf("%.4f\n", x.BatchNorm(mean, variance, nil, nil, false, 0, 0).Floats())
	// Output:
	// 1 2.5
	// [-0.6325 0.6325 1.8974]
}
