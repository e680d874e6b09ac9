package tensor_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// Solve solves a system of linear equations for each matrix of a batch. The solutions have a
// gradient.
func ExampleTensor_Solve() {
	a := tensor.From([][][]float32{{{2, 0}, {0, 4}}, {{1, 1}, {0, 1}}})
	b := tensor.From([]float32{2, 8}).RequiresGrad()
	x := a.Solve(b)
	fmt.Println(x.Detach())
	x.Sum().Backward()
	fmt.Println(b.Grad())
	// Output:
	// tensor([[ 1.,  2.],
	//         [-6.,  8.]])
	// tensor([1.5000, 0.2500])
}

// The products of int8 do not fit into int8. IntMM returns them as int32.
func ExampleTensor_IntMM() {
	x := tensor.From([][]int8{{100, -100}, {1, 2}})
	w := tensor.From([][]int8{{100, 1}, {-128, 2}})
	fmt.Println(x.IntMM(w))
	// Output:
	// tensor([[22800,  -100],
	//         [ -156,     5]], dtype=torch.int32)
}

// A weight of int8 takes a quarter of the memory. The input is quantised in each call.
func ExampleTensor_LinearInt8() {
	weight := tensor.From([][]float32{{0.5, -1}, {3, 2}})
	w, scale := weight.QuantizeRows()
	x := tensor.From([][]float32{{1, 2}})
	fmt.Println(w)
	fmt.Printf("%.4f\n", scale.Floats())
	fmt.Println(x.LinearInt8(w, scale.Squeeze(-1), nil), x.Linear(weight, nil))
	// Output:
	// tensor([[  64, -127],
	//         [ 127,   85]], dtype=torch.int8)
	// [0.0079 0.0236]
	// tensor([[-1.4921,  7.0394]]) tensor([[-1.5000,  7.0000]])
}

// The best approximation of rank 1 keeps the greatest singular value.
func ExampleTensor_SVD() {
	x := tensor.From([][]float64{{3, 0}, {4, 5}})
	u, s, vh := x.SVD(false)
	first := u.Narrow(-1, 0, 1).Mul(s.Narrow(-1, 0, 1)).MatMul(vh.Narrow(-2, 0, 1))
	fmt.Printf("%.4f %.4f\n", s.Floats(), first.Floats())
	// Output: [6.7082 2.2361] [1.5000 1.5000 4.5000 4.5000]
}

// The error for a matrix that is not positive definite has the kind ErrLinAlg. So a program can
// distinguish it from misuse.
func ExampleTensor_Cholesky() {
	l := tensor.From([][]float32{{4, 2}, {2, 10}}).Cholesky(false)
	fmt.Println(l)
	err := tensor.Try(func() { tensor.From([][]float32{{1, 2}, {2, 1}}).Cholesky(false) })
	var e *tensor.Error
	errors.As(err, &e)
	fmt.Println(errors.Is(err, tensor.ErrLinAlg), e.Msg)
	// Output:
	// tensor([[2., 0.],
	//         [1., 3.]])
	// true the matrix is not positive definite: its leading minor of order 2 is not positive
}

// HostOps are the ops that copy tensors from a GPU to the host and back.
func ExampleHostOps() {
	fmt.Println(tensor.HostOps())
	// Output: [cholesky det eigh inverse lstsq matrix_exp matrix_rank pinv qr slogdet solve solve_triangular svd]
}
