package tensor_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// This example compares the activations.
func ExampleTensor_Relu() {
	x := tensor.From([]float32{-2, 0, 2})
	fmt.Println(x.Relu(), x.Sigmoid())
	fmt.Println(x.Gelu(), x.GeluTanh())
	fmt.Println(x.Silu(), x.Tanh())
	// Output:
	// tensor([0., 0., 2.]) tensor([0.1192, 0.5000, 0.8808])
	// tensor([-0.0455,  0.0000,  1.9545]) tensor([-0.0454,  0.0000,  1.9546])
	// tensor([-0.2384,  0.0000,  1.7616]) tensor([-0.9640,  0.0000,  0.9640])
}

// MaskedFill writes a number where a mask is true. The example also shows the greater of two
// tensors, and Clamp.
func ExampleTensor_MaskedFill() {
	x, y := tensor.From([]float32{1, 5, -3}), tensor.From([]float32{2, 2, 2})
	fmt.Println(x.Maximum(y), x.Minimum(y))
	fmt.Println(x.Clamp(-1, 2), x.ClampMin(0), x.ClampMax(0))
	fmt.Println(x.MaskedFill(x.Lt(y), 0))
	fmt.Println(x.Gt(y), x.Gt(y).LogicalNot())
	// Output:
	// tensor([2., 5., 2.]) tensor([ 1.,  2., -3.])
	// tensor([ 1.,  2., -1.]) tensor([1., 5., 0.]) tensor([ 0.,  0., -3.])
	// tensor([0., 5., 0.])
	// tensor([False,  True, False]) tensor([ True, False,  True])
}

// Permute and other views rearrange a tensor without copying an element.
func ExampleTensor_Permute() {
	x := tensor.Root().Arange(24).View(2, 3, 4)
	fmt.Println(x.Permute(2, 0, 1).Shape(), x.Transpose(0, -1).Shape(), x.T().Shape())
	fmt.Println(x.Flatten(1, -1).Shape(), x.Unsqueeze(0).Shape(), x.Unsqueeze(0).Squeeze().Shape())
	fmt.Println(x.Narrow(1, 1, 2).Select(0, 0))
	// Output:
	// [4, 2, 3] [4, 3, 2] [2, 4, 3]
	// [2, 12] [1, 2, 3, 4] [2, 3, 4]
	// tensor([[ 4,  5,  6,  7],
	//         [ 8,  9, 10, 11]])
}

// Reshape copies if a view is impossible. View panics instead.
func ExampleTensor_Reshape() {
	t := tensor.From([][]int64{{1, 2, 3}, {4, 5, 6}}).T()
	fmt.Println(t.Reshape(-1))
	err := tensor.Try(func() { t.View(-1) })
	fmt.Println(err.(*tensor.Error).Msg)
	fmt.Println(errors.Is(err, tensor.ErrShape))
	// Output:
	// tensor([1, 4, 2, 5, 3, 6])
	// strides [1, 3] do not allow shape [6] without a copy
	// true
}

// Expand repeats without copying, with a stride of 0.
func ExampleTensor_Expand() {
	row := tensor.From([]float32{1, 2})
	many := row.Expand(3, -1)
	fmt.Println(many.Shape(), many.Strides(), many.Contiguous().Strides())
	// Output: [3, 2] [0, 1] [2, 1]
}

// IndexSelect selects whole rows, here in reverse order.
func ExampleTensor_IndexSelect() {
	x := tensor.From([][]float32{{1, 2}, {3, 4}, {5, 6}})
	fmt.Println(x.IndexSelect(0, tensor.From([]int64{2, 1, 0})))
	// Output:
	// tensor([[5., 6.],
	//         [3., 4.],
	//         [1., 2.]])
}

// A whole number as a scalar keeps the type of integer tensors. A number with a fraction does not.
func ExampleTensor_AddScalar() {
	n := tensor.From([]int64{1, 2, 3})
	fmt.Println(n.AddScalar(1), n.SubScalar(1), n.MulScalar(2))
	fmt.Println(n.RSubScalar(10), n.DivScalar(2), n.RDivScalar(6), n.PowScalar(2))
	fmt.Println(n.EqScalar(2), n.GeScalar(2))
	// Output:
	// tensor([2, 3, 4]) tensor([0, 1, 2]) tensor([2, 4, 6])
	// tensor([9, 8, 7]) tensor([0.5000, 1.0000, 1.5000]) tensor([6., 3., 2.]) tensor([1., 4., 9.])
	// tensor([False,  True, False]) tensor([False,  True,  True])
}

