package autograd_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/tensor"
)

// Grad computes the gradient of several results together. Here the results are x² and the sum of
// 3x. The gradient of x² is (1, 10), and the gradient of the sum is 1.
func Example() {
	x := tensor.From([]float64{1, 2}).RequiresGrad()
	square, sum := x.Square(), x.MulScalar(3).Sum()
	g := autograd.Grad([]*tensor.Tensor{square, sum}, []*tensor.Tensor{x}, []*tensor.Tensor{tensor.From([]float64{1, 10}), nil})
	fmt.Println(g[0])
	// Output: tensor([ 5., 43.], dtype=torch.float64)
}

// product returns x·y, element by element.
func product(in []*tensor.Tensor) *tensor.Tensor { return in[0].Mul(in[1]) }

func ExampleVJP() {
	x, y := tensor.From([]float64{1, 2}), tensor.From([]float64{3, 4})
	z, g := autograd.VJP(product, []*tensor.Tensor{x, y}, tensor.From([]float64{1, 10}))
	fmt.Println(z)
	fmt.Println(g[0], g[1])
	// Output:
	// tensor([3., 8.], dtype=torch.float64)
	// tensor([ 3., 40.], dtype=torch.float64) tensor([ 1., 20.], dtype=torch.float64)
}

// JVP computes the derivative in the direction in which only x grows.
func ExampleJVP() {
	x, y := tensor.From([]float64{1, 2}), tensor.From([]float64{3, 4})
	_, d := autograd.JVP(product, []*tensor.Tensor{x, y}, []*tensor.Tensor{x.OnesLike(), y.ZerosLike()})
	fmt.Println(d)
	// Output: tensor([3., 4.], dtype=torch.float64)
}

// Jacobian computes the Jacobian of xᵢ·Σx. The derivative with respect to xⱼ is xᵢ, plus Σx if i =
// j.
func ExampleJacobian() {
	x := tensor.From([]float64{1, 2, 3})
	j := autograd.Jacobian(func(in []*tensor.Tensor) *tensor.Tensor { return in[0].Unsqueeze(1).MatMul(in[0].Unsqueeze(0)).Sum(1) }, []*tensor.Tensor{x})
	fmt.Println(j[0])
	// Output:
	// tensor([[7., 1., 1.],
	//         [2., 8., 2.],
	//         [3., 3., 9.]], dtype=torch.float64)
}

// quadratic returns x₀²·x₁.
func quadratic(in []*tensor.Tensor) *tensor.Tensor {
	return in[0].Select(0, 0).Square().Mul(in[0].Select(0, 1))
}

func ExampleHessian() {
	h := autograd.Hessian(quadratic, []*tensor.Tensor{tensor.From([]float64{3, 5})})
	fmt.Println(h[0][0])
	// Output:
	// tensor([[10.,  6.],
	//         [ 6.,  0.]], dtype=torch.float64)
}

func ExampleHVP() {
	_, hv := autograd.HVP(quadratic, []*tensor.Tensor{tensor.From([]float64{3, 5})}, []*tensor.Tensor{tensor.From([]float64{1, -1})})
	fmt.Println(hv[0])
	// Output: tensor([4., 6.], dtype=torch.float64)
}

// straightThrough rounds, but its gradient is the gradient of the identity. Check finds the
// difference.
var straightThrough = &autograd.Func{
	Name:     "straight_through",
	Forward:  func(_ *tensor.Context, in []*tensor.Tensor) *tensor.Tensor { return in[0].Round() },
	Backward: func(_ *tensor.Context, g *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{g} },
}

func ExampleFunc() {
	x := tensor.From([]float64{0.4, 1.6}).RequiresGrad()
	y := straightThrough.Apply(x)
	y.Square().Sum().Backward()
	fmt.Println(y.Detach(), x.Grad())
	// Output: tensor([0., 2.], dtype=torch.float64) tensor([0., 4.], dtype=torch.float64)
}

func ExampleCheck() {
	x := tensor.From([]float64{0.4, 1.6})
	err := autograd.Check(func(in []*tensor.Tensor) *tensor.Tensor { return in[0].Exp().Sum() }, []*tensor.Tensor{x}, autograd.CheckOptions{SecondOrder: true})
	fmt.Println(err)

	err = autograd.Check(func(in []*tensor.Tensor) *tensor.Tensor { return straightThrough.Apply(in[0]) }, []*tensor.Tensor{x}, autograd.CheckOptions{})
	var wrong *autograd.CheckError
	fmt.Println(errors.As(err, &wrong), wrong.Input, wrong.At, wrong.Got, wrong.Want)
	// Output:
	// <nil>
	// true 0 [0] 1 0
}

// Check distinguishes a function that draws random numbers from one whose gradient is wrong.
func ExampleCheck_nondeterministic() {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float64{1, 2, 3, 4, 5, 6, 7, 8}).RequiresGrad()
		err := autograd.Check(func(x []*tensor.Tensor) *tensor.Tensor { return x[0].Dropout(0.5) }, []*tensor.Tensor{x}, autograd.CheckOptions{})
		fmt.Println(errors.Is(err, autograd.ErrNondeterministic))
	})
	// Output: true
}
