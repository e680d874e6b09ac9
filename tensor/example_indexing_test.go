package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// The mean of each group's rows: the group of a row is an index, and rows are scattered to their group.
func ExampleTensor_ScatterReduce_groupMean() {
	rows := tensor.From([][]float32{{1, 10}, {2, 20}, {3, 30}, {6, 60}})
	group := tensor.From([]int64{0, 2, 0, 2})
	fmt.Println(tensor.Zeros(3, 2).IndexReduce(0, group, rows, "mean", false))
	// The same for single values, here the greatest of each group; group 1 is empty and keeps what was there.
	height := tensor.From([]float32{150, 180, 170, 175})
	fmt.Println(tensor.Zeros(3).ScatterReduce(0, group, height, "amax", false))
	// Output:
	// tensor([[ 2., 20.],
	//         [ 0.,  0.],
	//         [ 4., 40.]])
	// tensor([170.,   0., 180.])
}

// Nonzero, MaskedSelect and Bincount have as many results as the values say; MaskedScatter is MaskedSelect's opposite.
func ExampleTensor_Nonzero() {
	x := tensor.From([][]float32{{0, 5}, {7, 0}})
	mask := x.GtScalar(0)
	fmt.Println(x.Nonzero())
	fmt.Println(x.MaskedSelect(mask))
	fmt.Println(x.MaskedScatter(mask, tensor.From([]float32{1, 2})))
	fmt.Println(tensor.From([]int64{1, 1, 3}).Bincount(nil, 0))
	// Output:
	// tensor([[0, 1],
	//         [1, 0]])
	// tensor([5., 7.])
	// tensor([[0., 1.],
	//         [2., 0.]])
	// tensor([0, 2, 0, 1])
}