// A tensor may have an element type other than float32.
func ExampleTensor_Half() {
	x := tensor.From(1.0 / 3)
	fmt.Println(x.Float(), x.Half(), x.BFloat16(), x.Long())
	fmt.Println(x.Item(), x.Half().Item(), x.BFloat16().Double().Item())
	// Output:
	// tensor(0.3333) tensor(0.3333, dtype=torch.float16) tensor(0.3340, dtype=torch.bfloat16) tensor(0)
	// 0.3333333333333333 0.333251953125 0.333984375
}

// A maker makes random tensors of several distributions.
func ExampleMaker_Normal() {
	tensor.Do(func(s *tensor.Scope) {
		m := s.Typed(dtype.F64)
		x := m.Normal(5, 2, 10000)
		fmt.Printf("%.1f ± %.1f\n", x.Mean().Item(), x.Sub(x.Mean()).Square().Mean().Sqrt().Item())
		fmt.Printf("%.2f\n", m.Uniform(-1, 1, 10000).Abs().Mean().Item())
		fmt.Printf("%.1f\n", m.Bernoulli(0.3, 10000).Mean().Item())
		fmt.Println(s.Typed(dtype.I64).RandPerm(5).Sum().Item())
	}, tensor.Seed(0))
	// Output:
	// 5.0 ± 2.0
	// 0.50
	// 0.3
	// 10
}

// FromBytes reads elements in the format of a file or a packet. Bytes returns them.
func ExampleFromBytes() {
	x := tensor.FromBytes(dtype.I16, []byte{1, 0, 0, 1, 0xff, 0xff}, 3)
	fmt.Println(x, x.Bytes())
	// Output:
	// tensor([  1, 256,  -1], dtype=torch.int16) [1 0 0 1 255 255]
}

// SetGrad replaces the gradient of a leaf. SetRequiresGrad switches the collection of gradients on
// and off.
func ExampleTensor_SetGrad() {
	w := tensor.From([]float32{3, 4}).RequiresGrad()
	w.Square().Sum().Backward()
	if norm := w.Grad().Square().Sum().Sqrt().Item(); norm > 1 { // clip the gradient to length 1
		w.SetGrad(w.Grad().DivScalar(norm))
	}
	fmt.Println(w.Grad(), w.IsLeaf(), w.NeedsGrad())
	w.SetRequiresGrad(false)
	fmt.Println(w.Square().NeedsGrad())
	// Output:
	// tensor([0.6000, 0.8000]) true true
	// false
}

// Copy, Fill and similar methods write into an existing tensor, here a running mean in the root
// scope.
func ExampleTensor_Copy() {
	mean := tensor.Zeros(2)
	for _, batch := range [][]float32{{1, 2}, {3, 6}} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From(batch)
			mean.Copy(mean.MulScalar(0.5).Add(x.MulScalar(0.5)))
		}, tensor.NoGrad())
	}
	fmt.Println(mean)
	fmt.Println(mean.Fill(7))
	fmt.Println(mean.Zero())
	// Output:
	// tensor([1.7500, 3.5000])
	// tensor([7., 7.])
	// tensor([0., 0.])
}

// Stream queues a scope's work on a stream of its own. Reading a result waits for it.
func ExampleStream() {
	dev, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	st, err := dev.NewStream(0)
	if err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		fmt.Println(s.Ones(3).AddScalar(1).Sum().Item())
	}, tensor.On(dev), tensor.Stream(st))
	// Output: 6
}

// Optimizers are built on Update. It runs one program for all parameters, in a single launch if the
// device can do that. The program of this example is p ← p - lr·sign(g).
func ExampleUpdate() {
	p, g, lr := expr.X(0), expr.X(1), expr.Param(0)
	sign := g.Gt(expr.C(0)).Select(expr.C(1), g.Lt(expr.C(0)).Select(expr.C(-1), expr.C(0)))
	prog := expr.MustLower([]*expr.Expr{p.Sub(lr.Mul(sign))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)

	w := tensor.From([]float32{1, 1, 1}).RequiresGrad()
	w.Mul(tensor.From([]float32{-50, 0, 0.001})).Sum().Backward()
	tensor.Do(func(s *tensor.Scope) {
		bits := expr.Encode(dtype.F32, 0.25)
		params := s.From([]int64{int64(bits)})
		tensor.Update("signsgd", prog, [][]*tensor.Tensor{{w}}, [][]*tensor.Tensor{{w, w.Grad()}}, params, []uint64{bits})
	}, tensor.NoGrad())
	fmt.Println(w.Detach())
	// Output:
	// tensor([1.2500, 1.0000, 0.7500])
}
