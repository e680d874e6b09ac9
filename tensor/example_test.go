package tensor_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Ops are methods. Broadcasting and printing work as in PyTorch.
func Example() {
	x := tensor.From([][]float32{{1, 2, 3}, {4, 5, 6}})
	row := tensor.From([]float32{10, 20, 30})
	fmt.Println(x.Add(row))
	fmt.Println(x.Shape(), x.Type(), x.Device().Name())
	// Output:
	// tensor([[11., 22., 33.],
	//         [14., 25., 36.]])
	// [2, 3] float32 cpu
}

// From accepts nested slices, flat slices with a shape, and single numbers. The element type
// follows from the Go type.
func ExampleFrom() {
	fmt.Println(tensor.From([][]int64{{1, 2}, {3, 4}}))
	fmt.Println(tensor.From([]float64{1, 2, 3, 4, 5, 6}, 3, 2).Shape())
	fmt.Println(tensor.From(2.5))
	fmt.Println(tensor.From([]bool{true, false}).Type())
	// Output:
	// tensor([[1, 2],
	//         [3, 4]])
	// [3, 2]
	// tensor(2.5000, dtype=torch.float64)
	// bool
}

// A maker creates tensors of a type other than the scope's. With On it creates them on another
// device.
func ExampleMaker() {
	half := tensor.Typed(dtype.F16)
	fmt.Println(half.Eye(2))
	fmt.Println(half.Full(0.1, 3))
	fmt.Println(tensor.Typed(dtype.I32).ArangeStep(0, 10, 3))
	// Output:
	// tensor([[1., 0.],
	//         [0., 1.]], dtype=torch.float16)
	// tensor([0.1000, 0.1000, 0.1000], dtype=torch.float16)
	// tensor([0, 3, 6, 9], dtype=torch.int32)
}

// Item reads a scalar, Data a Go slice of the element type, and Floats numbers of any type.
func ExampleData() {
	x := tensor.From([]int32{3, 1, 2})
	var ints []int32 = tensor.Data[int32](x)
	fmt.Println(ints, x.Floats(), x.Sum().Item())
	// Output: [3 1 2] [3 1 2] 6
}

// A reduction works over the given dimensions. Negative dimensions count from the end, and no
// dimension means all. KeepDim keeps the dimensions with size 1, so that the result broadcasts with
// the operand.
func ExampleTensor_Sum() {
	x := tensor.From([][]float32{{1, 2, 3}, {4, 5, 6}})
	fmt.Println(x.Sum())
	fmt.Println(x.Sum(0))
	share := x.Div(x.Sum(-1, tensor.KeepDim))
	fmt.Println(share)
	// Output:
	// tensor(21.)
	// tensor([5., 7., 9.])
	// tensor([[0.1667, 0.3333, 0.5000],
	//         [0.2667, 0.3333, 0.4000]])
}

// This example standardises the columns of a matrix.
func ExampleTensor_Mean() {
	x := tensor.From([][]float32{{1, 10}, {3, 30}})
	centred := x.Sub(x.Mean(0, tensor.KeepDim))
	deviation := centred.Square().Mean(0, tensor.KeepDim).Sqrt()
	fmt.Println(centred.Div(deviation))
	// Output:
	// tensor([[-1., -1.],
	//         [ 1.,  1.]])
}

// Argmax over the last dimension turns logits into classes.
func ExampleTensor_Argmax() {
	logits := tensor.From([][]float32{{0.1, 2, -1}, {3, 0, 0}})
	fmt.Println(logits.Argmax(-1))
	// Output: tensor([1, 0])
}

// MatMul multiplies vectors, matrices and batches of matrices. The last two dimensions are those of
// the matrices. The leading dimensions broadcast.
func ExampleTensor_MatMul() {
	a := tensor.From([][]float32{{1, 2}, {3, 4}})
	v := tensor.From([]float32{1, 1})
	fmt.Println(a.MatMul(a.T()))
	fmt.Println(a.MatMul(v))
	fmt.Println(tensor.Ones(5, 3, 2).MatMul(a).Shape())
	// Output:
	// tensor([[ 5., 11.],
	//         [11., 25.]])
	// tensor([3., 7.])
	// [5, 3, 2]
}

// Comparisons return bool tensors. Where chooses elements by such a tensor.
func ExampleWhere() {
	x := tensor.From([]float32{-2, -1, 0, 1, 2})
	fmt.Println(x.GtScalar(0))
	fmt.Println(tensor.Where(x.GtScalar(0), x, x.MulScalar(0.1)))
	// Output:
	// tensor([False, False, False,  True,  True])
	// tensor([-0.2000, -0.1000,  0.0000,  1.0000,  2.0000])
}

// Gather selects one entry of each row: the probability that a model gave to the right class.
func ExampleTensor_Gather() {
	p := tensor.From([][]float32{{0.7, 0.2, 0.1}, {0.1, 0.1, 0.8}})
	target := tensor.From([]int64{0, 2})
	fmt.Println(p.Gather(1, target.Unsqueeze(1)).Squeeze(1))
	// Output: tensor([0.7000, 0.8000])
}

