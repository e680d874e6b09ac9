package start_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func Example_making() {
	a := tensor.From([]float32{1, 2, 3}) // the slice's type, float32
	b := tensor.From([][]int64{{1, 2}, {3, 4}})
	c := tensor.Zeros(2, 3) // float32, as are Ones, Full, Rand and Randn
	d := tensor.Arange(5)   // int64
	fmt.Println(a.Type(), b.Type(), c.Shape(), d)
	// Output:
	// float32 int64 [2, 3] tensor([0, 1, 2, 3, 4])
}

func Example_device() {
	dev, _ := device.Best()
	there := tensor.Root().On(dev)         // makes tensors on dev that no scope frees
	a := there.Typed(dtype.I64).Full(7, 2) // two int64
	b := there.Randn(2, 3).RequiresGrad()  // a leaf of a graph
	c := b.Cast(dtype.BF16)                // another type, in the graph
	d := a.CPU()                           // another device
	fmt.Println(a.Dim(0), b.Rank(), c.Type(), d)
	// Output:
	// 2 2 bfloat16 tensor([7, 7])
}

func Example_arithmetic() {
	x, y := tensor.From([]float32{1, 2, 3}), tensor.From([]float32{4, 5, 6})
	fmt.Println(x.Add(y), x.AddScalar(1), x.RSubScalar(1)) // x + y, x + 1, 1 - x
	x.MulScalarInPlace(10)                                 // x *= 10
	even := x.RemainderScalar(20).EqScalar(0)
	fmt.Println(even, tensor.WhereScalars(even, 1, -1))
	fmt.Printf("%.2f\n", even.Float().Mean().Item())
	// Output:
	// tensor([5., 7., 9.]) tensor([2., 3., 4.]) tensor([ 0., -1., -2.])
	// tensor([False,  True, False]) tensor([-1.,  1., -1.])
	// 0.33
}

func Example_indexing() {
	x := tensor.Arange(12).Reshape(3, 4)
	fmt.Println(x.Index(1), x.Index(-1, 2))
	rows, columns := tensor.From([]int64{0, 2}), tensor.From([]int64{1, 3})
	fmt.Println(x.Index(rows, columns))
	x.IndexPutInPlace(100, true, rows, columns)
	fmt.Println(x.Index(x.GtScalar(50)))
	fmt.Println(tensor.Cat(0, x.Narrow(0, 0, 1), tensor.Arange(4).Unsqueeze(0)))
	// Output:
	// tensor([4, 5, 6, 7]) tensor(10)
	// tensor([ 1, 11])
	// tensor([101, 111])
	// tensor([[  0, 101,   2,   3],
	//         [  0,   1,   2,   3]])
}
