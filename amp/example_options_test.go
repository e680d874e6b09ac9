package amp_test

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// How the scale moves: after two good steps it is multiplied, after a bad one by the other factor.
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
	scaler.UpdateTo(64) // a scale of one's own
	fmt.Println(scaler.Value())
	// Output: 8 32 8 8 64
}

// With Enabled(false) the same loop trains in float32 or bfloat16: nothing is scaled, and every step is done.
func ExampleEnabled() {
	w := tensor.Ones(2).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.5})
	scaler := amp.NewGradScaler(amp.Enabled(false))
	scaler.Scale(w.Sum()).Backward()
	scaler.Step(opt)
	scaler.Update()
	fmt.Println(scaler.Value(), w.Detach().Floats())
	// Output: 1 [0.5 0.5]
}

// plain is an optimizer of one's own.
type plain struct{ w *tensor.Tensor }

func (p plain) Params() []*tensor.Tensor { return []*tensor.Tensor{p.w} }
func (p plain) Step() {
	tensor.Do(func(s *tensor.Scope) { p.w.In(s).SubInPlace(p.w.Grad()) }, tensor.NoGrad())
}

// An optimizer that is no Skipper is stepped or not by the host, which reads whether a gradient has overflowed.
func ExampleSkipper() {
	opt := plain{tensor.Ones(2).RequiresGrad()}
	_, ok := any(opt).(amp.Skipper)
	_, adam := any(optim.NewAdam(opt.Params(), optim.AdamConfig{LR: 1})).(amp.Skipper)
	fmt.Println(ok, adam)
	scaler := amp.NewGradScaler(amp.InitScale(1024))
	scaler.Scale(opt.w.Mul(tensor.From([]float32{0.5, 0.25})).Sum()).Backward()
	scaler.Step(opt)
	scaler.Update()
	fmt.Println(opt.w.Detach().Floats())
	// Output:
	// false true
	// [0.5 0.75]
}
