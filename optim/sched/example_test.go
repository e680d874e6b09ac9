package sched_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
)

// rates prints the learning rates of the next steps.
func rates(opt optim.Optimizer, s sched.Scheduler, steps int) {
	for range steps {
		fmt.Printf("%.4g ", opt.LR())
		opt.Step()
		s.Step()
	}
	fmt.Println()
}

func one(lr float64) optim.Optimizer {
	return optim.NewSGD([]*tensor.Tensor{tensor.Zeros(1).RequiresGrad()}, optim.SGDConfig{LR: lr, Momentum: 0.9})
}

// The schedule is a linear warm-up, followed by half a cosine down to 0.
func Example() {
	opt := one(1)
	rates(opt, sched.NewWarmUp(opt, sched.WarmUpConfig{Steps: 4}, sched.NewCosineAnnealing(opt, 4, 0)), 9)
	// Output:
	// 0.25 0.4375 0.625 0.8125 1 0.8536 0.5 0.1464 0
}

func ExampleNewStep() {
	opt := one(1)
	rates(opt, sched.NewStep(opt, 3, 0.1), 7)
	// Output:
	// 1 1 1 0.1 0.1 0.1 0.01
}

func ExampleNewMultiStep() {
	opt := one(1)
	rates(opt, sched.NewMultiStep(opt, []int{2, 5}, 0.5), 7)
	// Output:
	// 1 1 0.5 0.5 0.5 0.25 0.25
}

func ExampleNewConstant() {
	opt := one(1)
	rates(opt, sched.NewConstant(opt, 0.5, 3), 5)
	// Output:
	// 0.5 0.5 0.5 1 1
}

func ExampleNewLinear() {
	opt := one(1)
	rates(opt, sched.NewLinear(opt, 0.5, 1, 4), 6)
	// Output:
	// 0.5 0.625 0.75 0.875 1 1
}

func ExampleNewExponential() {
	opt := one(1)
	rates(opt, sched.NewExponential(opt, 0.5), 4)
	// Output:
	// 1 0.5 0.25 0.125
}

func ExampleNewPolynomial() {
	opt := one(1)
	rates(opt, sched.NewPolynomial(opt, 4, 2), 6)
	// Output:
	// 1 0.5625 0.25 0.0625 0 0
}

func ExampleNewLambda() {
	opt := one(2)
	rates(opt, sched.NewLambda(opt, func(step int) float64 { return 1 / float64(1+step) }), 4)
	// Output:
	// 2 1 0.6667 0.5
}

func ExampleNewMultiplicative() {
	opt := one(1)
	rates(opt, sched.NewMultiplicative(opt, func(step int) float64 { return 1 / float64(step) }), 4)
	// Output:
	// 1 1 0.5 0.1667
}

func ExampleNewCosineAnnealing() {
	opt := one(1)
	rates(opt, sched.NewCosineAnnealing(opt, 4, 0), 6)
	// Output:
	// 1 0.8536 0.5 0.1464 0 0.1464
}

func ExampleNewCosineWarmRestarts() {
	opt := one(1)
	rates(opt, sched.NewCosineWarmRestarts(opt, 2, 2, 0), 8)
	// Output:
	// 1 0.5 1 0.8536 0.5 0.1464 1 0.9619
}

func ExampleNewOneCycle() {
	opt := one(1)
	s := sched.NewOneCycle(opt, sched.OneCycleConfig{MaxLR: []float64{1}, Steps: 6, Rise: 0.5, Linear: true})
	for range 6 {
		m, _ := opt.Groups()[0].Option("momentum")
		fmt.Printf("%.2g/%.3g ", opt.LR(), m)
		s.Step()
	}
	fmt.Println()
	// Output:
	// 0.04/0.95 0.52/0.9 1/0.85 0.67/0.883 0.33/0.917 4e-06/0.95
}

func ExampleNewCyclic() {
	opt := one(1)
	rates(opt, sched.NewCyclic(opt, sched.CyclicConfig{BaseLR: []float64{0}, MaxLR: []float64{1}, Up: 2}), 7)
	// Output:
	// 0 0.5 1 0.5 0 0.5 1
}

// The loss stops improving after the first values. After Patience more values, the rate falls.
func ExampleNewPlateau() {
	opt := one(1)
	s := sched.NewPlateau(opt, sched.PlateauConfig{Patience: 2, Factor: 0.1})
	for _, loss := range []float64{3, 2, 2, 2, 2, 1} {
		s.StepMetric(loss)
		fmt.Print(opt.LR(), " ")
	}
	fmt.Println()
	// Output:
	// 1 1 1 1 0.1 0.1
}

func ExampleNewSequential() {
	opt := one(1)
	list := []sched.Scheduler{sched.NewConstant(opt, 0.1, 100), sched.NewExponential(opt, 0.5)}
	rates(opt, sched.NewSequential(opt, list, []int{3}), 6)
	// Output:
	// 0.1 0.1 0.1 1 0.5 0.25
}

func ExampleNewChained() {
	opt := one(1)
	rates(opt, sched.NewChained(sched.NewConstant(opt, 0.1, 2), sched.NewExponential(opt, 0.5)), 4)
	// Output:
	// 0.1 0.05 0.25 0.125
}

// To continue a training, first load the schedule's state. Then load the optimizer's state, which
// has the learning rate.
func ExampleScheduler() {
	opt := one(1)
	s := sched.NewExponential(opt, 0.5)
	s.Step()
	saved, rates := s.StateDict(), opt.StateDict()

	again := one(1)
	var r sched.Scheduler = sched.NewExponential(again, 0.5)
	fmt.Println(r.LoadStateDict(saved), again.LoadStateDict(rates))
	r.Step()
	fmt.Println(again.LR(), r.LastLR(), r.StateDict()["last_epoch"])
	// Output:
	// <nil> <nil>
	// 0.25 [0.25] 2
}
