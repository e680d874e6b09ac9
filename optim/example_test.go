package optim_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Every training loop computes the loss and calls Backward, Step and ZeroGrad. Here AdamW fits a
// line to points on y = 2x + 1.
func Example() {
	tensor.ManualSeed(1)
	x := tensor.Root().Arange(8).Float().Unsqueeze(1).MulScalar(0.25)
	y := x.MulScalar(2).AddScalar(1)
	model := nn.NewLinear(1, 1)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.05})
	first, last := 0.0, 0.0
	for step := range 500 {
		tensor.Do(func(s *tensor.Scope) {
			loss := nn.MSE(model.Forward(x.In(s)), y)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
			last = loss.Item()
		})
		if step == 0 {
			first = last
		}
	}
	fmt.Println(last < first/1000)
	fmt.Printf("%.2f x + %.2f\n", model.Weight.Detach().Item(), model.Bias.Detach().Item())
	// Output:
	// true
	// 2.00 x + 1.00
}

// The first step of SGD is plain gradient descent. The second step has momentum.
func ExampleNewSGD() {
	w := tensor.From([]float32{1, 1}).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	for range 2 {
		w.Mul(tensor.From([]float32{1, 2})).Sum().Backward() // the gradient is always [1, 2]
		opt.Step()
		opt.ZeroGrad()
		fmt.Println(w.Detach())
	}
	// Output:
	// tensor([0.9000, 0.8000])
	// tensor([0.7100, 0.4200])
}

// The first steps of Adam are as long as the learning rate, whatever the size of the gradient.
func ExampleNewAdam() {
	w := tensor.Zeros(3).RequiresGrad()
	opt := optim.NewAdam([]*tensor.Tensor{w}, optim.AdamConfig{LR: 0.5})
	w.Mul(tensor.From([]float32{1e-3, 1, 1e3})).Sum().Backward()
	opt.Step()
	fmt.Println(w.Detach())
	// Output:
	// tensor([-0.5000, -0.5000, -0.5000])
}

// AdamW shrinks the weights by lr·λ in each step, independently of the gradient.
func ExampleNewAdamW() {
	w := tensor.Ones(2).RequiresGrad()
	opt := optim.NewAdamW([]*tensor.Tensor{w}, optim.AdamConfig{LR: 0.1, WeightDecay: 0.5})
	w.MulScalar(0).Sum().Backward()
	opt.Step()
	fmt.Println(w.Detach())
	// Output:
	// tensor([0.9500, 0.9500])
}

// A schedule sets the learning rate between steps, and the next step uses it.
func ExampleOptimizer() {
	w := tensor.Zeros(1).RequiresGrad()
	var opt optim.Optimizer = optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 1})
	for opt.Steps() < 3 {
		w.Sum().Backward()
		opt.Step()
		opt.ZeroGrad()
		opt.SetLR(opt.LR() / 2)
	}
	fmt.Println(w.Detach().Item(), opt.LR())
	// Output: -1.75 0.125
}

// Invalid arguments of a constructor panic.
func ExampleError() {
	defer func() { fmt.Println(recover().(*optim.Error)) }()
	optim.NewSGD(nil, optim.SGDConfig{LR: 0.1})
	// Output:
	// optim: SGD: there are no parameters
}

// Groups have their own options. Here the biases have no weight decay, and learn twice as fast.
func ExampleNewAdamWGroups() {
	model := nn.NewSequential(nn.NewLinear(4, 8), nn.ReLU{}, nn.NewLinear(8, 2))
	var weights, biases []*tensor.Tensor
	for _, p := range nn.Parameters(model) {
		if p.Rank() > 1 {
			weights = append(weights, p)
		} else {
			biases = append(biases, p)
		}
	}
	c := optim.AdamConfig{LR: 1e-3, WeightDecay: 0.1}
	plain := c
	plain.LR, plain.WeightDecay = 2e-3, 0
	opt := optim.NewAdamWGroups(optim.With[optim.AdamConfig]{Params: weights, Config: c}, optim.With[optim.AdamConfig]{Params: biases, Config: plain})
	for _, g := range opt.Groups() {
		decay, _ := g.Option("weight_decay")
		fmt.Println(len(g.Params), g.LR, decay)
	}
	// Output:
	// 2 0.001 0.1
	// 2 0.002 0
}

// The options of a group can change between steps. SetOption and Option use torch's names for them.
func ExampleGroup() {
	w := tensor.Ones(1).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 1})
	g := opt.Groups()[0]
	fmt.Println(g.SetOption("weight_decay", 0.5), g.SetOption("momentum", -1.0))
	g.LR = 0.1
	w.SetGrad(tensor.Zeros(1))
	opt.Step()
	fmt.Println(w.Detach())
	// Output:
	// <nil> optim: SGD: option "momentum": momentum cannot be -1
	// tensor([0.9500])
}

// A run continues from the state of another run. The tree has the form of torch's state_dict.
func ExampleOptimizer_stateDict() {
	step := func(w *tensor.Tensor, opt optim.Optimizer) {
		w.Mul(w).Sum().Backward()
		opt.Step()
		opt.ZeroGrad()
	}
	w := tensor.Ones(1).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	step(w, opt)
	tree := opt.StateDict()
	again := tensor.Full(w.Detach().Item(), 1).RequiresGrad()
	other := optim.NewSGD([]*tensor.Tensor{again}, optim.SGDConfig{LR: 1})
	if err := other.LoadStateDict(tree); err != nil {
		fmt.Println(err)
		return
	}
	step(w, opt)
	step(again, other)
	fmt.Println(w.Detach(), again.Detach())
	fmt.Println(tree["state"].(map[int64]any)[0].(map[string]any)["momentum_buffer"])
	// Output:
	// tensor([0.4600]) tensor([0.4600])
	// tensor([3.4000])
}

// A tree that does not fit is an error. The error says which part does not fit.
func ExampleStateError() {
	opt := optim.NewSGD([]*tensor.Tensor{tensor.Ones(1).RequiresGrad()}, optim.SGDConfig{LR: 1})
	tree := opt.StateDict()
	tree["param_groups"].([]any)[0].(map[string]any)["momentum"] = "high"
	fmt.Println(opt.LoadStateDict(tree))
	// Output:
	// optim: SGD: cannot load the state: param_groups[0]["momentum"] is "high", want a number
}