// ScatterAdd is the opposite of Gather. Here it counts how often each class occurs.
func ExampleTensor_ScatterAdd() {
	class := tensor.From([]int64{2, 0, 2, 2})
	fmt.Println(tensor.Zeros(4).ScatterAdd(0, class, tensor.Ones(4)))
	// Output: tensor([1., 0., 3., 0.])
}

// Embedding returns a row of a table for each index. The indices may have any shape.
func ExampleTensor_Embedding() {
	table := tensor.From([][]float32{{0, 0}, {1, 10}, {2, 20}})
	words := tensor.From([][]int64{{1, 2}, {2, 0}})
	fmt.Println(table.Embedding(words))
	// Output:
	// tensor([[[ 1., 10.],
	//          [ 2., 20.]],
	//
	//         [[ 2., 20.],
	//          [ 0.,  0.]]])
}

// Softmax and LogSoftmax are computed without overflow.
func ExampleTensor_Softmax() {
	fmt.Println(tensor.From([]float32{1000, 1001, 1002}).Softmax(-1))
	// Output:
	// tensor([0.0900, 0.2447, 0.6652])
}

// Views share the memory of their base.
func ExampleTensor_View() {
	x := tensor.Typed(dtype.I64).Arange(6)
	m := x.View(2, -1)
	m.Select(0, 1).Fill(9)
	fmt.Println(x)
	fmt.Println(m.T().Shape(), m.T().Strides(), m.T().IsContiguous())
	// Output:
	// tensor([0, 1, 2, 9, 9, 9])
	// [3, 2] [1, 3] false
}

// Cat joins tensors along an existing dimension, Stack along a new one.
func ExampleCat() {
	a, b := tensor.Zeros(2, 3), tensor.Ones(2, 3)
	fmt.Println(tensor.Cat(0, a, b).Shape(), tensor.Stack(0, a, b).Shape())
	// Output: [4, 3] [2, 2, 3]
}

// Types promote as in PyTorch. The operand of the highest class (bool, integer, floating point)
// decides. A scalar does not widen a tensor of its own class.
func ExampleTensor_Cast() {
	n := tensor.From([]int64{1, 2, 3})
	fmt.Println(n.AddScalar(2).Type(), n.AddScalar(0.5).Type(), n.Div(n).Type())
	fmt.Println(n.Add(tensor.Typed(dtype.F16).Ones(3)).Type())
	fmt.Println(tensor.From([]float32{-1.7, 1.7, 1e20}).Cast(dtype.I32))
	// Output:
	// int64 float32 float32
	// float16
	// tensor([        -1,          1, 2147483647], dtype=torch.int32)
}

// In-place methods change the tensor itself and every view of it. They return the
// tensor for chaining.
func ExampleTensor_AddInPlace() {
	total := tensor.Zeros(2)
	for i := range 3 {
		total.AddInPlace(tensor.Full(float64(i), 2)).MulScalarInPlace(10)
	}
	fmt.Println(total)
	// Output:
	// tensor([120., 120.])
}

// Misuse panics with an *Error, and Try returns it as an error. The error names the operation, the
// operands, where they were made, and the line of the call.
func ExampleTry() {
	err := tensor.Try(func() {
		tensor.Zeros(2, 3).MatMul(tensor.Zeros(4, 5))
	})
	var e *tensor.Error
	if errors.As(err, &e) {
		fmt.Println(e.Op+":", e.Msg)
		for _, o := range e.Operands {
			fmt.Println(" ", o)
		}
	}
	fmt.Println(errors.Is(err, tensor.ErrShape))
	// Output:
	// matmul: [2, 3] × [4, 5]: inner dimensions 3 and 4 differ
	//   [2, 3] float32 on cpu
	//   [4, 5] float32 on cpu
	// true
}

// The error for an index out of range names the index and its position.
func ExampleError() {
	table := tensor.Zeros(10, 4)
	err := tensor.Try(func() { table.Embedding(tensor.From([]int64{3, 12})) })
	var e *tensor.Error
	errors.As(err, &e)
	fmt.Println(e.Op+":", e.Msg)
	fmt.Println(errors.Is(err, tensor.ErrIndex))
	// Output:
	// embedding: index 12 at position 1 is out of range for an axis of size 10
	// true
}

// Long tensors are summarised.
func ExampleTensor_String() {
	fmt.Println(tensor.Root().Arange(5000))
	fmt.Println(tensor.From([]float64{1e-8, 1, 1e8}))
	fmt.Println(tensor.Zeros(2, 0))
	// Output:
	// tensor([   0,    1,    2,  ..., 4997, 4998, 4999])
	// tensor([1.0000e-08, 1.0000e+00, 1.0000e+08], dtype=torch.float64)
	// tensor([], size=(2, 0))
}
