package guide_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// points returns points around zero. The class of a point is 1 if its coordinates have the same
// sign.
func points(s *tensor.Scope, n int) (x, class *tensor.Tensor) {
	x = s.Randn(n, 2)
	return x, x.Index(tensor.All, 0).Mul(x.Index(tensor.All, 1)).GtScalar(0).Long()
}

func accuracy(model *nn.Sequential, x, class *tensor.Tensor) float64 {
	return nn.Infer(model, x).Argmax(-1).Eq(class).Float().Mean().Item()
}

// follow moves the averages a small step towards the weights.
func follow(averages, weights []*tensor.Tensor) {
	tensor.Do(func(s *tensor.Scope) {
		for i, a := range averages {
			a.In(s).LerpScalarInPlace(weights[i], 0.01)
		}
	}, tensor.NoGrad())
}

func Example_follow() {
	a, w := tensor.Zeros(2), tensor.Ones(2).RequiresGrad()
	follow([]*tensor.Tensor{a}, []*tensor.Tensor{w})
	fmt.Println(a)
	// Output: tensor([0.0100, 0.0100])
}

func Example_loop() {
	root := tensor.Root() // the garbage collector frees its tensors
	model := nn.NewSequential(nn.NewLinear(2, 64), nn.ReLU{}, nn.NewLinear(64, 2))
	initial.KaimingUniform(model.Layers[0].(*nn.Linear).Weight, initial.Gain(initial.ReLU))
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-2, WeightDecay: 0.01})
	schedule := sched.NewOneCycle(opt, sched.OneCycleConfig{MaxLR: []float64{1e-2}, Steps: 400})
	average := optim.NewEMA(model, 0.99)
	early := &train.EarlyStopping{Patience: 4, Maximize: true}
	loss := nn.CrossEntropyLoss{LabelSmoothing: 0.05}
	testX, testClass := points(root, 500)
	for step := range 400 {
		tensor.Do(func(s *tensor.Scope) { // frees what the step makes
			x, class := points(s, 64)
			l := loss.Forward(model.Forward(x), class)
			l.Backward()
			norm := optim.ClipGradNorm(opt.Params(), 1) // the norm before clipping, on the device
			opt.Step()
			schedule.Step()
			average.Update()
			opt.ZeroGrad()
			if step == 0 {
				fmt.Printf("loss %.1f, norm %.1f, rate %.4f\n", l, norm, opt.Groups()[0].LR)
			}
		})
		if step%40 == 39 && early.Observe(accuracy(model, testX, testClass)) {
			break
		}
	}
	fmt.Println(early.Best() > 0.95)
	average.With(func() { fmt.Println(accuracy(model, testX, testClass) > 0.95) })
	// Output:
	// loss 0.9, norm 2.2, rate 0.0004
	// true
	// true
}
