package amp_test

import (
	"errors"
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// The scale is multiplied by GrowthFactor after two good steps, and by BackoffFactor after a
// skipped step.
func ExampleGrowthInterval() {
	w := tensor.Ones(2).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1})
	scaler := amp.NewGradScaler(amp.InitScale(8), amp.GrowthFactor(4), amp.BackoffFactor(0.25), amp.GrowthInterval(2))
	for _, factor := range []float64{1, 1, math.NaN(), 1} {
		scaler.Scale(w.MulScalar(factor).Sum()).Backward()
		scaler.Step(opt)
		scaler.Update()
		opt.ZeroGrad()
		fmt.Print(scaler.Value(), " ")
	}
	scaler.SetGrowthInterval(1000)
	scaler.UpdateTo(64) // the program itself sets the scale
	fmt.Println(scaler.Value())
	// Output: 8 32 8 8 64
}

// With Enabled(false) the same loop trains in float32 or bfloat16: the scaler scales nothing and
// skips no step.
func ExampleEnabled() {
	w := tensor.Ones(2).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.5})
	scaler := amp.NewGradScaler(amp.Enabled(false))
	scaler.Scale(w.Sum()).Backward()
	scaler.Step(opt)
	scaler.Update()
	fmt.Println(scaler.Enabled(), scaler.Value(), w.Detach().Floats())
	// Output: false 1 [0.5 0.5]
}

// plain is a user's optimizer.
type plain struct{ w *tensor.Tensor }

func (p plain) Params() []*tensor.Tensor { return []*tensor.Tensor{p.w} }
func (p plain) Step() {
	tensor.Do(func(s *tensor.Scope) { p.w.In(s).SubInPlace(p.w.Grad()) }, tensor.NoGrad())
}

// An optimizer needs only two methods. Without StepUnless, the host reads whether a gradient has
// overflowed, and decides whether to make the step.
func ExampleOptimizer() {
	var opt amp.Optimizer = plain{tensor.Ones(2).RequiresGrad()}
	_, ok := opt.(amp.Skipper)
	_, adam := any(optim.NewAdam(opt.Params(), optim.AdamConfig{LR: 1})).(amp.Skipper)
	fmt.Println(ok, adam)
	scaler := amp.NewGradScaler(amp.InitScale(1024))
	w := opt.Params()[0]
	scaler.Scale(w.Mul(tensor.From([]float32{0.5, 0.25})).Sum()).Backward()
	scaler.Step(opt)
	scaler.Update()
	fmt.Println(w.Detach().Floats())
	// Output:
	// false true
	// [0.5 0.75]
}

// skipping is a user's optimizer that can skip a step on the device. Its method StepUnless gets a
// tensor that is 1 if a gradient is infinite or NaN, else 0.
type skipping struct{ plain }

func (p skipping) StepUnless(found *tensor.Tensor) {
	tensor.Do(func(s *tensor.Scope) {
		p.w.In(s).SubInPlace(p.w.Grad().MaskedFill(found.In(s).NeScalar(0), 0))
	}, tensor.NoGrad())
}

// A Skipper skips a step without making the host wait.
func ExampleSkipper() {
	opt := skipping{plain{tensor.Ones(2).RequiresGrad()}}
	var _ amp.Skipper = opt
	scaler := amp.NewGradScaler(amp.InitScale(1024))
	for _, factor := range []float64{math.Inf(1), 0.5} {
		opt.w.ZeroGrad()
		scaler.Scale(opt.w.MulScalar(factor).Sum()).Backward()
		scaler.Step(opt)
		scaler.Update()
		fmt.Println(opt.w.Detach().Floats())
	}
	fmt.Println(scaler.Skipped(), "left out")
	// Output:
	// [1 1]
	// [0.5 0.5]
	// 1 left out
}

// Gradients may be NaN for reasons other than the scale. With Floor the scale does not fall to 0,
// and the warning comes at once.
func ExampleFloor() {
	w := tensor.Ones(2).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1})
	scaler := amp.NewGradScaler(amp.InitScale(4), amp.Floor(1), amp.WarnAfter(100, func(w amp.Warning) {
		fmt.Println("at the least scale:", w.Floor, w.Scale)
	}))
	for range 5 {
		opt.ZeroGrad()
		scaler.Scale(w.MulScalar(math.NaN()).Sum()).Backward()
		scaler.Step(opt)
		scaler.Update()
	}
	fmt.Println(scaler.Value())
	// Output:
	// at the least scale: true 1
	// 1
}

// A resumed training continues with its scale. The state has torch's keys, so torch can load it
// too. A state that does not fit changes nothing.
func ExampleGradScaler_StateDict() {
	w := tensor.Ones(2).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.1})
	scaler := amp.NewGradScaler(amp.InitScale(1024))
	scaler.SetGrowthFactor(4)
	scaler.SetBackoffFactor(0.25)
	for range 3 {
		opt.ZeroGrad()
		scaler.Scale(w.Sum()).Backward()
		scaler.Step(opt)
		scaler.Update()
	}
	state := scaler.StateDict()
	fmt.Println(state)
	again := amp.NewGradScaler()
	fmt.Println(again.LoadStateDict(state), again.Value(), again.GrowthTracker())
	delete(state, "scale")
	err := again.LoadStateDict(state)
	var e *amp.StateError
	fmt.Println(errors.As(err, &e), err)
	// Output:
	// map[_growth_tracker:3 backoff_factor:0.25 growth_factor:4 growth_interval:2000 scale:1024]
	// <nil> 1024 3
	// true amp: cannot load the state: "scale" is missing
}

// An iteration is abandoned after its gradients were unscaled. After Restart it can begin again.
func ExampleGradScaler_Restart() {
	w := tensor.Ones(2).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.5})
	scaler := amp.NewGradScaler(amp.InitScale(1024))
	scaler.Scale(w.Sum()).Backward()
	scaler.Unscale(opt)
	// Here the iteration runs out of memory.
	opt.ZeroGrad()
	scaler.Restart()
	scaler.Scale(w.Sum()).Backward()
	scaler.Step(opt)
	scaler.Update()
	fmt.Println(w.Detach().Floats(), scaler.Value())
	// Output: [0.5 0.5] 1024
}
