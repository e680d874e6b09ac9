package start_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

func Example_scope() {
	w := tensor.Ones(2, 2) // belongs to the root scope, so it is not freed
	total := 0.0
	for _, row := range [][]float32{{1, 2}, {3, 4}} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From([][]float32{row}) // belongs to s
			y := x.MatMul(w)              // belongs to s, the youngest scope of its operands
			total += y.Sum().Item()
		}) // x and y are freed here, w is not
	}
	fmt.Println(total)
	// Output: 20
}

func Example_ended() {
	var y *tensor.Tensor
	tensor.Do(func(s *tensor.Scope) { y = s.Ones(3).Sum() })
	err := tensor.Try(func() { y.Item() })
	fmt.Println(err != nil)
	// Output: true
}

func Example_kept() {
	s := tensor.NewScope()
	h := s.Ones(3).MulScalar(2)
	y := h.Sum()
	s.Close(y) // frees everything in s except y, which moves to the enclosing scope
	fmt.Println(y.Item())
	// Output: 6
}

func Example_modes() {
	model := nn.NewLinear(4, 2)
	tensor.Do(func(s *tensor.Scope) {
		y := model.Forward(s.Randn(8, 4))
		fmt.Println(y.Type(), y.NeedsGrad())
	}, tensor.NoGrad(), tensor.Autocast(dtype.BF16), tensor.Seed(1))
	// Output: bfloat16 false
}

func Example_lend() {
	w := tensor.From([]float32{3, 4}).RequiresGrad()
	tensor.Do(func(s *tensor.Scope) {
		// w belongs to an older scope. w.In(s) is the same tensor, but results of it belong to s.
		penalty := w.In(s).Square().Sum()
		penalty.Backward()
	})
	fmt.Println(w.Grad()) // w's gradient belongs to w's own scope
	// Output: tensor([6., 8.])
}

func Example_whole() {
	x := tensor.From([][]float32{{1}, {2}, {3}})
	y := x.MulScalar(2)
	model := nn.NewLinear(1, 1, nn.NoBias())
	opt := optim.NewSGD(nn.Parameters(model), optim.SGDConfig{LR: 0.1})
	for range 50 {
		tensor.Do(func(s *tensor.Scope) {
			loss := nn.MSE(model.Forward(x.In(s)), y)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
		})
	}
	fmt.Printf("%.3f\n", model.Weight)
	// Output: 2.000
}

func normalised(x *tensor.Tensor) *tensor.Tensor {
	s := x.Scope().New(tensor.NoGrad())
	y := x.In(s)
	y = y.Sub(y.Mean()).Div(y.Std(1))
	s.Close(y) // y moves to the scope of x
	return y
}

func Example_normalised() {
	y := normalised(tensor.From([]float32{1, 2, 3}).RequiresGrad())
	fmt.Println(y)
	// Output: tensor([-1.,  0.,  1.])
}

func Example_infer() {
	model := nn.NewLinear(4, 2)
	y := nn.Infer(model, tensor.Ones(1, 4)) // evaluation mode, no graph; only y is kept
	fmt.Println(y.Shape(), y.NeedsGrad(), model.Training())
	// Output: [1, 2] false true
}
