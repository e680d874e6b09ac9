package tensor_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// A hook receives the gradient of a tensor during Backward, and may replace it.
func ExampleTensor_RegisterHook() {
	x := tensor.From([]float32{1, 2, 3}).RequiresGrad()
	h := x.Square()
	remove := h.RegisterHook(func(g *tensor.Tensor) *tensor.Tensor {
		fmt.Println("gradient of h:", g)
		return g.ClampMax(5)
	})
	h.MulScalar(10).Sum().Backward()
	fmt.Println(x.Grad())
	remove()
	// Output:
	// gradient of h: tensor([10., 10., 10.])
	// tensor([10., 20., 30.])
}

// The hook makes a gradient descent step for a parameter as soon as the parameter's gradient is
// complete. So the gradient can be freed while Backward continues.
func ExampleTensor_RegisterPostAccumulateGradHook() {
	w := tensor.From([]float32{1, 2}).RequiresGrad()
	w.RegisterPostAccumulateGradHook(func(w *tensor.Tensor) {
		tensor.Do(func(s *tensor.Scope) {
			w.In(s).SubInPlace(w.Grad().MulScalar(0.1))
		}, tensor.NoGrad())
		w.ZeroGrad()
	})
	w.Square().Sum().Backward()
	fmt.Println(w.Detach(), w.Grad() == nil)
	// Output: tensor([0.8000, 1.6000]) true
}

// Results keep their gradient only after RetainGrad.
func ExampleTensor_RetainGrad() {
	x := tensor.From([]float32{1, 2}).RequiresGrad()
	h := x.Exp()
	h.RetainGrad()
	h.Square().Sum().Backward()
	fmt.Println(h.Grad())
	// Output: tensor([ 5.4366, 14.7781])
}

// DetectAnomaly finds the op whose gradient is NaN first: here 0·∞ at the root of 0.
func ExampleDetectAnomaly() {
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From([]float32{4, 0}).RequiresGrad()
			x.Sqrt().MulScalar(0).Sum().Backward()
		}, tensor.DetectAnomaly())
	})
	var a *tensor.Anomaly
	if errors.As(err, &a) {
		// a.Site is the line of Sqrt
		fmt.Println(a.Op, "by operand", a.Operand, "is", a.Value, "at", a.Index)
	}
	// Output: sqrt by operand 0 is NaN at [1]
}

// With the option Also, Backward starts from two results. It processes the part of the graph that
// both share only once.
func ExampleAlso() {
	x := tensor.From([]float32{1, 2}).RequiresGrad()
	shared := x.MulScalar(1)
	a, b := shared.Sum(), shared.Square().Sum()
	a.Backward(tensor.Also(b, nil))
	fmt.Println(x.Grad()) // the gradient is 1 + 2x
	// Output: tensor([3., 5.])
}

// The option Into chooses the tensors whose gradients Backward adds to. They may be results.
func ExampleInto() {
	x, w := tensor.From([]float32{1, 2}).RequiresGrad(), tensor.From([]float32{3, 4}).RequiresGrad()
	x.Mul(w).Sum().Backward(tensor.Into(w))
	fmt.Println(x.Grad() == nil, w.Grad())
	// Output: true tensor([1., 2.])
}

// A program may write the rows of a tensor one by one. The written values may be results of ops.
// Gradients flow back to the tensors that were copied.
func ExampleTensor_Copy_gradient() {
	x := tensor.From([]float32{1, 2}).RequiresGrad()
	out := tensor.Zeros(3, 2)
	h := x
	for i := range 3 {
		h = h.Mul(x)
		out.Select(0, i).Copy(h)
	}
	fmt.Println(out.Detach())
	out.Sum().Backward()
	fmt.Println(x.Grad()) // the gradient is 2x + 3x² + 4x³
	// Output:
	// tensor([[ 1.,  4.],
	//         [ 1.,  8.],
	//         [ 1., 16.]])
	// tensor([ 9., 48.])
}
