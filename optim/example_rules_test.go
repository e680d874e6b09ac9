package optim_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// descend returns the parameters after n steps that minimise x² + 10y² from (1, 1).
func descend(n int, make func(params []*tensor.Tensor) optim.Optimizer) *tensor.Tensor {
	w := tensor.Ones(2).RequiresGrad()
	opt := make([]*tensor.Tensor{w})
	for range n {
		w.Mul(w).Mul(tensor.From([]float32{1, 10})).Sum().Backward()
		opt.Step()
		opt.ZeroGrad()
	}
	return w.Detach()
}

// NAdam is Adam with Nesterov's momentum.
func ExampleNewNAdam() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer { return optim.NewNAdam(p, optim.NAdamConfig{LR: 0.1}) })
	fmt.Println(w)
	// Output:
	// tensor([0.7527, 0.7527])
}

// The first steps use plain momentum, until the second moment is reliable.
func ExampleNewRAdam() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRAdam(p, optim.RAdamConfig{LR: 0.1}) })
	fmt.Println(w)
	// Output:
	// tensor([ 0.4623, -0.1680])
}

// The steps in both coordinates are equally large, although the gradients differ.
func ExampleNewRMSprop() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRMSprop(p, optim.RMSpropConfig{LR: 0.01}) })
	fmt.Println(w)
	// Output:
	// tensor([0.7800, 0.7800])
}

// The steps become smaller as squared gradients accumulate.
func ExampleNewAdagrad() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer { return optim.NewAdagrad(p, optim.AdagradConfig{LR: 0.5}) })
	fmt.Println(w)
	// Output:
	// tensor([0.1564, 0.1564])
}

// The rule itself determines the size of the steps, and begins with small steps.
func ExampleNewAdadelta() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdadelta(p, optim.AdadeltaConfig{LR: 1, Rho: 0.9})
	})
	fmt.Println(w)
	// Output:
	// tensor([0.9903, 0.9903])
}

// Adamax is Adam with a decaying maximum of the gradients' absolute values, instead of their root
// mean square.
func ExampleNewAdamax() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer { return optim.NewAdamax(p, optim.AdamaxConfig{LR: 0.1}) })
	fmt.Println(w)
	// Output:
	// tensor([0.7155, 0.7155])
}

// The result of averaged gradient descent is the average of the parameters over the steps. It is
// the state "ax". Here averaging begins after the second step.
func ExampleNewASGD() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer { return optim.NewASGD(p, optim.ASGDConfig{LR: 0.04, T0: 2}) })
	fmt.Println(w)
	// Output:
	// tensor([0.7787, 0.0080])
}

func ExampleNewRprop() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer { return optim.NewRprop(p, optim.RpropConfig{LR: 0.1}) })
	fmt.Println(w)
	// Output:
	// tensor([0.6360, 0.6360])
}

// Every coordinate moves by the learning rate.
func ExampleNewLion() {
	w := descend(3, func(p []*tensor.Tensor) optim.Optimizer { return optim.NewLion(p, optim.LionConfig{LR: 0.1}) })
	fmt.Println(w)
	// Output:
	// tensor([0.7000, 0.7000])
}

// The state of a matrix is one row and one column.
func ExampleNewAdafactor() {
	w := tensor.Zeros(3, 4).RequiresGrad()
	opt := optim.NewAdafactor([]*tensor.Tensor{w}, optim.AdafactorConfig{LR: 0.01})
	w.SubScalar(1).Square().Sum().Backward()
	opt.Step()
	state := opt.StateDict()["state"].(map[int64]any)[0].(map[string]any)
	fmt.Println(state["row_var"].(*tensor.Tensor).Shape(), state["col_var"].(*tensor.Tensor).Shape())
	// The step is proportional to the weights' root mean square, or to Eps2 if that is greater.
	// Here all weights are 0.
	fmt.Printf("%.5f\n", w.Detach().Floats()[0])
	// Output:
	// [3, 1] [1, 4]
	// 0.00001
}

// The step is a matrix whose singular values are near 1, however small the gradient is. The step
// therefore moves in all directions of the matrix.
func ExampleNewMuon() {
	w := tensor.Zeros(2, 2).RequiresGrad()
	opt := optim.NewMuon([]*tensor.Tensor{w}, optim.MuonConfig{LR: 0.1})
	w.Mul(tensor.From([][]float32{{0.3, 0}, {0, 1e-3}})).Sum().Backward()
	opt.Step()
	for _, v := range w.Detach().SVDVals().Floats() {
		fmt.Println(v > 0.05 && v < 0.13)
	}
	// Output:
	// true
	// true
}

// A few iterations minimise a quadratic function. The closure computes the gradients and returns
// the loss.
func ExampleNewLBFGS() {
	w := tensor.Ones(2).RequiresGrad()
	opt := optim.NewLBFGS([]*tensor.Tensor{w}, optim.LBFGSConfig{LR: 1, LineSearch: "strong_wolfe"})
	first := opt.Step(func() float64 {
		opt.ZeroGrad()
		loss := w.Mul(w).Mul(tensor.From([]float32{1, 10})).Sum()
		loss.Backward()
		return loss.Item()
	})
	fmt.Printf("from %v to %.4f\n", first, w.Detach().Abs().Sum().Item())
	// Output: from 11 to 0.0000
}

// SparseAdam leaves an element whose gradient is 0 unchanged, whatever its moments are.
func ExampleNewSparseAdam() {
	table := tensor.Ones(3).RequiresGrad()
	opt := optim.NewSparseAdam([]*tensor.Tensor{table}, optim.SparseAdamConfig{LR: 0.1})
	for _, g := range [][]float32{{1, 1, 0}, {0, 1, 0}} {
		table.SetGrad(tensor.From(g))
		opt.Step()
	}
	fmt.Println(table.Detach())
	// Output:
	// tensor([0.9000, 0.8000, 1.0000])
}
