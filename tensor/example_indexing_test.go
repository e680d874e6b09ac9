package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// IndexReduce computes the mean of the rows of each group. The index names the group of each row.
func ExampleTensor_ScatterReduce_groupMean() {
	rows := tensor.From([][]float32{{1, 10}, {2, 20}, {3, 30}, {6, 60}})
	group := tensor.From([]int64{0, 2, 0, 2})
	fmt.Println(tensor.Zeros(3, 2).IndexReduce(0, group, rows, "mean", false))
	// ScatterReduce combines single values in the same way. Here it returns the greatest value of
	// each group. Group 1 is empty and keeps its old value.
	height := tensor.From([]float32{150, 180, 170, 175})
	fmt.Println(tensor.Zeros(3).ScatterReduce(0, group, height, "amax", false))
	// Output:
	// tensor([[ 2., 20.],
	//         [ 0.,  0.],
	//         [ 4., 40.]])
	// tensor([170.,   0., 180.])
}

// Index is Python's brackets: x[1], x[:, 1:], x[..., None], x[idx], x[mask].
func ExampleTensor_Index() {
	x := tensor.From([][]float32{{0, 1, 2}, {3, 4, 5}})
	fmt.Println(x.Index(1))
	fmt.Println(x.Index(tensor.All, tensor.Range(1, tensor.End)))
	fmt.Println(x.Index(tensor.Ellipsis, tensor.NewAxis).Shape())
	idx := tensor.From([]int64{2, 0, -1})
	fmt.Println(x.Index(tensor.All, idx))
	fmt.Println(x.Index([]int{0, 1, 1}, idx))
	fmt.Println(x.Index(x.GtScalar(3)))
	// Output:
	// tensor([3., 4., 5.])
	// tensor([[1., 2.],
	//         [4., 5.]])
	// [2, 3, 1]
	// tensor([[2., 0., 2.],
	//         [5., 3., 5.]])
	// tensor([2., 3., 5.])
	// tensor([4., 5.])
}

// SetIndex assigns to the elements that Index would select. IndexPut can add where an index is
// repeated.
func ExampleTensor_SetIndex() {
	x := tensor.Zeros(2, 3)
	x.SetIndex(tensor.From([]float32{1, 2, 3}), 0)
	x.SetIndex(9, tensor.All, -1)
	x.SetIndex(0, x.EqScalar(2))
	fmt.Println(x)
	fmt.Println(tensor.Zeros(3).IndexPut(1, true, []int{0, 2, 0}))
	// Output:
	// tensor([[1., 0., 9.],
	//         [0., 0., 9.]])
	// tensor([2., 0., 1.])
}

// The values decide how many results Nonzero, MaskedSelect and Bincount have. MaskedScatter is the
// opposite of MaskedSelect.
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
